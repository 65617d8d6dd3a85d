// str(), repr() and the number texts.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "chat/interpreter_values.h"
#include "chat/python_format.h"
#include "chat/unicode.h"
#include "chat/value_ops.h"

namespace pocketlm::chat {
namespace {

class ReprWriter {
 public:
  explicit ReprWriter(bool literal) : literal_(literal) {}
  void Write(const Value& value);
  Text Build() { return out_.Build(); }

 private:
  void Put(std::string_view bytes) { out_.AppendBytes(bytes, literal_); }
  void WriteItems(const std::vector<Value>& items);
  void WriteDict(const DictItems& items);
  void WriteView(const DictViewData& view);
  void WriteRange(const RangeData& range);
  void WriteNamespace(const NamespaceData& space);
  void WriteString(const Text& text);
  void WriteChar(std::string_view bytes, char quote);

  bool literal_;
  int depth_ = 0;
  TextBuilder out_;
};

void ReprWriter::WriteItems(const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) Put(", ");
    Write(items[i]);
  }
}

void ReprWriter::WriteDict(const DictItems& items) {
  Put("{");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) Put(", ");
    Write(items[i].first);
    Put(": ");
    Write(items[i].second);
  }
  Put("}");
}

void ReprWriter::WriteView(const DictViewData& view) {
  static constexpr const char* kNames[] = {"dict_keys(", "dict_values(", "dict_items("};
  Put(kNames[static_cast<int>(view.of)]);
  Put("[");
  WriteItems(
      Iterate(Value::Of(Kind::kDictView, std::make_shared<DictViewData>(view.dict, view.of))));
  Put("])");
}

void ReprWriter::WriteRange(const RangeData& range) {
  Put("range(" + FormatInt(range.start) + ", " + FormatInt(range.stop));
  if (range.step != 1) Put(", " + FormatInt(range.step));
  Put(")");
}

void ReprWriter::WriteNamespace(const NamespaceData& space) {
  DictItems items;
  for (const auto& [name, value] : space.attributes) items.emplace_back(Value::String(name), value);
  Put("<Namespace ");
  WriteDict(items);
  Put(">");
}

void ReprWriter::WriteChar(std::string_view bytes, char quote) {
  const DecodedCodepoint c = DecodeUtf8(bytes, 0);
  const uint32_t cp = c.codepoint;
  char escape[12];
  if (cp == static_cast<unsigned char>(quote) || cp == '\\') {
    Put("\\");
    Put(bytes);
  } else if (cp == '\n') {
    Put("\\n");
  } else if (cp == '\r') {
    Put("\\r");
  } else if (cp == '\t') {
    Put("\\t");
  } else if (!c.valid || (CharFlags(cp) & kCharPrintable) != 0) {
    Put(bytes);
  } else {
    std::snprintf(escape, sizeof(escape),
                  cp < 0x100     ? "\\x%02x"
                  : cp < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
                  static_cast<unsigned>(cp));
    Put(escape);
  }
}

void ReprWriter::WriteString(const Text& text) {
  const std::string_view s = text.view();
  if (text.markup()) Put("Markup(");
  const bool has_single = s.find('\'') != std::string_view::npos;
  const char quote = has_single && s.find('"') == std::string_view::npos ? '"' : '\'';
  Put(std::string_view(&quote, 1));
  ChargeSteps(s.size() / 8);
  for (size_t i = 0; i < s.size();) {
    const size_t n = CharSize(s, i);
    WriteChar(s.substr(i, n), quote);
    i += n;
  }
  Put(std::string_view(&quote, 1));
  if (text.markup()) Put(")");
}

void ReprWriter::Write(const Value& value) {
  ChargeSteps(1);
  if (++depth_ > kMaxValueDepth + 50) FailLimit("values are nested too deeply to print");
  switch (value.kind()) {
    case Kind::kUndefined:
      Put("Undefined");
      break;
    case Kind::kNone:
      Put("None");
      break;
    case Kind::kBool:
      Put(value.bool_value() ? "True" : "False");
      break;
    case Kind::kInt:
      Put(FormatInt(value.int_value()));
      break;
    case Kind::kFloat:
      Put(FormatFloat(value.float_value()));
      break;
    case Kind::kString:
      WriteString(value.text());
      break;
    case Kind::kList:
      Put("[");
      WriteItems(value.list().items);
      Put("]");
      break;
    case Kind::kTuple:
      Put("(");
      WriteItems(value.list().items);
      Put(value.list().items.size() == 1 ? ",)" : ")");
      break;
    case Kind::kDict:
      WriteDict(value.dict().items);
      break;
    case Kind::kDictView:
      WriteView(value.view());
      break;
    case Kind::kRange:
      WriteRange(value.range());
      break;
    case Kind::kNamespace:
      WriteNamespace(value.name_space());
      break;
    case Kind::kMacro: {
      const Text name = Repr(Value::String(Text(MacroName(value))));
      Put(MacroName(value).empty() ? "<Macro anonymous>" : "<Macro " + name.bytes() + ">");
      break;
    }
    case Kind::kLoop:
      Put(LoopRepr(value));
      break;
    default:
      FailUnsupported(std::string("cannot print a ") + TypeName(value));
  }
  --depth_;
}

}  // namespace

