#include <algorithm>
#include <utility>

#include "base/quote.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/split_patterns.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {
namespace {

using tokenizer_json::AddedTokenEntry;
using tokenizer_json::Document;
using tokenizer_json::Json;

constexpr const char* kSpaceMark = "\xE2\x96\x81";

std::string Shown(const Json& value) {
  return Shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace), 300);
}

Status NotSupported(const char* section, const Json& value) {
  return Unsupported(std::string("tokenizer.json: ") + section +
                     ": not supported: " + Shown(value));
}

std::string StringMember(const Json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto it = object.find(name);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

bool BoolMember(const Json& object, const char* name, bool otherwise) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(name);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : otherwise;
}

std::string TypeOf(const Json& component) { return StringMember(component, "type"); }

// A component, or the parts of a Sequence of them (one level, as files have it); empty for null.
std::vector<Json> Components(const Json& value, const char* list_name) {
  if (value.is_null()) return {};
  if (TypeOf(value) != "Sequence") return {value};
  const auto it = value.find(list_name);
  if (it == value.end() || !it->is_array()) return {value};
  return it->get<std::vector<Json>>();
}

bool IsReplace(const Json& c, const char* from, const char* to) {
  if (TypeOf(c) != "Replace" || !c.contains("pattern")) return false;
  return StringMember(c["pattern"], "String") == from && StringMember(c, "content") == to;
}

class SpecReader {
 public:
  SpecReader(Document document, std::map<std::string, Json> config)
      : document_(std::move(document)), config_(std::move(config)) {}

  Result<TokenizerSpec> Read() {
    POCKETLM_RETURN_IF_ERROR(ReadModel());
    POCKETLM_RETURN_IF_ERROR(ReadNormalizer());
    POCKETLM_RETURN_IF_ERROR(ReadPreTokenizer());
    POCKETLM_RETURN_IF_ERROR(ReadDecoder());
    POCKETLM_RETURN_IF_ERROR(PlaceTokens());
    POCKETLM_RETURN_IF_ERROR(ReadUnk());
    POCKETLM_RETURN_IF_ERROR(ReadPostProcessor());
    POCKETLM_RETURN_IF_ERROR(ReadConfig());
    return std::move(spec_);
  }

 private:
  const Json& Section(const char* name) const {
    static const Json kNull;
    const auto it = document_.sections.find(name);
    return it == document_.sections.end() ? kNull : it->second;
  }
  const Json& ModelMember(const char* name) const {
    static const Json kNull;
    const auto it = document_.model.find(name);
    return it == document_.model.end() ? kNull : it->second;
  }
  Status ReadModelFlag(const char* name, bool* out) const {
    const Json& v = ModelMember(name);
    if (v.is_null()) return OkStatus();
    if (!v.is_boolean()) {
      return DataError(std::string("tokenizer.json: model: ") + name +
                       ": expected true or false, got " + Shown(v));
    }
    *out = v.get<bool>();
    return OkStatus();
  }

