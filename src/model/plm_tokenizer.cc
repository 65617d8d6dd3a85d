// TokenizerSpec to and from a .plm file: settings as JSON, tables as bytes (docs/format.md, "tokenizer").
#include <array>
#include <cstring>
#include <utility>

#include "base/byte_reader.h"
#include "model/json_fields.h"
#include "model/plm_metadata.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

constexpr std::pair<Splitter, const char*> kSplitterNames[] = {{Splitter::kNone, "none"},
                                                               {Splitter::kGpt2, "gpt2"},
                                                               {Splitter::kQwen2, "qwen2"},
                                                               {Splitter::kLlama3, "llama3"},
                                                               {Splitter::kSmolLm, "smollm"}};
constexpr const char* kByteLevelName = "byte_level_bpe";
constexpr const char* kSentencePieceName = "sentencepiece_bpe";

// The boolean settings by name.
constexpr std::pair<const char*, bool TokenizerSpec::*> kFlags[] = {
    {"nfc", &TokenizerSpec::nfc},
    {"add_space_prefix", &TokenizerSpec::add_space_prefix},
    {"ignore_merges", &TokenizerSpec::ignore_merges},
    {"byte_fallback", &TokenizerSpec::byte_fallback},
    {"fuse_unk", &TokenizerSpec::fuse_unk},
    {"unk_in_text", &TokenizerSpec::unk_in_text},
    {"add_bos_token", &TokenizerSpec::add_bos},
    {"add_eos_token", &TokenizerSpec::add_eos}};

// Token ids; null where there is none.
constexpr std::pair<const char*, int32_t TokenizerSpec::*> kIds[] = {
    {"bos_token_id", &TokenizerSpec::bos_id},
    {"eos_token_id", &TokenizerSpec::eos_id},
    {"unk_token_id", &TokenizerSpec::unk_id},
    {"pad_token_id", &TokenizerSpec::pad_id}};

// Bits of an added token's flags.
constexpr std::pair<uint32_t, bool AddedTokenFlags::*> kAddedBits[] = {
    {1, &AddedTokenFlags::lstrip},
    {2, &AddedTokenFlags::rstrip},
    {4, &AddedTokenFlags::single_word},
    {8, &AddedTokenFlags::normalized},
    {16, &AddedTokenFlags::in_model}};
constexpr uint32_t kAllAddedBits = 31;

constexpr size_t kMaxTokenBytes = 65535;
constexpr auto kLastTokenType = static_cast<uint8_t>(TokenType::kByte);
// Merges may repeat a long token without end; those of real vocabularies make less text than the section has bytes.
constexpr uint64_t kMaxMergedBytesFactor = 16;

// The numbers at the start of the section.
struct TableSizes {
  uint32_t tokens = 0;
  uint32_t types = 0;  // 0 or `tokens`, as the next two
  uint32_t scores = 0;
  uint32_t reachable = 0;  // bits
  uint32_t merges = 0;
  uint32_t added = 0;
};

template <typename T>
void Put(T value, std::string* out) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out->append(raw, sizeof(T));
}

class TableReader {
 public:
  explicit TableReader(std::span<const std::byte> bytes)
      : size_bytes_(bytes.size()), reader_(bytes) {}

  Status Read(TokenizerSpec* spec) {
    POCKETLM_RETURN_IF_ERROR(ReadSizes());
    POCKETLM_RETURN_IF_ERROR(ReadScores(spec));
    POCKETLM_RETURN_IF_ERROR(ReadMerges(spec));
    POCKETLM_RETURN_IF_ERROR(ReadAdded(spec));
    POCKETLM_RETURN_IF_ERROR(ReadLengths());
    POCKETLM_RETURN_IF_ERROR(CheckMergedBytes(*spec));
    POCKETLM_RETURN_IF_ERROR(ReadTypes(spec));
    POCKETLM_RETURN_IF_ERROR(ReadReachable(spec));
    POCKETLM_RETURN_IF_ERROR(ReadTokens(spec));
    if (reader_.remaining() == 0) return OkStatus();
    return DataError(std::to_string(reader_.remaining()) + " bytes are left after the tokens");
  }