Text Repr(const Value& value) {
  ReprWriter writer(AnyLiteral(value));
  writer.Write(value);
  return writer.Build();
}

Text Str(const Value& value) {
  if (value.IsString()) return value.text();
  if (value.IsUndefined()) return Text();
  return Repr(value);
}

std::string FormatInt(Int value) {
  if (value == 0) return "0";
  auto rest = static_cast<unsigned __int128>(value);
  if (value < 0) rest = ~rest + 1;
  std::string digits;
  for (; rest != 0; rest /= 10) digits += static_cast<char>('0' + static_cast<int>(rest % 10));
  if (value < 0) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string FormatFloat(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string text(buffer, end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

double RoundFloat(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -310) return std::copysign(0.0, value);
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[800];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                 static_cast<int>(digits))
                       .ptr;
  double rounded = value;
  std::from_chars(buffer, end, rounded);
  return rounded;
}

namespace {

// The ASCII form of a numeric literal: Unicode digits and spaces folded, outer space stripped.
bool FoldNumber(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size();) {
    const DecodedCodepoint c = DecodeUtf8(text, i);
    i += c.size_bytes;
    if (c.codepoint < 0x80) {
      *out += static_cast<char>(c.codepoint);
    } else if (IsSpace(c.codepoint)) {
      *out += ' ';
    } else if ((CharFlags(c.codepoint) & kCharDecimal) != 0) {
      // Decimal digits come in blocks of ten; the start of the block is zero.
      char32_t zero = c.codepoint;
      while (c.codepoint - zero < 9 && (CharFlags(zero - 1) & kCharDecimal) != 0) --zero;
      *out += static_cast<char>('0' + static_cast<int>(c.codepoint - zero));
    } else {
      return false;
    }
  }
  const auto space = [](char ch) { return IsSpace(static_cast<unsigned char>(ch)); };
  while (!out->empty() && space(out->back())) out->pop_back();
  size_t begin = 0;
  while (begin < out->size() && space((*out)[begin])) ++begin;
  out->erase(0, begin);
  return true;
}

// Removes digit-group underscores; false if one is not between digits.
bool DropUnderscores(std::string* s) {
  std::string out;
  for (size_t i = 0; i < s->size(); ++i) {
    if ((*s)[i] != '_') {
      out += (*s)[i];
    } else if (i == 0 || i + 1 == s->size() ||
               std::isalnum(static_cast<unsigned char>((*s)[i - 1])) == 0 ||
               std::isalnum(static_cast<unsigned char>((*s)[i + 1])) == 0) {
      return false;
    }
  }
  *s = out;
  return true;
}

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

}  // namespace

bool ParsePythonInt(std::string_view text, int base, Int* out) {
  std::string s;
  if (!FoldNumber(text, &s) || s.empty()) return false;
  const bool negative = s[0] == '-';
  if (s[0] == '-' || s[0] == '+') s.erase(0, 1);
  if (s.size() > 2 && s[0] == '0') {
    const char p = static_cast<char>(s[1] | 0x20);
    const int prefix = p == 'x' ? 16 : p == 'o' ? 8 : p == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      s.erase(0, s[2] == '_' ? 3 : 2);
      base = prefix;
    }
  }
  if (base == 0) base = 10;
  if (s.empty() || !DropUnderscores(&s)) return false;
  Int value = 0;
  for (const char c : s) {
    if (DigitValue(c) >= base) return false;
    if (value > (Int{1} << 120)) FailUnsupported("integer beyond 128 bits");
    value = value * base + DigitValue(c);
  }
  *out = negative ? -value : value;
  return true;
}

bool ParsePythonFloat(std::string_view text, double* out) {
  std::string s;
  if (!FoldNumber(text, &s) || s.empty() || !DropUnderscores(&s)) return false;
  const bool negative = s[0] == '-';
  if (s[0] == '-' || s[0] == '+') s.erase(0, 1);
  if (s.empty() || s[0] == '-' || s[0] == '+') return false;
  std::string lower = s;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = NAN;
  } else {
    if (std::isalpha(static_cast<unsigned char>(s[0])) != 0) return false;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (end != s.data() + s.size()) return false;
    if (error == std::errc::result_out_of_range) {
      value = lower.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
    } else if (error != std::errc()) {
      return false;
    }
  }
  *out = negative ? -value : value;
  return true;
}

}  // namespace pocketlm::chat