  Status ReadModel() {
    if (!document_.has_model) return DataError("tokenizer.json: no model");
    const Json& type = ModelMember("type");
    if (document_.vocab_is_list || (!type.is_null() && type != "BPE")) {
      return Unsupported("tokenizer.json: model: expected BPE, got " + Shown(type));
    }
    if (document_.vocab.empty()) return DataError("tokenizer.json: model: no vocab");
    if (!document_.has_merges) return DataError("tokenizer.json: model: no list of merges");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& v = ModelMember(name);
      if (!v.is_null() && v != "") return NotSupported(name, v);
    }
    const Json& dropout = ModelMember("dropout");
    if (!dropout.is_null() && dropout != 0) return NotSupported("dropout", dropout);
    POCKETLM_RETURN_IF_ERROR(ReadModelFlag("ignore_merges", &spec_.ignore_merges));
    POCKETLM_RETURN_IF_ERROR(ReadModelFlag("byte_fallback", &spec_.byte_fallback));
    POCKETLM_RETURN_IF_ERROR(ReadModelFlag("fuse_unk", &spec_.fuse_unk));
    spec_.merges = std::move(document_.merges);
    return OkStatus();
  }

  Status ReadNormalizer() {
    const Json& normalizer = Section("normalizer");
    for (const Json& c : Components(normalizer, "normalizers")) {
      if (TypeOf(c) == "NFC" && !replaces_space_) {
        spec_.nfc = true;
      } else if (TypeOf(c) == "Prepend" && StringMember(c, "prepend") == kSpaceMark &&
                 !replaces_space_ && !spec_.add_space_prefix) {
        spec_.add_space_prefix = true;
      } else if (IsReplace(c, " ", kSpaceMark)) {
        replaces_space_ = true;
      } else {
        return NotSupported("normalizer", normalizer);
      }
    }
    if ((spec_.nfc && replaces_space_) || (spec_.add_space_prefix && !replaces_space_)) {
      return NotSupported("normalizer", normalizer);
    }
    if (replaces_space_) spec_.kind = TokenizerKind::kSentencePieceBpe;
    return OkStatus();
  }

  static Result<Splitter> SplitterOfPattern(const std::string& pattern) {
    if (pattern == kGpt2Pattern) return Splitter::kGpt2;
    if (pattern == kQwen2Pattern) return Splitter::kQwen2;
    if (pattern == kLlama3Pattern) return Splitter::kLlama3;
    return Unsupported("tokenizer.json: pre_tokenizer: unknown split pattern " + Shown(pattern));
  }

  Status ReadPreTokenizer() {
    const Json& pre = Section("pre_tokenizer");
    const std::vector<Json> parts = Components(pre, "pretokenizers");
    if (spec_.kind == TokenizerKind::kSentencePieceBpe) {
      // Gemma's split at spaces sees none: the normalizer has replaced them.
      const bool no_op = parts.size() == 1 && TypeOf(parts[0]) == "Split" &&
                         parts[0].contains("pattern") &&
                         StringMember(parts[0]["pattern"], "String") == " ";
      return parts.empty() || no_op ? OkStatus() : NotSupported("pre_tokenizer", pre);
    }
    if (parts.empty() || parts.size() > 2 || TypeOf(parts.back()) != "ByteLevel") {
      return NotSupported("pre_tokenizer", pre);
    }
    const bool use_regex = BoolMember(parts.back(), "use_regex", true);
    const bool add_prefix = BoolMember(parts.back(), "add_prefix_space", true);
    if (parts.size() == 1) {
      spec_.splitter = use_regex ? Splitter::kGpt2 : Splitter::kNone;
      spec_.add_space_prefix = add_prefix;
      return OkStatus();
    }
    const Json& first = parts[0];
    if (add_prefix) return NotSupported("pre_tokenizer", pre);
    if (TypeOf(first) == "Digits" && use_regex && BoolMember(first, "individual_digits", false)) {
      spec_.splitter = Splitter::kSmolLm;
      return OkStatus();
    }
    if (TypeOf(first) != "Split" || use_regex || StringMember(first, "behavior") != "Isolated" ||
        BoolMember(first, "invert", false) || !first.contains("pattern")) {
      return NotSupported("pre_tokenizer", pre);
    }
    POCKETLM_ASSIGN_OR_RETURN(spec_.splitter,
                              SplitterOfPattern(StringMember(first["pattern"], "Regex")));
    return OkStatus();
  }

  Status ReadDecoder() {
    const Json& decoder = Section("decoder");
    bool strips = false;
    for (const Json& c : Components(decoder, "decoders")) {
      const std::string type = TypeOf(c);
      bool known = type == "ByteLevel";
      if (spec_.kind == TokenizerKind::kSentencePieceBpe) {
        const bool strip = type == "Strip" && StringMember(c, "content") == " " &&
                           c.value("start", Json()) == 1 && c.value("stop", Json()) == 0;
        strips |= strip;
        known = strip || type == "ByteFallback" || type == "Fuse" || IsReplace(c, kSpaceMark, " ");
      }
      if (!known) return NotSupported("decoder", decoder);
    }
    const bool strip_expected =
        spec_.kind == TokenizerKind::kSentencePieceBpe && spec_.add_space_prefix;
    return strips == strip_expected ? OkStatus() : NotSupported("decoder", decoder);
  }

  Status PlaceTokens() {
    uint32_t max_id = 0;
    for (const uint32_t id : document_.vocab_ids) max_id = std::max(max_id, id);
    for (const AddedTokenEntry& t : document_.added) {
      max_id = std::max(max_id, static_cast<uint32_t>(t.id));
    }
    const size_t count = document_.vocab.size() + document_.added.size();
    if (max_id >= 4 * count + 1024) {
      return DataError("tokenizer.json: id " + std::to_string(max_id) +
                       " leaves too wide holes among " + std::to_string(count) + " tokens");
    }
    spec_.tokens.resize(size_t{max_id} + 1);
    spec_.types.assign(size_t{max_id} + 1, TokenType::kUnused);
    for (size_t i = 0; i < document_.vocab.size(); ++i) {
      const uint32_t id = document_.vocab_ids[i];
      std::string& token = document_.vocab[i];
      if (token.empty())
        return DataError("tokenizer.json: token " + std::to_string(id) + " is empty");
      if (!spec_.tokens[id].empty()) {
        return DataError("tokenizer.json: id " + std::to_string(id) + " is given to " +
                         Quote(spec_.tokens[id]) + " and " + Quote(token));
      }
      spec_.types[id] = IsByteToken(token) ? TokenType::kByte : TokenType::kNormal;
      spec_.tokens[id] = std::move(token);
    }
    document_.vocab = {};
    for (const AddedTokenEntry& t : document_.added) POCKETLM_RETURN_IF_ERROR(PlaceAdded(t));
    return OkStatus();
  }

  bool IsByteToken(const std::string& token) const {
    if (spec_.kind != TokenizerKind::kSentencePieceBpe || !spec_.byte_fallback) return false;
    return ParseByteToken(token) >= 0;
  }

  Status PlaceAdded(const AddedTokenEntry& t) {
    if (t.content.empty()) return OkStatus();  // as the package
    const auto id = static_cast<size_t>(t.id);
    AddedTokenFlags flags{
        static_cast<int32_t>(id),     t.lstrip, t.rstrip, t.single_word, t.normalized,
        spec_.tokens[id] == t.content};
    if (!spec_.tokens[id].empty() && !flags.in_model) {
      return DataError("tokenizer.json: added_tokens: id " + std::to_string(id) + " of " +
                       Quote(t.content) + " is that of " + Quote(spec_.tokens[id]));
    }
    spec_.tokens[id] = t.content;
    spec_.types[id] = t.special ? TokenType::kControl : TokenType::kUserDefined;
    spec_.added_flags.push_back(flags);
    return OkStatus();
  }

  int32_t IdOf(const std::string& token) const {
    if (token.empty()) return -1;
    const auto it = std::find(spec_.tokens.begin(), spec_.tokens.end(), token);
    return it == spec_.tokens.end() ? -1 : static_cast<int32_t>(it - spec_.tokens.begin());
  }

  Status ReadUnk() {
    const Json& unk = ModelMember("unk_token");
    if (unk.is_null() || unk == "") return OkStatus();
    if (!unk.is_string()) {
      return DataError("tokenizer.json: model: unk_token: expected a string, got " + Shown(unk));
    }
    spec_.unk_id = IdOf(unk.get<std::string>());
    spec_.unk_in_text = true;
    if (spec_.unk_id >= 0) return OkStatus();
    return DataError("tokenizer.json: model: unk_token " + Shown(unk) +
                     " is not in the vocabulary");
  }

  Status ReadPostProcessor() {
    const Json& post = Section("post_processor");
    for (const Json& c : Components(post, "processors")) {
      if (TypeOf(c) == "ByteLevel") continue;
      if (TypeOf(c) != "TemplateProcessing" || !c.contains("single") || !c["single"].is_array()) {
        return NotSupported("post_processor", post);
      }
      bool after_text = false;
      for (const Json& item : c["single"]) {
        if (item.contains("Sequence")) {
          after_text = true;
          continue;
        }
        bool* add = after_text ? &spec_.add_eos : &spec_.add_bos;
        const std::string name = item.contains("SpecialToken")
                                     ? StringMember(item["SpecialToken"], "id")
                                     : std::string();
        const int32_t id = IdOf(name);
        if (id < 0 || *add) return NotSupported("post_processor", post);
        *add = true;
        (after_text ? spec_.eos_id : spec_.bos_id) = id;
      }
    }
    return OkStatus();
  }

  Status ReadConfig() {
    const auto token = [&](const char* name, int32_t* id) {
      const auto it = config_.find(name);
      if (it == config_.end()) return;
      const std::string content = it->second.is_string() ? it->second.get<std::string>()
                                                         : StringMember(it->second, "content");
      if (const int32_t found = IdOf(content); found >= 0) *id = found;
    };
    token("bos_token", &spec_.bos_id);
    token("eos_token", &spec_.eos_id);
    token("pad_token", &spec_.pad_id);
    if (!spec_.unk_in_text) token("unk_token", &spec_.unk_id);
    const auto flag = [&](const char* name, bool* out) {
      const auto it = config_.find(name);
      if (it != config_.end() && it->second.is_boolean()) *out = it->second.get<bool>();
    };
    flag("add_bos_token", &spec_.add_bos);
    flag("add_eos_token", &spec_.add_eos);
    return OkStatus();
  }

  Document document_;
  std::map<std::string, Json> config_;
  bool replaces_space_ = false;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json,
                                         std::string_view tokenizer_config_json) {
  auto document = tokenizer_json::ReadDocument(tokenizer_json);
  if (!document.ok()) return document.status().WithContext("tokenizer.json");
  std::map<std::string, Json> config;
  if (!tokenizer_config_json.empty()) {
    auto members = tokenizer_json::ReadMembers(
        tokenizer_config_json,
        {"bos_token", "eos_token", "pad_token", "unk_token", "add_bos_token", "add_eos_token"});
    if (!members.ok()) return members.status().WithContext("tokenizer_config.json");
    config = std::move(members).value();
  }
  return SpecReader(std::move(document).value(), std::move(config)).Read();
}

}  // namespace pocketlm
