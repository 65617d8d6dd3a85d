// Python's str methods.
#include <algorithm>

#include "base/utf8.h"
#include "chat/interpreter.h"
#include "chat/python_format.h"
#include "chat/unicode.h"

namespace pocketlm::chat {
namespace {

int64_t OptionalIndex(const std::optional<Value>& value, int64_t missing, const char* what) {
  return value && !value->IsNone() ? AsIndex(*value, what) : missing;
}

// A capital sigma is final after a cased letter and before none.
bool IsFinalSigma(std::string_view s, size_t at, size_t size) {
  bool before = false;
  for (size_t i = 0; i < at;) {
    const DecodedCodepoint c = DecodeUtf8(s, i);
    if ((CharFlags(c.codepoint) & kCharCaseIgnorable) == 0) before = IsCased(c.codepoint);
    i += c.size_bytes;
  }
  if (!before) return false;
  for (size_t i = at + size; i < s.size();) {
    const DecodedCodepoint c = DecodeUtf8(s, i);
    if ((CharFlags(c.codepoint) & kCharCaseIgnorable) == 0) return !IsCased(c.codepoint);
    i += c.size_bytes;
  }
  return true;
}

CaseMapping MappingFor(CaseStyle style, bool first, bool word_start, char32_t codepoint) {
  switch (style) {
    case CaseStyle::kUpper:
      return CaseMapping::kUpper;
    case CaseStyle::kLower:
      return CaseMapping::kLower;
    case CaseStyle::kCapitalize:
      return first ? CaseMapping::kTitle : CaseMapping::kLower;
    case CaseStyle::kTitle:
      return word_start ? CaseMapping::kTitle : CaseMapping::kLower;
    case CaseStyle::kSwap:
      return (CharFlags(codepoint) & kCharUpper) != 0 ? CaseMapping::kLower : CaseMapping::kUpper;
  }
  return CaseMapping::kLower;
}

}  // namespace

Text MapCase(const Text& text, CaseStyle style) {
  TextBuilder out;
  const std::string_view s = text.view();
  ChargeSteps(s.size() / 8);
  bool after_cased = false;
  for (size_t i = 0; i < s.size();) {
    const DecodedCodepoint c = DecodeUtf8(s, i);
    std::string mapped;
    const CaseMapping mapping = MappingFor(style, i == 0, !after_cased, c.codepoint);
    if (!c.valid) {
      mapped = std::string(s.substr(i, c.size_bytes));
    } else if (c.codepoint == 0x3A3 && mapping == CaseMapping::kLower) {
      ChargeSteps(s.size() / 4);
      AppendUtf8(IsFinalSigma(s, i, c.size_bytes) ? 0x3C2 : 0x3C3, &mapped);
    } else if (style != CaseStyle::kSwap || IsCased(c.codepoint)) {
      AppendMapped(c.codepoint, mapping, &mapped);
    } else {
      AppendUtf8(c.codepoint, &mapped);
    }
    out.AppendBytes(mapped, text.LiteralIn(i, i + c.size_bytes));
    after_cased = IsCased(c.codepoint);
    i += c.size_bytes;
  }
  return out.Build(text.markup());
}

Text StripText(const Text& text, const std::optional<Value>& chars, bool left, bool right) {
  const bool spaces = !chars || chars->IsNone();
  const Text set = spaces ? Text() : AsText(*chars, "the characters to strip");
  const std::string_view s = text.view();
  const auto strips = [&](std::string_view one) {
    if (spaces) return IsSpace(DecodeUtf8(one, 0).codepoint);
    return set.view().find(one) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = s.size();
  if (left) {
    while (begin < end && strips(s.substr(begin, CharSize(s, begin)))) begin += CharSize(s, begin);
  }
  if (right) {
    while (end > begin) {
      size_t start = end - 1;
      while (start > begin && (static_cast<unsigned char>(s[start]) & 0xC0) == 0x80) --start;
      if (!strips(s.substr(start, end - start))) break;
      end = start;
    }
  }
  ChargeSteps((begin + s.size() - end) * (1 + set.size()) / 16);
  return text.Slice(begin, end);
}

namespace {

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view s = text.view();
  size_t start = 0;
  for (size_t i = 0; i < s.size();) {
    const DecodedCodepoint c = DecodeUtf8(s, i);
    size_t end = i + c.size_bytes;
    if (IsLineBreak(c.codepoint)) {
      if (c.codepoint == '\r' && end < s.size() && s[end] == '\n') ++end;
      lines.push_back(text.Slice(start, keep_ends ? end : i));
      ChargeSteps(1);
      start = end;
    }
    i = end;
  }
  if (start < s.size()) lines.push_back(text.Slice(start, s.size()));
  return lines;
}

Text ReplaceText(const Text& text, const Text& from, const Text& to, int64_t count) {
  TextBuilder out;
  const std::string_view s = text.view();
  size_t pos = 0;
  if (from.empty()) {
    // Python inserts before every character and at the end.
    while (count != 0) {
      out.Append(to);
      if (count > 0) --count;
      if (pos >= s.size()) return out.Build(text.markup());
      const size_t n = CharSize(s, pos);
      out.Append(text, pos, pos + n);
      pos += n;
      ChargeSteps(1);
    }
  }
  while (count != 0 && !from.empty()) {
    const size_t found = s.find(from.view(), pos);
    if (found == std::string_view::npos) break;
    out.Append(text, pos, found);
    out.Append(to);
    pos = found + from.size();
    if (count > 0) --count;
    ChargeSteps(1);
  }
  out.Append(text, pos, s.size());
  return out.Build(text.markup());
}

namespace {

Value TextList(const std::vector<Text>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const Text& part : parts) items.push_back(Value::String(part));
  return Value::List(std::move(items));
}

std::vector<Text> SplitOnSpace(const Text& text, int64_t limit, bool from_right) {
  // Words first; what the limit leaves over stays joined.
  std::vector<std::pair<size_t, size_t>> words;
  const std::string_view s = text.view();
  size_t start = std::string_view::npos;
  for (size_t i = 0; i < s.size();) {
    const DecodedCodepoint c = DecodeUtf8(s, i);
    if (IsSpace(c.codepoint)) {
      if (start != std::string_view::npos) words.emplace_back(start, i);
      start = std::string_view::npos;
    } else if (start == std::string_view::npos) {
      start = i;
    }
    i += c.size_bytes;
  }
  if (start != std::string_view::npos) words.emplace_back(start, s.size());
  ChargeSteps(words.size());
  const size_t max = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  if (words.size() > max) {
    // The rest keeps the spaces at its outer end.
    const size_t keep = words.size() - max;
    if (from_right) {
      words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(keep) - 1);
      words[0].first = 0;
    } else {
      words[max].second = s.size();
      words.resize(max + 1);
    }
  }
  std::vector<Text> out;
  for (const auto& [begin, end] : words) out.push_back(text.Slice(begin, end));
  return out;
}

std::vector<Text> SplitOnText(const Text& text, const Text& separator, int64_t limit,
                              bool from_right) {
  if (separator.empty()) Fail("empty separator");
  std::vector<Text> out;
  const std::string_view s = text.view();
  size_t pos = from_right ? s.size() : 0;
  while (limit != 0) {
    ChargeSteps(1);
    if (from_right) {
      if (pos < separator.size()) break;
      const size_t found = s.rfind(separator.view(), pos - separator.size());
      if (found == std::string_view::npos) break;
      out.push_back(text.Slice(found + separator.size(), pos));
      pos = found;
    } else {
      const size_t found = s.find(separator.view(), pos);
      if (found == std::string_view::npos) break;
      out.push_back(text.Slice(pos, found));
      pos = found + separator.size();
    }
    if (limit > 0) --limit;
  }
  out.push_back(from_right ? text.Slice(0, pos) : text.Slice(pos, s.size()));
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

Value Split(const Text& self, CallArgs& args, bool from_right) {
  const auto bound = BindArgs("split", args, {"sep", "maxsplit"}, 0);
  const int64_t limit = bound[1] ? AsIndex(*bound[1], "maxsplit") : -1;
  ChargeSteps(self.size() / 16);
  if (!bound[0] || bound[0]->IsNone()) return TextList(SplitOnSpace(self, limit, from_right));
  return TextList(SplitOnText(self, AsText(*bound[0], "separator"), limit, from_right));
}

Value Partition(const Text& self, CallArgs& args, bool from_right) {
  const Text separator = AsText(*BindArgs("partition", args, {"sep"}, 1)[0], "separator");
  if (separator.empty()) Fail("empty separator");
  const size_t found =
      from_right ? self.view().rfind(separator.view()) : self.view().find(separator.view());
  const Value empty = Value::String(Text());
  if (found == std::string_view::npos) {
    return from_right ? Value::Tuple({empty, empty, Value::String(self)})
                      : Value::Tuple({Value::String(self), empty, empty});
  }
  const size_t after = found + separator.size();
  return Value::Tuple({Value::String(self.Slice(0, found)), Value::String(self.Slice(found, after)),
                       Value::String(self.Slice(after, self.size()))});
}

// Byte range of self[start:end] for find, count, startswith; false if start lies beyond the end.
bool SubRange(const Text& self, const std::optional<Value>& start, const std::optional<Value>& end,
              size_t* begin, size_t* stop) {
  const auto length = static_cast<int64_t>(self.char_count());
  int64_t first = OptionalIndex(start, 0, "start");
  int64_t last = OptionalIndex(end, length, "end");
  if (first < 0) first = std::max<int64_t>(first + length, 0);
  if (last < 0) last = std::max<int64_t>(last + length, 0);
  last = std::min(last, length);
  if (first > last) return false;
  *begin = self.ByteOffset(static_cast<size_t>(first));
  *stop = self.ByteOffset(static_cast<size_t>(last));
  return true;
}

Value Affix(const Text& self, CallArgs& args, bool prefix) {
  const auto bound = BindArgs("startswith", args, {"prefix", "start", "end"}, 1);
  size_t begin = 0;
  size_t end = 0;
  const bool inside = SubRange(self, bound[1], bound[2], &begin, &end);
  const std::string_view s = inside ? self.view().substr(begin, end - begin) : std::string_view();
  std::vector<Value> candidates = {*bound[0]};
  if (bound[0]->Is(Kind::kTuple)) candidates = bound[0]->list().items;
  for (const Value& candidate : candidates) {
    const Text affix = AsText(candidate, "prefix or suffix");
    if (!inside || affix.size() > s.size()) continue;
    if (s.substr(prefix ? 0 : s.size() - affix.size(), affix.size()) == affix.view())
      return Value::Bool(true);
  }
  return Value::Bool(false);
}

Value Find(const Text& self, CallArgs& args, bool from_right, bool must) {
  const auto bound = BindArgs("find", args, {"sub", "start", "end"}, 1);
  const Text sub = AsText(*bound[0], "substring");
  size_t begin = 0;
  size_t end = 0;
  size_t found = std::string_view::npos;
  if (SubRange(self, bound[1], bound[2], &begin, &end)) {
    const std::string_view s = self.view().substr(begin, end - begin);
    found = from_right ? s.rfind(sub.view()) : s.find(sub.view());
    ChargeSteps(s.size() / 16);
  }
  if (found == std::string_view::npos) {
    if (must) Fail("substring not found");
    return Value::Integer(-1);
  }
  return Value::Integer(static_cast<Int>(self.Slice(0, begin + found).char_count()));
}

Value Count(const Text& self, CallArgs& args) {
  const auto bound = BindArgs("count", args, {"sub", "start", "end"}, 1);
  const Text sub = AsText(*bound[0], "substring");
  size_t begin = 0;
  size_t end = 0;
  if (!SubRange(self, bound[1], bound[2], &begin, &end)) return Value::Integer(0);
  const Text part = self.Slice(begin, end);
  if (sub.empty()) return Value::Integer(static_cast<Int>(part.char_count()) + 1);
  Int count = 0;
  for (size_t pos = 0; (pos = part.view().find(sub.view(), pos)) != std::string_view::npos;
       pos += sub.size())
    ++count;
  ChargeSteps(part.size() / 16 + static_cast<uint64_t>(count));
  return Value::Integer(count);
}

Value Join(const Text& self, CallArgs& args) {
  const auto bound = BindArgs("join", args, {"iterable"}, 1);
  if (bound[0]->IsUndefined()) return Value::String(Text());
  TextBuilder out;
  bool first = true;
  for (const Value& item : Iterate(*bound[0])) {
    if (!first) out.Append(self);
    first = false;
    if (!item.IsString())
      Fail(std::string("join: expected a string, found '") + TypeName(item) + "'");
    out.Append(item.text());
    ChargeSteps(1);
  }
  return Value::String(out.Build());
}

Value Justify(const Text& self, const std::string& name, CallArgs& args) {
  const auto bound = BindArgs(name.c_str(), args, {"width", "fillchar"}, 1);
  const Text fill = bound[1] ? AsText(*bound[1], "fill character") : Text(std::string(" "));
  if (fill.char_count() != 1) Fail("the fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(self.char_count());
  const int64_t width = AsIndex(*bound[0], "width");
  const int64_t pad = std::max<int64_t>(width - length, 0);
  int64_t left = name == "rjust" ? pad : 0;
  if (name == "center") left = pad / 2 + (pad & width & 1);
  TextBuilder out;
  out.AppendRepeated(fill, static_cast<uint64_t>(left));
  out.Append(self);
  out.AppendRepeated(fill, static_cast<uint64_t>(pad - left));
  return Value::String(out.Build());
}

Value ZeroFill(const Text& self, CallArgs& args) {
  const int64_t width = AsIndex(*BindArgs("zfill", args, {"width"}, 1)[0], "width");
  const int64_t pad = std::max<int64_t>(width - static_cast<int64_t>(self.char_count()), 0);
  const bool has_sign = !self.empty() && (self.bytes()[0] == '+' || self.bytes()[0] == '-');
  TextBuilder out;
  if (has_sign) out.Append(self, 0, 1);
  out.AppendRepeated(Text(std::string("0")), static_cast<uint64_t>(pad));
  out.Append(self, has_sign ? 1 : 0, self.size());
  return Value::String(out.Build());
}

bool AllHave(const Text& self, uint32_t flags) {
  ChargeSteps(self.size() / 8);
  for (size_t i = 0; i < self.size();) {
    const DecodedCodepoint c = DecodeUtf8(self.view(), i);
    if ((CharFlags(c.codepoint) & flags) == 0) return false;
    i += c.size_bytes;
  }
  return true;
}

// islower, isupper: at least one cased character, and none of the other case.
bool IsAllCase(const Text& self, uint32_t wanted) {
  bool any = false;
  const uint32_t refused = (kCharLower | kCharUpper | kCharTitle) & ~wanted;
  for (size_t i = 0; i < self.size();) {
    const DecodedCodepoint c = DecodeUtf8(self.view(), i);
    const uint32_t flags = CharFlags(c.codepoint);
    if ((flags & refused) != 0) return false;
    any = any || (flags & wanted) != 0;
    i += c.size_bytes;
  }
  return any;
}

bool IsTitleCase(const Text& self) {
  bool any = false;
  bool after_cased = false;
  for (size_t i = 0; i < self.size();) {
    const DecodedCodepoint c = DecodeUtf8(self.view(), i);
    const uint32_t flags = CharFlags(c.codepoint);
    if ((flags & (kCharUpper | kCharTitle)) != 0 && after_cased) return false;
    if ((flags & kCharLower) != 0 && !after_cased) return false;
    after_cased = IsCased(c.codepoint);
    any = any || after_cased;
    i += c.size_bytes;
  }
  return any;
}

using Method = Value (*)(const Text& self, CallArgs& args);

void NoArgs(const char* name, CallArgs& args) { BindArgs(name, args, {}, 0); }

template <CaseStyle kStyle>
Value Case(const Text& self, CallArgs& args) {
  NoArgs("case method", args);
  return Value::String(MapCase(self, kStyle));
}

template <bool kLeft, bool kRight>
Value Strip(const Text& self, CallArgs& args) {
  return Value::String(StripText(self, BindArgs("strip", args, {"chars"}, 0)[0], kLeft, kRight));
}

template <uint32_t kFlags>
Value Has(const Text& self, CallArgs& args) {
  NoArgs("is… method", args);
  return Value::Bool(!self.empty() && AllHave(self, kFlags));
}

Value RemoveAffix(const Text& self, CallArgs& args, bool prefix) {
  const Text affix = AsText(*BindArgs("removeprefix", args, {"prefix"}, 1)[0], "prefix or suffix");
  if (affix.size() > self.size() || affix.empty()) return Value::String(self);
  const size_t at = prefix ? 0 : self.size() - affix.size();
  if (self.view().substr(at, affix.size()) != affix.view()) return Value::String(self);
  return Value::String(prefix ? self.Slice(affix.size(), self.size()) : self.Slice(0, at));
}

Value Lines(const Text& self, CallArgs& args) {
  const auto bound = BindArgs("splitlines", args, {"keepends"}, 0);
  return TextList(SplitLines(self, bound[0] && Truthy(*bound[0])));
}

Value Replace(const Text& self, CallArgs& args) {
  const auto bound = BindArgs("replace", args, {"old", "new", "count"}, 2);
  return Value::String(ReplaceText(self, AsText(*bound[0], "old"), AsText(*bound[1], "new"),
                                   OptionalIndex(bound[2], -1, "count")));
}

constexpr std::pair<std::string_view, Method> kMethods[] = {
    {"capitalize", Case<CaseStyle::kCapitalize>},
    {"center", [](const Text& s, CallArgs& a) { return Justify(s, "center", a); }},
    {"count", Count},
    {"endswith", [](const Text& s, CallArgs& a) { return Affix(s, a, false); }},
    {"find", [](const Text& s, CallArgs& a) { return Find(s, a, false, false); }},
    {"format",
     [](const Text& s, CallArgs& a) { return Value::String(StrFormat(s, a.args, a.kwargs)); }},
    {"index", [](const Text& s, CallArgs& a) { return Find(s, a, false, true); }},
    {"isalnum", Has<kCharAlpha | kCharDecimal | kCharDigit | kCharNumeric>},
    {"isalpha", Has<kCharAlpha>},
    {"isascii",
     [](const Text& s, CallArgs& a) { return NoArgs("isascii", a), Value::Bool(s.ascii()); }},
    {"isdecimal", Has<kCharDecimal>},
    {"isdigit", Has<kCharDigit>},
    {"islower",
     [](const Text& s, CallArgs& a) {
       return NoArgs("islower", a), Value::Bool(IsAllCase(s, kCharLower));
     }},
    {"isnumeric", Has<kCharNumeric>},
    {"isprintable",
     [](const Text& s, CallArgs& a) {
       return NoArgs("isprintable", a), Value::Bool(AllHave(s, kCharPrintable));
     }},
    {"isspace", Has<kCharSpace>},
    {"istitle",
     [](const Text& s, CallArgs& a) { return NoArgs("istitle", a), Value::Bool(IsTitleCase(s)); }},
    {"isupper",
     [](const Text& s, CallArgs& a) {
       return NoArgs("isupper", a), Value::Bool(IsAllCase(s, kCharUpper));
     }},
    {"join", Join},
    {"ljust", [](const Text& s, CallArgs& a) { return Justify(s, "ljust", a); }},
    {"lower", Case<CaseStyle::kLower>},
    {"lstrip", Strip<true, false>},
    {"partition", [](const Text& s, CallArgs& a) { return Partition(s, a, false); }},
    {"removeprefix", [](const Text& s, CallArgs& a) { return RemoveAffix(s, a, true); }},
    {"removesuffix", [](const Text& s, CallArgs& a) { return RemoveAffix(s, a, false); }},
    {"replace", Replace},
    {"rfind", [](const Text& s, CallArgs& a) { return Find(s, a, true, false); }},
    {"rindex", [](const Text& s, CallArgs& a) { return Find(s, a, true, true); }},
    {"rjust", [](const Text& s, CallArgs& a) { return Justify(s, "rjust", a); }},
    {"rpartition", [](const Text& s, CallArgs& a) { return Partition(s, a, true); }},
    {"rsplit", [](const Text& s, CallArgs& a) { return Split(s, a, true); }},
    {"rstrip", Strip<false, true>},
    {"split", [](const Text& s, CallArgs& a) { return Split(s, a, false); }},
    {"splitlines", Lines},
    {"startswith", [](const Text& s, CallArgs& a) { return Affix(s, a, true); }},
    {"strip", Strip<true, true>},
    {"swapcase", Case<CaseStyle::kSwap>},
    {"title", Case<CaseStyle::kTitle>},
    {"upper", Case<CaseStyle::kUpper>},
    {"zfill", ZeroFill},
};

const std::pair<std::string_view, Method>* FindMethod(std::string_view name) {
  const auto* it = std::find_if(std::begin(kMethods), std::end(kMethods),
                                [&](const auto& m) { return m.first == name; });
  return it == std::end(kMethods) ? nullptr : it;
}

}  // namespace

bool IsStrMethod(std::string_view name) { return FindMethod(name) != nullptr; }

Value CallStrMethod(const Text& self, const std::string& name, CallArgs& args) {
  const auto* method = FindMethod(name);
  if (method == nullptr) FailUnsupported("str." + name);
  if (self.markup() && name != "strip" && name != "lstrip" && name != "rstrip" && name != "upper" &&
      name != "lower" && name.compare(0, 2, "is") != 0 && name != "startswith" &&
      name != "endswith" && name != "find" && name != "count") {
    FailUnsupported("str." + name + " on text marked safe");
  }
  ChargeSteps(self.size() / 64);
  return method->second(self, args);
}

}  // namespace pocketlm::chat