 private:
  Status ReadSizes() {
    POCKETLM_ASSIGN_OR_RETURN(sizes_.tokens, reader_.Read<uint32_t>("token count"));
    POCKETLM_ASSIGN_OR_RETURN(sizes_.types, reader_.Read<uint32_t>("type count"));
    POCKETLM_ASSIGN_OR_RETURN(sizes_.scores, reader_.Read<uint32_t>("score count"));
    POCKETLM_ASSIGN_OR_RETURN(sizes_.reachable, reader_.Read<uint32_t>("reachable count"));
    POCKETLM_ASSIGN_OR_RETURN(sizes_.merges, reader_.Read<uint32_t>("merge count"));
    POCKETLM_ASSIGN_OR_RETURN(sizes_.added, reader_.Read<uint32_t>("added token count"));
    for (const uint32_t count : {sizes_.types, sizes_.scores, sizes_.reachable}) {
      if (count != 0 && count != sizes_.tokens) {
        return DataError("expected tables for 0 or " + std::to_string(sizes_.tokens) +
                         " tokens, got one for " + std::to_string(count));
      }
    }
    return OkStatus();
  }

  // The next `count` values of T, after a check that they are there.
  template <typename T>
  Status ReadArray(uint64_t count, const char* what, std::vector<T>* out) {
    POCKETLM_ASSIGN_OR_RETURN(const auto raw, reader_.ReadBytes(count * sizeof(T), what));
    out->resize(static_cast<size_t>(count));
    if (!raw.empty()) std::memcpy(out->data(), raw.data(), raw.size());
    return OkStatus();
  }

  Status ReadScores(TokenizerSpec* spec) {
    return ReadArray(sizes_.scores, "scores", &spec->scores);
  }

  Status ReadMerges(TokenizerSpec* spec) {
    static_assert(sizeof(MergeIds) == 3 * sizeof(uint32_t));
    return ReadArray(sizes_.merges, "merges", &spec->merge_ids);
  }

  Status ReadAdded(TokenizerSpec* spec) {
    std::vector<std::array<uint32_t, 2>> rows;
    POCKETLM_RETURN_IF_ERROR(ReadArray(sizes_.added, "added tokens", &rows));
    spec->added_flags.reserve(rows.size());
    for (const auto& [id, bits] : rows) {
      if (id >= sizes_.tokens) {
        return DataError("added token " + std::to_string(id) + ": expected an id below " +
                         std::to_string(sizes_.tokens));
      }
      if ((bits & ~kAllAddedBits) != 0) {
        return Unsupported("added token " + std::to_string(id) + ": flags " + std::to_string(bits) +
                           " are not known; use a newer program");
      }
      AddedTokenFlags flags;
      flags.id = static_cast<int32_t>(id);
      for (const auto& [bit, member] : kAddedBits) flags.*member = (bits & bit) != 0;
      spec->added_flags.push_back(flags);
    }
    return OkStatus();
  }

  Status ReadLengths() { return ReadArray(sizes_.tokens, "token lengths", &lengths_); }

  Status CheckMergedBytes(const TokenizerSpec& spec) const {
    uint64_t total = 0;
    for (size_t i = 0; i < spec.merge_ids.size(); ++i) {
      const uint32_t result = spec.merge_ids[i].result;
      if (result >= sizes_.tokens) {
        return DataError("merge " + std::to_string(i) + ": expected ids below " +
                         std::to_string(sizes_.tokens) + ", got " + std::to_string(result));
      }
      total += lengths_[result];
    }
    if (total <= kMaxMergedBytesFactor * size_bytes_) return OkStatus();
    return DataError("merges: their results have " + std::to_string(total) +
                     " bytes, more than 16 times the section");
  }

  Status ReadTypes(TokenizerSpec* spec) {
    std::vector<uint8_t> types;
    POCKETLM_RETURN_IF_ERROR(ReadArray(sizes_.types, "token types", &types));
    spec->types.reserve(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      if (types[i] > kLastTokenType) {
        return Unsupported("token " + std::to_string(i) + ": type " + std::to_string(types[i]) +
                           " is not known; use a newer program");
      }
      spec->types.push_back(static_cast<TokenType>(types[i]));
    }
    return OkStatus();
  }

  Status ReadReachable(TokenizerSpec* spec) {
    std::vector<uint8_t> bits;
    POCKETLM_RETURN_IF_ERROR(
        ReadArray((uint64_t{sizes_.reachable} + 7) / 8, "reachable tokens", &bits));
    spec->reachable.resize(sizes_.reachable);
    for (size_t i = 0; i < sizes_.reachable; ++i)
      spec->reachable[i] = (bits[i / 8] >> (i % 8) & 1) != 0;
    return OkStatus();
  }

  Status ReadTokens(TokenizerSpec* spec) {
    spec->tokens.reserve(lengths_.size());
    for (size_t i = 0; i < lengths_.size(); ++i) {
      POCKETLM_ASSIGN_OR_RETURN(const std::string_view text,
                                reader_.ReadString(lengths_[i], "token text"));
      spec->tokens.emplace_back(text);
    }
    return OkStatus();
  }

