#include "base/json.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/quote.h"

namespace pocketlm {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// What a value takes in memory, rounded up: an array that grows by doubling holds old and new for a
// moment, a map node carries its links, every heap block its header.
constexpr uint64_t kArrayElementBytes = 48;
constexpr uint64_t kObjectMemberBytes = 112;
constexpr uint64_t kStringBytes = 48;
constexpr uint64_t kArrayBytes = 48;
constexpr uint64_t kObjectBytes = 80;
constexpr size_t kShortStringBytes = 15;

// Puts the value of `name` into an object and returns where. An ordered object appends without a search, which
// would make long objects quadratic; MergeDuplicates cleans up when the object is complete.
json* AddMember(json::object_t& object, const std::string& name) { return &object[name]; }
ordered_json* AddMember(ordered_json::object_t& object, const std::string& name) {
  using Members =
      std::vector<ordered_json::object_t::value_type, ordered_json::object_t::allocator_type>;
  return &static_cast<Members&>(object).emplace_back(name, ordered_json()).second;
}

// Of equal keys keeps the place of the first and the value of the last, as Python does.
void MergeDuplicates(json::object_t&) {}
void MergeDuplicates(ordered_json::object_t& object) {
  std::vector<size_t> order(object.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto key = [&](size_t i) -> const std::string& {
    return (object.begin() + static_cast<ptrdiff_t>(i))->first;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<bool> drop(order.size());
  bool any = false;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && key(order[end]) == key(order[begin]))
      drop[order[end++]] = any = true;
    if (end - begin > 1) {
      (object.begin() + static_cast<ptrdiff_t>(order[begin]))->second =
          std::move((object.begin() + static_cast<ptrdiff_t>(order[end - 1]))->second);
    }
    begin = end;
  }
  if (!any) return;
  ordered_json::object_t kept;
  for (size_t i = 0; i < drop.size(); ++i) {
    auto& member = *(object.begin() + static_cast<ptrdiff_t>(i));
    if (!drop[i]) *AddMember(kept, member.first) = std::move(member.second);
  }
  object = std::move(kept);
}

// Builds the DOM from nlohmann's parser events. A method that returns false stops the parser;
// error() then says why.
template <typename Json>
class DomBuilder {
 public:
  DomBuilder(const JsonLimits& limits, std::string_view text)
      : limits_(limits),
        text_(text),
        budget_bytes_(limits.fixed_memory_bytes + limits.memory_factor * text.size()) {}

  bool null() { return Add(Json(nullptr), 0); }
  bool boolean(bool value) { return Add(Json(value), 0); }
  bool number_integer(typename Json::number_integer_t value) { return Add(Json(value), 0); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return Add(Json(value), 0); }
  bool number_float(typename Json::number_float_t value, const std::string&) {
    return Add(Json(value), 0);
  }
  bool binary(typename Json::binary_t&) { return Fail("binary value"); }

  bool string(std::string& value) {
    const uint64_t bytes = kStringBytes + HeapBytes(value);
    return Add(Json(value), bytes);
  }

  bool key(std::string& name) {
    if (!Charge(kObjectMemberBytes + HeapBytes(name))) return false;
    member_ = AddMember(open_.back()->template get_ref<typename Json::object_t&>(), name);
    return true;
  }

  bool start_object(size_t) { return Open(Json::object(), kObjectBytes); }
  bool start_array(size_t) { return Open(Json::array(), kArrayBytes); }
  bool end_object() {
    MergeDuplicates(open_.back()->template get_ref<typename Json::object_t&>());
    return Close();
  }
  bool end_array() { return Close(); }

  bool parse_error(size_t position, const std::string&, const json::exception& exception) {
    return Fail(JsonErrorText(text_, position, exception));
  }

  Json TakeRoot() { return std::move(root_); }
  const std::string& error() const { return error_; }

 private:
  static uint64_t HeapBytes(const std::string& text) {
    return text.size() > kShortStringBytes ? text.size() + 17 : 0;
  }

  bool Fail(std::string reason) {
    error_ = std::move(reason);
    return false;
  }

