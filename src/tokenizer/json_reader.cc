#include "tokenizer/json_reader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/quote.h"

namespace pocketlm::tokenizer_json {
namespace {

constexpr size_t kMaxDepth = 64;
// JSON values in all small sections together; real files have some hundred.
constexpr size_t kMaxSectionValues = 20000;
constexpr size_t kMaxAddedTokenValues = 64;             // in one entry
constexpr uint64_t kMaxTokenBytes = uint64_t{4} << 20;  // a chat template, at the most
constexpr uint32_t kMaxId = 1u << 24;

// Builds a JSON value from events. Parents stay where they are while a child is open.
class ValueBuilder {
 public:
  void Start(size_t max_values) {
    value_ = Json();
    open_.clear();
    values_left_ = max_values;
  }
  // False if the value has grown too large.
  bool Add(Json value, bool open) {
    if (values_left_-- == 0) return false;
    Json* slot = &value_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      slot = &open_.back()->back();
    } else if (!open_.empty()) {
      slot = &(*open_.back())[key_];
    }
    *slot = std::move(value);
    if (open) open_.push_back(slot);
    return true;
  }
  void Key(std::string key) { key_ = std::move(key); }
  void Close() { open_.pop_back(); }
  bool complete() const { return open_.empty(); }
  Json Take() { return std::move(value_); }

 private:
  Json value_;
  std::vector<Json*> open_;
  std::string key_;
  size_t values_left_ = 0;
};

// Events of nlohmann's parser. The base passes over everything but the wanted members of the top object.
class MemberReader : public nlohmann::json_sax<Json> {
 public:
  // `text` is what the parser reads; it must outlive the reader.
  MemberReader(std::string_view text, std::vector<std::string> names)
      : text_(text), names_(std::move(names)) {}

  std::map<std::string, Json> TakeMembers() { return std::move(members_); }
  const std::string& error() const { return error_; }

  bool null() override { return Value(Json()); }
  bool boolean(bool v) override { return Value(Json(v)); }
  bool number_integer(number_integer_t v) override { return Value(Json(v)); }
  bool number_unsigned(number_unsigned_t v) override { return Value(Json(v)); }
  bool number_float(number_float_t v, const string_t&) override { return Value(Json(v)); }
  bool binary(binary_t&) override { return Fail("binary value"); }
  bool string(string_t& v) override {
    if (capturing_) return Captured(Json(std::move(v)), false);
    if (skipping_ > 0) return true;
    if (Wanted()) return Capture(Json(std::move(v)), false, kMaxSectionValues);
    return OnString(v);
  }
  bool key(string_t& v) override {
    if (capturing_) {
      builder_.Key(std::move(v));
    } else if (skipping_ == 0) {
      key_ = std::move(v);
    }
    return true;
  }
  bool start_object(size_t) override { return Open(Json::object(), true); }
  bool start_array(size_t) override { return Open(Json::array(), false); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& e) override {
    return Fail("JSON: " + JsonErrorText(text_, position, e));
  }

 protected:
  // Events outside sections and passed-over parts. `depth()` counts open objects and arrays, the one just
  // opened included. OnOpen may call Skip() or Capture().
  virtual bool OnOpen(bool is_object) {
    if (depth_ == 1 && !is_object) return Fail("expected an object");
    if (depth_ > 1) Skip();
    return true;
  }
  virtual bool OnClose() { return true; }
  virtual bool OnString(std::string&) { return depth_ > 0 || Fail("expected an object"); }
  virtual bool OnScalar(const Json&) { return depth_ > 0 || Fail("expected an object"); }
  virtual bool OnCaptured(Json value) {
    members_[key_] = std::move(value);
    return true;
  }

  void Skip() { skipping_ = 1; }
  bool Capture(Json value, bool open, size_t max_values) {
    builder_.Start(max_values);
    capturing_ = true;
    return Captured(std::move(value), open);
  }
  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  size_t depth() const { return depth_; }
  const std::string& member() const { return key_; }

