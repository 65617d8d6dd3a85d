// The % operator and str.format().
#include "chat/python_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/utf8.h"
#include "chat/value_ops.h"

namespace pocketlm::chat {
namespace {

constexpr int64_t kMaxPrecision = 500;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > = ^, 0: by type
  char sign = '-';
  bool alternate = false;
  char group = 0;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// Sign, digits without sign, and what the spec says about padding between them.
struct Number {
  std::string sign;
  std::string prefix;
  std::string digits;
};

std::string ToBase(Int value, int base, bool upper) {
  auto rest = static_cast<unsigned __int128>(value);
  std::string out;
  do {
    const int digit = static_cast<int>(rest % static_cast<unsigned>(base));
    out += digit < 10 ? static_cast<char>('0' + digit)
                      : static_cast<char>((upper ? 'A' : 'a') + digit - 10);
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string SignText(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' ? "+" : sign == ' ' ? " " : "";
}

Number FormatInteger(Int value, const Spec& spec) {
  Number n;
  n.sign = SignText(value < 0, spec.sign);
  if (value < 0) value = -value;
  switch (spec.type) {
    case 'x':
      n.digits = ToBase(value, 16, false);
      break;
    case 'X':
      n.digits = ToBase(value, 16, true);
      break;
    case 'o':
      n.digits = ToBase(value, 8, false);
      break;
    case 'b':
      n.digits = ToBase(value, 2, false);
      break;
    default:
      n.digits = ToBase(value, 10, false);
      break;
  }
  if (spec.alternate &&
      (spec.type == 'x' || spec.type == 'X' || spec.type == 'o' || spec.type == 'b')) {
    n.prefix = std::string("0") + spec.type;
  }
  return n;
}

std::string FloatDigits(double value, char type, int precision) {
  std::string buffer(static_cast<size_t>(precision) + 360, '\0');
  const char lower = static_cast<char>(type | 0x20);
  const auto format = lower == 'e'   ? std::chars_format::scientific
                      : lower == 'f' ? std::chars_format::fixed
                                     : std::chars_format::general;
  if (lower == 'g' && precision == 0) precision = 1;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  buffer.resize(static_cast<size_t>(end.ptr - buffer.data()));
  return buffer;
}

Number FormatReal(double value, const Spec& spec) {
  Number n;
  n.sign = SignText(std::signbit(value) && !std::isnan(value), spec.sign);
  value = std::fabs(value);
  if (!std::isfinite(value)) {
    n.digits = std::isnan(value) ? "nan" : "inf";
  } else if (spec.type == '%') {
    n.digits =
        FloatDigits(value * 100, 'f', static_cast<int>(spec.precision < 0 ? 6 : spec.precision));
  } else if (spec.type == 0 && spec.precision < 0) {
    n.digits = FormatFloat(value);
  } else if (spec.type == 0) {
    // Like g, but one digit after the point stays, and the exponent starts one digit earlier.
    n.digits = FloatDigits(value, 'g', static_cast<int>(spec.precision));
    const double bound =
        std::pow(10.0, static_cast<double>(std::max<int64_t>(spec.precision, 1)) - 1);
    if (n.digits.find_first_of(".e") == std::string::npos) {
      n.digits =
          value >= bound
              ? FloatDigits(value, 'e', static_cast<int>(std::max<int64_t>(spec.precision, 1)) - 1)
              : n.digits + ".0";
    }
  } else {
    n.digits =
        FloatDigits(value, spec.type, static_cast<int>(spec.precision < 0 ? 6 : spec.precision));
  }
  if (spec.type == '%') n.digits += '%';
  if (spec.type == 'F' || spec.type == 'E' || spec.type == 'G') {
    for (char& c : n.digits) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return n;
}

void GroupDigits(std::string* digits, char group) {
  size_t end = 0;
  while (end < digits->size() && std::isdigit(static_cast<unsigned char>((*digits)[end])) != 0)
    ++end;
  for (size_t i = end; i > 3; i -= 3) digits->insert(i - 3, 1, group);
}

void AppendPadding(TextBuilder* out, const std::string& fill, int64_t count) {
  if (count > 0) out->AppendRepeated(Text(fill), static_cast<uint64_t>(count));
}

void AppendNumber(TextBuilder* out, Number number, const Spec& spec, bool literal) {
  if (spec.group != 0) GroupDigits(&number.digits, spec.group);
  const int64_t used =
      static_cast<int64_t>(number.sign.size() + number.prefix.size() + number.digits.size());
  const int64_t pad = spec.width - used;
  const char align = spec.align == 0 ? '>' : spec.align;
  if (spec.group != 0 && align == '=' && pad > 0)
    FailUnsupported("format: zero padding with digit groups");
  const int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  AppendPadding(out, spec.fill, left);
  out->AppendBytes(number.sign + number.prefix, literal);
  if (align == '=') AppendPadding(out, spec.fill, pad);
  out->AppendBytes(number.digits, literal);
  if (align == '<') AppendPadding(out, spec.fill, pad);
  if (align == '^') AppendPadding(out, spec.fill, pad - left);
}

void AppendText(TextBuilder* out, const Text& text, const Spec& spec) {
  const size_t limit = spec.precision < 0 ? text.char_count() : static_cast<size_t>(spec.precision);
  const size_t end = text.ByteOffset(limit);
  const int64_t pad = spec.width - static_cast<int64_t>(std::min(limit, text.char_count()));
  const char align = spec.align == 0 ? '<' : spec.align;
  const int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
  AppendPadding(out, spec.fill, left);
  out->Append(text, 0, end);
  if (align != '>') AppendPadding(out, spec.fill, pad - std::max<int64_t>(left, 0));
}

Text AsciiOnly(const Text& repr) {
  TextBuilder out;
  for (size_t i = 0; i < repr.size();) {
    const DecodedCodepoint c = DecodeUtf8(repr.view(), i);
    char buffer[12];
    const auto cp = static_cast<unsigned>(c.codepoint);
    if (cp < 0x80) {
      out.Append(repr, i, i + 1);
    } else {
      std::snprintf(buffer, sizeof(buffer),
                    cp < 0x100     ? "\\x%02x"
                    : cp < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                    cp);
      out.AppendBytes(buffer, repr.LiteralIn(i, i + c.size_bytes));
    }
    i += c.size_bytes;
  }
  return out.Build();
}

int64_t ReadNumber(std::string_view s, size_t* pos) {
  int64_t value = -1;
  while (*pos < s.size() && s[*pos] >= '0' && s[*pos] <= '9') {
    value = std::min<int64_t>((value < 0 ? 0 : value) * 10 + (s[*pos] - '0'), int64_t{1} << 40);
    ++*pos;
  }
  return value;
}

// One run of format % args.
class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& args) : format_(format), args_(args) {
    if (args.Is(Kind::kTuple)) {
      positional_ = args.list().items;
    } else {
      positional_ = {args};
    }
  }

  Text Run() {
    const std::string_view s = format_.view();
    while (pos_ < s.size()) {
      const size_t percent = std::min(s.find('%', pos_), s.size());
      out_.Append(format_, pos_, percent);
      pos_ = percent + 1;
      if (percent < s.size()) Directive(percent);
    }
    const bool lenient = !args_.Is(Kind::kTuple) && !args_.IsString() &&
                         (args_.Is(Kind::kDict) || args_.Is(Kind::kList) || args_.IsUndefined() ||
                          args_.Is(Kind::kRange));
    if (next_ < positional_.size() && !used_mapping_ && !lenient) {
      Fail("not all arguments converted during string formatting");
    }
    return out_.Build(format_.markup());
  }

 private:
  Value NextArg() {
    if (next_ >= positional_.size()) Fail("not enough arguments for format string");
    return positional_[next_++];
  }

  int64_t StarOrNumber(std::string_view s) {
    if (pos_ < s.size() && s[pos_] == '*') {
      ++pos_;
      return AsIndex(NextArg(), "* in a format");
    }
    return ReadNumber(s, &pos_);
  }

  void Directive(size_t begin) {
    const std::string_view s = format_.view();
    bool mapped = false;
    Value value;
    if (pos_ < s.size() && s[pos_] == '(') {
      const size_t close = s.find(')', pos_);
      if (close == std::string_view::npos) Fail("incomplete format key");
      if (!args_.Is(Kind::kDict)) Fail("format requires a mapping");
      const Value* found = args_.dict().Find(s.substr(pos_ + 1, close - pos_ - 1));
      if (found == nullptr)
        Fail("format key not found: " + std::string(s.substr(pos_ + 1, close - pos_ - 1)));
      value = *found;
      mapped = used_mapping_ = true;
      pos_ = close + 1;
    }
    Spec spec;
    bool zero = false;
    for (; pos_ < s.size() && std::string_view("-+ #0").find(s[pos_]) != std::string_view::npos;
         ++pos_) {
      if (s[pos_] == '-') spec.align = '<';
      if (s[pos_] == '+') spec.sign = '+';
      if (s[pos_] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (s[pos_] == '#') spec.alternate = true;
      if (s[pos_] == '0') zero = true;
    }
    spec.width = StarOrNumber(s);
    if (pos_ < s.size() && s[pos_] == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(StarOrNumber(s), 0);
    }
    while (pos_ < s.size() && (s[pos_] == 'l' || s[pos_] == 'h' || s[pos_] == 'L')) ++pos_;
    if (pos_ >= s.size()) Fail("incomplete format");
    spec.type = s[pos_++];
    if (spec.type == '%') return out_.Append(format_, begin, begin + 1);
    Convert(mapped ? value : NextArg(), spec, zero);
  }

  void Convert(const Value& value, Spec spec, bool zero) {
    if (spec.type == 's') return AppendRight(Str(value), spec);
    if (spec.type == 'r') return AppendRight(Repr(value), spec);
    if (spec.type == 'a') return AppendRight(AsciiOnly(Repr(value)), spec);
    if (std::string_view("diuxXofFeEgG").find(spec.type) == std::string_view::npos) {
      FailUnsupported(std::string("format character '") + spec.type + "'");
    }
    if (spec.precision > kMaxPrecision) FailLimit("format: precision too large");
    if (!value.IsNumber()) Fail(std::string("a number is required, not '") + TypeName(value) + "'");
    const bool real = std::string_view("fFeEgG").find(spec.type) != std::string_view::npos;
    if (!real && value.Is(Kind::kFloat) &&
        std::string_view("xXo").find(spec.type) != std::string_view::npos) {
      Fail("an integer is required");
    }
    if (zero && spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
    if (real) return AppendNumber(&out_, FormatReal(value.AsDouble(), spec), spec, value.literal());
    if (value.Is(Kind::kFloat) && !(std::fabs(value.float_value()) < 1e37))
      Fail("cannot convert to an integer");
    const Int integer =
        value.Is(Kind::kFloat) ? static_cast<Int>(value.float_value()) : value.int_value();
    Number number = FormatInteger(integer, spec);
    if (spec.precision > static_cast<int64_t>(number.digits.size())) {
      number.digits.insert(0, static_cast<size_t>(spec.precision) - number.digits.size(), '0');
    }
    AppendNumber(&out_, std::move(number), spec, value.literal());
  }

  void AppendRight(const Text& text, Spec spec) {
    if (spec.align == 0) spec.align = '>';
    AppendText(&out_, text, spec);
  }

  const Text& format_;
  const Value& args_;
  std::vector<Value> positional_;
  size_t next_ = 0;
  size_t pos_ = 0;
  bool used_mapping_ = false;
  TextBuilder out_;
};

Spec ParseFormatSpec(std::string_view s) {
  Spec spec;
  size_t pos = 0;
  const auto is_align = [&](size_t at) {
    return at < s.size() && std::string_view("<>=^").find(s[at]) != std::string_view::npos;
  };
  if (!s.empty() && is_align(CharSize(s, 0))) {
    spec.fill = std::string(s.substr(0, CharSize(s, 0)));
    spec.align = s[CharSize(s, 0)];
    pos = CharSize(s, 0) + 1;
  } else if (is_align(0)) {
    spec.align = s[pos++];
  }
  if (pos < s.size() && (s[pos] == '+' || s[pos] == '-' || s[pos] == ' ')) spec.sign = s[pos++];
  if (pos < s.size() && s[pos] == '#') spec.alternate = s[pos++] == '#';
  if (pos < s.size() && s[pos] == '0') {
    ++pos;
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill = "0";
    }
  }
  spec.width = std::max<int64_t>(ReadNumber(s, &pos), 0);
  if (pos < s.size() && (s[pos] == ',' || s[pos] == '_')) spec.group = s[pos++];
  if (pos < s.size() && s[pos] == '.') {
    ++pos;
    spec.precision = ReadNumber(s, &pos);
    if (spec.precision < 0) Fail("format: missing precision");
  }
  if (pos < s.size()) spec.type = s[pos++];
  if (pos != s.size()) Fail("format: invalid specification '" + std::string(s) + "'");
  return spec;
}

void FormatValue(TextBuilder* out, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return out->Append(Str(value));
  Spec spec = ParseFormatSpec(spec_text);
  if (spec.precision > kMaxPrecision && !value.IsString()) FailLimit("format: precision too large");
  if (value.IsString()) {
    if ((spec.type != 's' && spec.type != 0) || spec.align == '=' || spec.sign != '-') {
      if (spec.fill != "0" || spec.align != '=' || spec.type != 0)
        Fail("format: specification does not fit a string");
      spec.align = '<';
    }
    if (spec.group != 0) Fail("format: specification does not fit a string");
    return AppendText(out, value.text(), spec);
  }
  if (!value.IsNumber())
    Fail(std::string("format: unsupported specification for '") + TypeName(value) + "'");
  const bool integer_type =
      std::string_view("bdoxX").find(spec.type) != std::string_view::npos && spec.type != 0;
  const bool real_type =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != 0;
  if (spec.type != 0 && !integer_type && !real_type) Fail("format: unknown format code");
  if (value.Is(Kind::kFloat) && integer_type) Fail("format: unknown format code for a float");
  const bool real = real_type || value.Is(Kind::kFloat);
  if (!real && spec.precision >= 0) Fail("format: precision not allowed for an integer");
  AppendNumber(out,
               real ? FormatReal(value.AsDouble(), spec) : FormatInteger(value.int_value(), spec),
               spec, value.literal());
}

}  // namespace

Text PercentFormat(const Text& format, const Value& args) {
  return PercentFormatter(format, args).Run();
}

namespace {

// One {field} of str.format, without the braces.
struct Field {
  std::string name;
  char conversion = 0;
  std::string spec;
};

Field ParseField(std::string_view body) {
  Field field;
  const size_t end = std::min(body.find_first_of("!:"), body.size());
  field.name = std::string(body.substr(0, end));
  size_t pos = end;
  if (pos < body.size() && body[pos] == '!') {
    if (pos + 1 >= body.size()) Fail("format: end of string while looking for conversion");
    field.conversion = body[pos + 1];
    pos += 2;
    if (pos < body.size() && body[pos] != ':') Fail("format: expected ':' after conversion");
  }
  if (pos < body.size()) field.spec = std::string(body.substr(pos + 1));
  if (field.name.find_first_of(".[") != std::string::npos)
    FailUnsupported("format: field with attribute or index");
  if (field.spec.find('{') != std::string::npos) FailUnsupported("format: nested field");
  return field;
}

}  // namespace

Text StrFormat(const Text& format, const std::vector<Value>& args,
               const std::vector<std::pair<std::string, Value>>& kwargs) {
  TextBuilder out;
  size_t automatic = 0;
  bool manual = false;
  const std::string_view s = format.view();
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '{' && s[i] != '}') {
      const size_t end = std::min(s.find_first_of("{}", i), s.size());
      out.Append(format, i, end);
      i = end;
      continue;
    }
    if (i + 1 < s.size() && s[i + 1] == s[i]) {
      out.Append(format, i, i + 1);
      i += 2;
      continue;
    }
    if (s[i] == '}') Fail("format: single '}' encountered");
    size_t close = i + 1;
    for (int depth = 1; close < s.size(); ++close) {
      if (s[close] == '{') ++depth;
      if (s[close] == '}' && --depth == 0) break;
    }
    if (close >= s.size()) Fail("format: expected '}' before end of string");
    const Field field = ParseField(s.substr(i + 1, close - i - 1));
    i = close + 1;
    Value value;
    if (field.name.empty() || field.name.find_first_not_of("0123456789") == std::string::npos) {
      if (field.name.empty() ? manual : automatic > 0)
        Fail("format: automatic and manual field numbers mixed");
      manual = manual || !field.name.empty();
      size_t pos = 0;
      const size_t index =
          field.name.empty() ? automatic++ : static_cast<size_t>(ReadNumber(field.name, &pos));
      if (index >= args.size()) Fail("format: replacement index out of range");
      value = args[index];
    } else {
      const auto it = std::find_if(kwargs.begin(), kwargs.end(),
                                   [&](const auto& kw) { return kw.first == field.name; });
      if (it == kwargs.end()) Fail("format: no argument named '" + field.name + "'");
      value = it->second;
    }
    if (field.conversion == 's')
      value = Value::String(Str(value));
    else if (field.conversion == 'r')
      value = Value::String(Repr(value));
    else if (field.conversion == 'a')
      value = Value::String(AsciiOnly(Repr(value)));
    else if (field.conversion != 0)
      Fail("format: unknown conversion");
    FormatValue(&out, value, field.spec);
  }
  return out.Build(format.markup());
}

}  // namespace pocketlm::chat
