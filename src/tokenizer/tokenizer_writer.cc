#include "tokenizer/tokenizer_writer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSpaceMark = "\xE2\x96\x81";

// `text` (valid UTF-8) as a JSON string. nlohmann's does the same, a value at a time.
void AppendString(std::string_view text, std::string* out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out->push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (byte < 0x20) {
      out->append("\\u00");
      out->push_back(kDigits[byte >> 4]);
      out->push_back(kDigits[byte & 15]);
    } else {
      out->push_back(c);
    }
  }
  out->push_back('"');
}

struct Merge {
  std::string_view left, right;
};

Merge Divide(std::string_view text) {
  size_t at = text.find('\0');
  if (at == std::string_view::npos) at = text.find(' ', 1);
  return {text.substr(0, at), text.substr(at + 1)};
}

class JsonWriter {
 public:
  explicit JsonWriter(const TokenizerSpec& spec) : spec_(spec) {}

  Result<std::string> Write() {
    POCKETLM_RETURN_IF_ERROR(Resolve());
    FindHoles();
    ListAdded();
    std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null";
    Section("added_tokens", AddedTokens(), &out);
    Section("normalizer", Normalizer(), &out);
    Section("pre_tokenizer", PreTokenizer(), &out);
    Section("post_processor", PostProcessor(), &out);
    Section("decoder", Decoder(), &out);
    out += ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ";
    const std::string_view unk = spec_.unk_in_text ? Piece(spec_.unk_id) : std::string_view();
    unk.empty() ? static_cast<void>(out.append("null")) : AppendString(unk, &out);
    out += ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null";
    Flag("fuse_unk", spec_.fuse_unk, &out);
    Flag("byte_fallback", spec_.byte_fallback && !byte_level(), &out);
    Flag("ignore_merges", spec_.ignore_merges, &out);
    AppendVocabulary(&out);
    AppendMerges(&out);
    out += "\n  }\n}\n";
    return out;
  }

 private:
  struct Added {
    AddedTokenFlags flags;
    bool special = false;
    bool in_vocabulary = true;
  };

  bool byte_level() const { return spec_.kind == TokenizerKind::kByteLevelBpe; }

  std::string_view Piece(int32_t id) const {
    return id >= 0 ? tokenizer_->Piece(id) : std::string_view();
  }
  TokenType Type(size_t id) const {
    return spec_.types.empty() ? TokenType::kNormal : spec_.types[id];
  }