 private:
  bool Wanted() const {
    return wanted_depth_ == depth_ && std::find(names_.begin(), names_.end(), key_) != names_.end();
  }
  bool Captured(Json value, bool open) {
    if (!builder_.Add(std::move(value), open)) return Fail(Quote(key_) + " is too large");
    if (!builder_.complete()) return true;
    capturing_ = false;
    return OnCaptured(builder_.Take());
  }
  bool Value(Json value) {
    if (capturing_) return Captured(std::move(value), false);
    if (skipping_ > 0) return true;
    if (Wanted()) return Capture(std::move(value), false, kMaxSectionValues);
    return OnScalar(value);
  }
  bool Open(Json value, bool is_object) {
    if (depth_ == kMaxDepth)
      return Fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    const bool wanted = Wanted();
    ++depth_;
    if (capturing_) return Captured(std::move(value), true);
    if (skipping_ > 0) {
      ++skipping_;
      return true;
    }
    if (wanted) return Capture(std::move(value), true, kMaxSectionValues);
    return OnOpen(is_object);
  }
  bool Close() {
    --depth_;
    if (capturing_) {
      builder_.Close();
      if (!builder_.complete()) return true;
      capturing_ = false;
      return OnCaptured(builder_.Take());
    }
    if (skipping_ > 0) {
      --skipping_;
      return true;
    }
    return OnClose();
  }