  bool Charge(uint64_t bytes) {
    if (bytes > budget_bytes_) {
      return Fail("too many small values for its length (the DOM would be over " +
                  std::to_string(limits_.memory_factor) + " times as large)");
    }
    budget_bytes_ -= bytes;
    return true;
  }

  // Puts a value where the parser stands: the root, the end of an array, the member of the last key.
  bool Add(Json value, uint64_t bytes) {
    const bool in_array = !open_.empty() && open_.back()->is_array();
    if (!Charge(bytes + (in_array ? kArrayElementBytes : 0))) return false;
    if (in_array) {
      auto& array = open_.back()->template get_ref<typename Json::array_t&>();
      array.push_back(std::move(value));
      last_ = &array.back();
    } else {
      last_ = open_.empty() ? &root_ : member_;
      *last_ = std::move(value);
    }
    return true;
  }

  bool Open(Json container, uint64_t bytes) {
    if (open_.size() >= static_cast<size_t>(std::max(limits_.max_depth, 0))) {
      return Fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    if (!Add(std::move(container), bytes)) return false;
    open_.push_back(last_);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::string_view text_;
  uint64_t budget_bytes_;
  Json root_;
  std::vector<Json*> open_;  // containers around the parser's position, outermost first
  Json* member_ = nullptr;   // value of the last key
  Json* last_ = nullptr;     // the value added last
  std::string error_;
};

template <typename Json>
Result<Json> ParseInto(std::string_view text, const JsonLimits& limits) {
  POCKETLM_RETURN_IF_ERROR(CheckJsonTokens(text, limits.max_token_bytes));
  DomBuilder<Json> builder(limits, text);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return DataError("JSON: " + builder.error());
  }
  return builder.TakeRoot();
}

template <typename Json>
Result<Json> ParseAny(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return DataError("JSON: expected at most " + std::to_string(limits.max_bytes) + " bytes, got " +
                     std::to_string(text.size()));
  }
  try {
    return ParseInto<Json>(SkipByteOrderMark(text), limits);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("JSON: no memory for a text of " + std::to_string(text.size()) + " bytes");
  } catch (const json::exception& exception) {
    return DataError(std::string("JSON: ") + exception.what());
  }
}

}  // namespace

Status CheckJsonTokens(std::string_view text, uint64_t max_bytes) {
  constexpr std::string_view kBetweenTokens = " \t\r\n,:[]{}";
  size_t begin = 0;  // of the token that text[i] belongs to
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      in_string = !in_string;
      begin = i + 1;
    } else if (in_string && text[i] == '\\') {
      ++i;
    } else if (!in_string && kBetweenTokens.find(text[i]) != std::string_view::npos) {
      begin = i + 1;
    }
    if (i >= begin && i - begin >= max_bytes) {
      return DataError("JSON: " + LineAndColumn(text, begin) + ": a string or number over " +
                       std::to_string(max_bytes) + " bytes");
    }
  }
  if (in_string) return DataError("JSON: " + LineAndColumn(text, begin) + ": a string without end");
  return OkStatus();
}

std::string_view SkipByteOrderMark(std::string_view text) {
  return text.substr(0, 3) == "\xEF\xBB\xBF" ? text.substr(3) : text;
}

std::string JsonErrorText(std::string_view text, size_t position, const std::exception& error) {
  // "[json.exception…] parse error at line 1, column 2: <reason>; last read: '<token>'"
  std::string_view reason = error.what();
  const size_t column = reason.find(", column ");
  const size_t colon = column == std::string_view::npos ? column : reason.find(": ", column);
  if (colon != std::string_view::npos) reason = reason.substr(colon + 2);
  reason = reason.substr(0, reason.find("; last read"));
  constexpr size_t kMaxReasonBytes = 160;
  return LineAndColumn(text, position > 0 ? position - 1 : 0) + ": " +
         Shorten(reason, kMaxReasonBytes);
}

std::string LineAndColumn(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t newline = before.rfind('\n');
  const size_t column =
      newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

Result<json> ParseJson(std::string_view text, const JsonLimits& limits) {
  return ParseAny<json>(text, limits);
}

Result<ordered_json> ParseOrderedJson(std::string_view text, const JsonLimits& limits) {
  return ParseAny<ordered_json>(text, limits);
}

}  // namespace pocketlm