  // Pieces and merges as the tokenizer has them.
  Status Resolve() {
    POCKETLM_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Create(spec_));
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      if (!IsValidUtf8(tokenizer_->Piece(id))) {
        return Unsupported("tokenizer.json: token " + std::to_string(id) +
                           ": expected UTF-8 text, got other bytes");
      }
    }
    if (!spec_.merges.empty() || !spec_.merge_ids.empty() || byte_level()) {
      merges_ = MergeTexts(spec_);
      return OkStatus();
    }
    TokenizerSpec resolved = spec_;
    tokenizer_->ExportTables(&resolved);
    merges_ = MergeTexts(resolved);
    return OkStatus();
  }

  void FindHoles() {
    std::unordered_set<std::string_view> padding;
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (Type(id) == TokenType::kUnused && spec_.tokens[id] == "[PAD" + std::to_string(id) + "]")
        padding.insert(spec_.tokens[id]);
    }
    for (size_t i = 0; i < merges_.size() && !padding.empty(); ++i) {
      const Merge merge = Divide(merges_[i]);
      padding.erase(merge.left);
      padding.erase(merge.right);
      padding.erase(std::string(merge.left) + std::string(merge.right));
    }
    hole_.resize(spec_.tokens.size());
    for (size_t id = 0; id < hole_.size(); ++id)
      hole_[id] = spec_.tokens[id].empty() || padding.contains(spec_.tokens[id]);
  }

  void ListAdded() {
    std::map<int32_t, AddedTokenFlags> flags;
    for (const AddedTokenFlags& f : spec_.added_flags) flags[f.id] = f;
    size_t vocabulary_size = 0;
    for (size_t id = 0; id < hole_.size(); ++id) {
      if (hole_[id]) continue;
      const TokenType type = Type(id);
      Added token;
      token.special = type == TokenType::kControl || type == TokenType::kUnknown;
      token.flags.id = static_cast<int32_t>(id);
      if (token.special || type == TokenType::kUserDefined) {
        const auto found = flags.find(token.flags.id);
        if (found != flags.end()) token.flags = found->second;
        token.in_vocabulary = found != flags.end() ? token.flags.in_model : !byte_level();
        added_.push_back(token);
      }
      vocabulary_size += token.in_vocabulary;
    }
    // The package numbers the rest by itself, from the size of the vocabulary on.
    size_t next = vocabulary_size;
    bool dense = true;
    for (const Added& token : added_) {
      if (!token.in_vocabulary) dense &= static_cast<size_t>(token.flags.id) == next++;
    }
    for (Added& token : added_) {
      token.in_vocabulary |= !dense;
      if (!token.in_vocabulary) outside_.insert(token.flags.id);
    }
  }

  ordered_json AddedTokens() const {
    ordered_json out = ordered_json::array();
    for (const Added& token : added_) {
      out.push_back({{"id", token.flags.id},
                     {"content", Piece(token.flags.id)},
                     {"single_word", token.flags.single_word},
                     {"lstrip", token.flags.lstrip},
                     {"rstrip", token.flags.rstrip},
                     {"normalized", token.flags.normalized},
                     {"special", token.special}});
    }
    return out;
  }

  static ordered_json Replace(const char* from, const char* to) {
    return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  }

  ordered_json Normalizer() const {
    if (byte_level()) return spec_.nfc ? ordered_json{{"type", "NFC"}} : ordered_json();
    const ordered_json replace = Replace(" ", kSpaceMark);
    if (!spec_.add_space_prefix) return replace;
    const ordered_json prepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
    return {{"type", "Sequence"}, {"normalizers", ordered_json::array({prepend, replace})}};
  }

  static ordered_json ByteLevel(bool add_prefix_space, bool trim_offsets, bool use_regex) {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", add_prefix_space},
            {"trim_offsets", trim_offsets},
            {"use_regex", use_regex}};
  }

  static ordered_json Split(const char* pattern) {
    const ordered_json split = {{"type", "Split"},
                                {"pattern", {{"Regex", pattern}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
    return {{"type", "Sequence"},
            {"pretokenizers", ordered_json::array({split, ByteLevel(false, false, false)})}};
  }

  ordered_json PreTokenizer() const {
    if (!byte_level()) return nullptr;
    const ordered_json digits = {{"type", "Digits"}, {"individual_digits", true}};
    switch (spec_.splitter) {
      case Splitter::kNone:
        return ByteLevel(spec_.add_space_prefix, true, false);
      case Splitter::kGpt2:
        return ByteLevel(spec_.add_space_prefix, true, true);
      case Splitter::kQwen2:
        return Split(kQwen2Pattern);
      case Splitter::kLlama3:
        return Split(kLlama3Pattern);
      case Splitter::kSmolLm:
        break;
    }
    return {{"type", "Sequence"},
            {"pretokenizers", ordered_json::array({digits, ByteLevel(false, true, true)})}};
  }

  ordered_json Template() const {
    const auto part = [](const char* kind, std::string_view id, int type) {
      return ordered_json{{kind, {{"id", id}, {"type_id", type}}}};
    };
    ordered_json single = ordered_json::array(), pair = ordered_json::array();
    ordered_json tokens = ordered_json::object();
    const std::string_view bos = Piece(spec_.bos_id), eos = Piece(spec_.eos_id);
    const auto sequence = [&](const char* name, int type, ordered_json* out) {
      if (tokenizer_->add_bos()) out->push_back(part("SpecialToken", bos, type));
      out->push_back(part("Sequence", name, type));
      if (tokenizer_->add_eos()) out->push_back(part("SpecialToken", eos, type));
    };
    sequence("A", 0, &single);
    sequence("A", 0, &pair);
    sequence("B", 1, &pair);
    const auto declare = [&](std::string_view text, int32_t id) {
      tokens[std::string(text)] = {{"id", text},
                                   {"ids", ordered_json::array({id})},
                                   {"tokens", ordered_json::array({text})}};
    };
    if (tokenizer_->add_bos()) declare(bos, spec_.bos_id);
    if (tokenizer_->add_eos()) declare(eos, spec_.eos_id);
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", tokens}};
  }

  ordered_json PostProcessor() const {
    const bool marks = tokenizer_->add_bos() || tokenizer_->add_eos();
    if (!byte_level()) return marks ? Template() : ordered_json();
    const ordered_json bytes = ByteLevel(false, false, false);
    if (!marks) return bytes;
    return {{"type", "Sequence"}, {"processors", ordered_json::array({bytes, Template()})}};
  }

  ordered_json Decoder() const {
    if (byte_level()) return ByteLevel(false, false, false);
    ordered_json steps =
        ordered_json::array({Replace(kSpaceMark, " "), ordered_json{{"type", "ByteFallback"}},
                             ordered_json{{"type", "Fuse"}}});
    if (spec_.add_space_prefix)
      steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return {{"type", "Sequence"}, {"decoders", steps}};
  }

  static void Section(const char* name, const ordered_json& value, std::string* out) {
    *out += std::string(",\n  \"") + name + "\": ";
    // Lines of the value are indented as those around it.
    for (const char c : value.dump(2)) {
      out->push_back(c);
      if (c == '\n') out->append("  ");
    }
  }

  static void Flag(const char* name, bool value, std::string* out) {
    *out += std::string(",\n    \"") + name + "\": " + (value ? "true" : "false");
  }

  void AppendVocabulary(std::string* out) const {
    *out += ",\n    \"vocab\": {";
    const char* comma = "";
    for (size_t id = 0; id < hole_.size(); ++id) {
      if (hole_[id] || outside_.contains(static_cast<int32_t>(id))) continue;
      out->append(std::exchange(comma, ",")).append("\n      ");
      AppendString(Piece(static_cast<int32_t>(id)), out);
      out->append(": ").append(std::to_string(id));
    }
    *out += "\n    }";
  }

  void AppendMerges(std::string* out) const {
    *out += ",\n    \"merges\": [";
    const char* comma = "";
    for (const std::string& text : merges_) {
      const Merge merge = Divide(text);
      out->append(std::exchange(comma, ",")).append("\n      [");
      AppendString(merge.left, out);
      out->append(", ");
      AppendString(merge.right, out);
      out->push_back(']');
    }
    *out += "\n    ]";
  }

  const TokenizerSpec& spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::string> merges_;
  std::vector<bool> hole_;
  std::vector<Added> added_;             // by id
  std::unordered_set<int32_t> outside_;  // added tokens that the model's vocabulary lacks
};

}  // namespace

Result<std::string> WriteTokenizerJson(const TokenizerSpec& spec) {
  return JsonWriter(spec).Write();
}

ordered_json TokenizerConfigJson(const TokenizerSpec& spec,
                                 const std::optional<std::string>& chat_template,
                                 uint32_t max_tokens) {
  ordered_json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"model_max_length", max_tokens},
                      {"clean_up_tokenization_spaces", false},
                      {"add_bos_token", spec.add_bos && spec.bos_id >= 0},
                      {"add_eos_token", spec.add_eos && spec.eos_id >= 0}};
  const auto token = [&](const char* name, int32_t id) {
    const bool known = id >= 0 && static_cast<size_t>(id) < spec.tokens.size();
    out[name] = known ? ordered_json(spec.tokens[static_cast<size_t>(id)]) : ordered_json();
  };
  token("bos_token", spec.bos_id);
  token("eos_token", spec.eos_id);
  token("pad_token", spec.pad_id);
  token("unk_token", spec.unk_id);
  if (chat_template) out["chat_template"] = *chat_template;
  return out;
}

}  // namespace pocketlm