  static constexpr size_t wanted_depth_ = 1;
  std::string_view text_;
  std::vector<std::string> names_;
  std::map<std::string, Json> members_;
  std::string key_, error_;
  ValueBuilder builder_;
  bool capturing_ = false;
  size_t skipping_ = 0, depth_ = 0;
};

// Adds what a tokenizer.json has beside its sections: added tokens, and the model with vocabulary and merges.
class DocumentReader : public MemberReader {
 public:
  explicit DocumentReader(std::string_view text)
      : MemberReader(text, {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {}

  Document Take() {
    document_.sections = TakeMembers();
    return std::move(document_);
  }

 protected:
  enum class State { kTop, kRoot, kAdded, kModel, kVocab, kMerges, kPair };

  bool OnOpen(bool is_object) override {
    switch (state_) {
      case State::kTop:
        return is_object ? Enter(State::kRoot) : Fail("expected an object");
      case State::kRoot:
        if (member() == "added_tokens") return is_object ? AddedNoList() : Enter(State::kAdded);
        if (member() == "model" && is_object) {
          document_.has_model = true;
          return Enter(State::kModel);
        }
        Skip();
        return true;
      case State::kAdded:
        return is_object ? Capture(Json::object(), true, kMaxAddedTokenValues)
                         : Fail("added_tokens: expected objects");
      case State::kModel:
        if (member() == "vocab" && is_object) return Enter(State::kVocab);
        if (member() == "merges" && !is_object) {
          document_.has_merges = true;
          return Enter(State::kMerges);
        }
        document_.vocab_is_list |= member() == "vocab";
        Skip();
        return AddModelMember(is_object ? Json::object() : Json::array());  // its type tells
      case State::kMerges:
        parts_.clear();
        return is_object ? Fail("merges: expected strings or pairs") : Enter(State::kPair);
      case State::kVocab:
      case State::kPair:
        break;
    }
    return Fail("model: a list where a value belongs");
  }

  bool OnClose() override {
    if (state_ == State::kPair) {
      if (parts_.size() != 2) return Fail("merges: expected pairs of tokens");
      if (!AddMerge(parts_[0], parts_[1])) return false;
    }
    switch (state_) {
      case State::kPair:
        return Enter(State::kMerges);
      case State::kVocab:
      case State::kMerges:
        return Enter(State::kModel);
      case State::kAdded:
      case State::kModel:
        return Enter(State::kRoot);
      case State::kRoot:
      case State::kTop:
        break;
    }
    return Enter(State::kTop);
  }

  bool OnString(std::string& v) override {
    switch (state_) {
      case State::kPair:
        if (parts_.size() == 2) return Fail("merges: expected pairs of tokens");
        parts_.push_back(std::move(v));
        return true;
      case State::kMerges:
        return AddLegacyMerge(v);
      case State::kModel:
        return AddModelMember(Json(std::move(v)));
      case State::kRoot:
        return member() == "added_tokens" ? AddedNoList() : true;
      default:
        return Fail("a string where another value belongs");
    }
  }

  bool OnScalar(const Json& v) override {
    if (state_ == State::kRoot) return member() == "added_tokens" ? AddedNoList() : true;
    if (state_ == State::kModel) return AddModelMember(v);
    if (state_ != State::kVocab) return Fail("a number or literal where another value belongs");
    if (!v.is_number_unsigned() || v.get<uint64_t>() >= kMaxId) {
      return Fail("vocab: the id of " + Quote(member()) + " is out of range");
    }
    document_.vocab.push_back(member());
    document_.vocab_ids.push_back(v.get<uint32_t>());
    return true;
  }

  bool OnCaptured(Json value) override {
    if (state_ != State::kAdded) return MemberReader::OnCaptured(std::move(value));
    AddedTokenEntry entry;
    const auto content = value.find("content");
    const auto id = value.find("id");
    if (content == value.end() || !content->is_string() || id == value.end() ||
        !id->is_number_unsigned() || id->get<uint64_t>() >= kMaxId) {
      return Fail("added_tokens: expected content and id, got " +
                  Shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    entry.content = content->get<std::string>();
    entry.id = id->get<int64_t>();
    const std::pair<const char*, bool*> flags[] = {{"lstrip", &entry.lstrip},
                                                   {"rstrip", &entry.rstrip},
                                                   {"single_word", &entry.single_word},
                                                   {"normalized", &entry.normalized},
                                                   {"special", &entry.special}};
    for (const auto& [name, out] : flags) {
      const auto it = value.find(name);
      if (it == value.end()) continue;
      if (!it->is_boolean()) {
        return Fail("added_tokens: " + Quote(entry.content) + ": " + name +
                    ": expected true or false");
      }
      *out = it->get<bool>();
    }
    document_.added.push_back(std::move(entry));
    return true;
  }

 private:
  bool Enter(State state) {
    state_ = state;
    return true;
  }

  bool AddedNoList() { return Fail("added_tokens: expected a list"); }

  bool AddModelMember(Json value) {
    if (document_.model.size() > 100) return Fail("model: too many members");
    document_.model[member()] = std::move(value);
    return true;
  }

  bool AddMerge(const std::string& left, const std::string& right) {
    if (left.empty() || right.empty() || left.find('\0') != std::string::npos ||
        right.find('\0') != std::string::npos) {
      return Fail("merges: an empty part, or one with U+0000");
    }
    const bool has_space =
        left.find(' ') != std::string::npos || right.find(' ') != std::string::npos;
    document_.merges.push_back(left + (has_space ? '\0' : ' ') + right);
    return true;
  }

  // The form before version 0.20: one string, and lines of a merges.txt header.
  bool AddLegacyMerge(std::string& line) {
    if (line.rfind("#version", 0) == 0) return true;
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos || line.find('\0') != std::string::npos) {
      return Fail("merges: expected 'left right', got " + Quote(line));
    }
    document_.merges.push_back(std::move(line));
    return true;
  }

  State state_ = State::kTop;
  Document document_;
  std::vector<std::string> parts_;
};

Status Parse(std::string_view text, MemberReader* reader) {
  POCKETLM_RETURN_IF_ERROR(CheckJsonTokens(text, kMaxTokenBytes));
  try {
    if (Json::sax_parse(text.begin(), text.end(), reader)) return OkStatus();
    return DataError(reader->error().empty() ? "malformed JSON" : reader->error());
  } catch (const std::bad_alloc&) {
    return OutOfMemory("not enough memory");
  } catch (const std::exception& e) {
    return DataError(e.what());
  }
}

}  // namespace

Result<Document> ReadDocument(std::string_view text) {
  DocumentReader reader(text);
  POCKETLM_RETURN_IF_ERROR(Parse(text, &reader));
  return reader.Take();
}

Result<std::map<std::string, Json>> ReadMembers(std::string_view text,
                                                const std::vector<std::string>& names) {
  MemberReader reader(text, names);
  POCKETLM_RETURN_IF_ERROR(Parse(text, &reader));
  return reader.TakeMembers();
}

}  // namespace pocketlm::tokenizer_json