  uint64_t size_bytes_;
  ByteReader reader_;
  TableSizes sizes_;
  std::vector<uint16_t> lengths_;
};

// In the order of TableReader::Read.
std::string TablesToBytes(const TokenizerSpec& spec) {
  std::string out;
  for (const size_t count : {spec.tokens.size(), spec.types.size(), spec.scores.size(),
                             spec.reachable.size(), spec.merge_ids.size(), spec.added_flags.size()})
    Put<uint32_t>(static_cast<uint32_t>(count), &out);
  for (const float score : spec.scores) Put<float>(score, &out);
  for (const MergeIds& merge : spec.merge_ids) {
    for (const uint32_t id : {merge.left, merge.right, merge.result}) Put<uint32_t>(id, &out);
  }
  for (const AddedTokenFlags& flags : spec.added_flags) {
    uint32_t bits = 0;
    for (const auto& [bit, member] : kAddedBits) bits |= flags.*member ? bit : 0;
    Put<uint32_t>(static_cast<uint32_t>(flags.id), &out);
    Put<uint32_t>(bits, &out);
  }
  for (const std::string& token : spec.tokens)
    Put<uint16_t>(static_cast<uint16_t>(token.size()), &out);
  for (const TokenType type : spec.types) Put<uint8_t>(static_cast<uint8_t>(type), &out);
  std::string bits((spec.reachable.size() + 7) / 8, '\0');
  for (size_t i = 0; i < spec.reachable.size(); ++i) {
    if (spec.reachable[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << (i % 8));
  }
  out += bits;
  for (const std::string& token : spec.tokens) out += token;
  return out;
}

}  // namespace

ordered_json TokenizerToPlmJson(const TokenizerSpec& spec) {
  ordered_json out;
  out["kind"] = spec.kind == TokenizerKind::kByteLevelBpe ? kByteLevelName : kSentencePieceName;
  for (const auto& [splitter, name] : kSplitterNames) {
    if (splitter == spec.splitter) out["splitter"] = name;
  }
  for (const auto& [name, member] : kFlags) out[name] = spec.*member;
  for (const auto& [name, member] : kIds) {
    out[name] = spec.*member < 0 ? ordered_json(nullptr) : ordered_json(spec.*member);
  }
  return out;
}

Result<std::string> TokenizerToPlmBytes(const TokenizerSpec& spec) {
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i].size() > kMaxTokenBytes) {
      return Unsupported("tokenizer: token " + std::to_string(i) +
                         ": expected at most 65535 bytes, got " +
                         std::to_string(spec.tokens[i].size()));
    }
  }
  POCKETLM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(spec));
  TokenizerSpec resolved = spec;
  tokenizer->ExportTables(&resolved);
  return TablesToBytes(resolved);
}

Result<TokenizerSpec> TokenizerFromPlm(const nlohmann::json& settings,
                                       std::span<const std::byte> tables) {
  TokenizerSpec spec;
  const JsonFields fields(settings, "metadata: tokenizer");
  POCKETLM_ASSIGN_OR_RETURN(const std::string kind, fields.StringOr("kind", ""));
  if (kind != kByteLevelName && kind != kSentencePieceName) {
    return Unsupported(
        "metadata: tokenizer: kind: expected byte_level_bpe or sentencepiece_bpe, got " +
        Quote(kind));
  }
  spec.kind =
      kind == kByteLevelName ? TokenizerKind::kByteLevelBpe : TokenizerKind::kSentencePieceBpe;
  POCKETLM_ASSIGN_OR_RETURN(const std::string splitter, fields.StringOr("splitter", "none"));
  bool known = false;
  for (const auto& [value, name] : kSplitterNames) {
    if (splitter != name) continue;
    spec.splitter = value;
    known = true;
  }
  if (!known) {
    return Unsupported("metadata: tokenizer: splitter " + Quote(splitter) +
                       " is not known; use a newer program");
  }
  for (const auto& [name, member] : kFlags)
    POCKETLM_RETURN_IF_ERROR(fields.BoolOr(name, spec.*member, &(spec.*member)));
  for (const auto& [name, member] : kIds) {
    const nlohmann::json* value = fields.Find(name);
    if (value == nullptr) continue;
    if (!value->is_number_integer() || *value < 0 || *value > INT32_MAX)
      return fields.Wrong(name, "a token id or null", *value);
    spec.*member = value->get<int32_t>();
  }
  Status status = TableReader(tables).Read(&spec);
  if (!status.ok()) return status.WithContext("section 'tokenizer'");
  return spec;
}

}  // namespace pocketlm
