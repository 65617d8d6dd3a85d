// Filters on single values. Filters on sequences are in sequence_filters.cc.
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "chat/filters.h"
#include "chat/python_format.h"
#include "chat/unicode.h"

namespace pocketlm::chat {
namespace {

using Bound = std::vector<std::optional<Value>>;

bool IsGiven(const std::optional<Value>& value) { return value && !value->IsNone(); }

// soft_str: text keeps its safe mark, everything else becomes text.
Text SoftStr(const Value& value) { return Str(value); }

template <CaseStyle kStyle>
Value Case(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("case filter", args, {}, 0);
  return Value::String(MapCase(SoftStr(input), kStyle));
}

// Not str.title: a word begins after a hyphen, space or opening bracket only.
Value Title(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("title", args, {}, 0);
  const Text text = SoftStr(input);
  const auto breaks = [&](size_t at) {
    const DecodedCodepoint c = DecodeUtf8(text.view(), at);
    return IsSpace(c.codepoint) ||
           std::string_view("-({[<").find(text.bytes()[at]) != std::string_view::npos;
  };
  TextBuilder out;
  size_t i = 0;
  while (i < text.size()) {
    size_t end = i;
    const bool separator = breaks(i);
    while (end < text.size() && breaks(end) == separator) end += CharSize(text.view(), end);
    const size_t first = i + CharSize(text.view(), i);
    out.Append(MapCase(text.Slice(i, first), CaseStyle::kUpper));
    out.Append(MapCase(text.Slice(first, end), CaseStyle::kLower));
    i = end;
  }
  return Value::String(out.Build());
}

Value Trim(Interpreter&, const Value& input, CallArgs& args) {
  return Value::String(
      StripText(SoftStr(input), BindArgs("trim", args, {"chars"}, 0)[0], true, true));
}

Value Replace(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("replace", args, {"old", "new", "count"}, 2);
  const int64_t count = IsGiven(bound[2]) ? AsIndex(*bound[2], "count") : -1;
  return Value::String(
      ReplaceText(Str(input).WithMarkup(false), Str(*bound[0]), Str(*bound[1]), count));
}

Value Default(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("default", args, {"default_value", "boolean"}, 0);
  const bool missing = input.IsUndefined() || (bound[1] && Truthy(*bound[1]) && !Truthy(input));
  if (!missing) return input;
  return bound[0] ? *bound[0] : Value::String(Text());
}

Value ToJsonFilter(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound =
      BindArgs("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonOptions options;
  options.ensure_ascii = bound[0] && Truthy(*bound[0]);
  options.sort_keys = bound[3] && Truthy(*bound[3]);
  if (IsGiven(bound[1])) {
    options.pretty = true;
    options.item_separator = ",";
    if (bound[1]->IsString()) {
      options.indent = bound[1]->text().bytes();
    } else {
      const int64_t width = AsIndex(*bound[1], "indent");
      if (width > 1000) FailLimit("tojson: indent is too large");
      options.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  if (IsGiven(bound[2])) {
    const std::vector<Value> parts = Iterate(*bound[2]);
    if (parts.size() != 2) Fail("tojson: separators must be a pair");
    options.item_separator = AsText(parts[0], "separator").bytes();
    options.key_separator = AsText(parts[1], "separator").bytes();
  }
  return Value::String(ToJson(input, options));
}

Value String(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("string", args, {}, 0);
  return Value::String(SoftStr(input));
}

Value Safe(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("safe", args, {}, 0);
  return Value::String(Str(input).WithMarkup(true));
}

Value Escape(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("escape", args, {}, 0);
  return Value::String(EscapeHtml(Str(input)));
}

Value ForceEscape(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("forceescape", args, {}, 0);
  return Value::String(EscapeHtml(Str(input).WithMarkup(false)));
}

bool InputLiteral(const Value& input) { return AnyLiteral(input); }

Value IntFilter(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("int", args, {"default", "base"}, 0);
  if (input.IsUndefined()) Fail(input.undefined_message());
  const bool literal = InputLiteral(input);
  double real = 0;
  if (input.IsIntLike()) return Value::Integer(input.int_value(), literal);
  if (input.IsString()) {
    Int value = 0;
    const int64_t base = bound[1] ? AsIndex(*bound[1], "base") : 10;
    if (base != 0 && (base < 2 || base > 36)) return bound[0] ? *bound[0] : Value::Integer(0);
    if (ParsePythonInt(input.text().view(), static_cast<int>(base), &value))
      return Value::Integer(value, literal);
    if (!ParsePythonFloat(input.text().view(), &real))
      return bound[0] ? *bound[0] : Value::Integer(0);
  } else if (input.Is(Kind::kFloat)) {
    real = input.float_value();
    if (std::isinf(real)) Fail("cannot convert float infinity to integer");
  } else {
    return bound[0] ? *bound[0] : Value::Integer(0);
  }
  if (!std::isfinite(real)) return bound[0] ? *bound[0] : Value::Integer(0);
  if (std::fabs(real) > 1e37) FailUnsupported("integer beyond 128 bits");
  return Value::Integer(static_cast<Int>(real), literal);
}

Value FloatFilter(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("float", args, {"default"}, 0);
  if (input.IsUndefined()) Fail(input.undefined_message());
  double value = 0;
  if (input.IsNumber()) return Value::Float(input.AsDouble(), input.literal());
  if (input.IsString() && ParsePythonFloat(input.text().view(), &value))
    return Value::Float(value, InputLiteral(input));
  return bound[0] ? *bound[0] : Value::Float(0.0);
}

Value Abs(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("abs", args, {}, 0);
  if (!input.IsNumber()) Fail(std::string("abs: bad operand type '") + TypeName(input) + "'");
  const bool negative =
      input.Is(Kind::kFloat) ? std::signbit(input.float_value()) : input.int_value() < 0;
  return Negate(input, negative);
}

// round(integer, digits) for negative digits: to a multiple of a power of ten, ties to even.
Int RoundInteger(Int value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -37) return 0;
  Int scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  Int quotient = value / scale;
  Int rest = value % scale;
  if (rest < 0) {
    rest += scale;
    --quotient;
  }
  if (rest * 2 > scale || (rest * 2 == scale && quotient % 2 != 0)) ++quotient;
  return quotient * scale;
}

Value Round(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("round", args, {"precision", "method"}, 0);
  const std::string method = bound[1] ? AsText(*bound[1], "method").bytes() : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    Fail("round: method must be common, ceil or floor");
  if (!input.IsNumber())
    Fail(std::string("round: a number is required, not '") + TypeName(input) + "'");
  // None asks Python's round for an integer.
  const bool to_integer = bound[0] && bound[0]->IsNone() && method == "common";
  const int64_t digits = bound[0] && !to_integer ? AsIndex(*bound[0], "precision") : 0;
  if (method == "common") {
    if (input.IsIntLike())
      return Value::Integer(RoundInteger(input.int_value(), digits), input.literal());
    const double rounded = RoundFloat(input.float_value(), digits);
    if (!to_integer) return Value::Float(rounded, input.literal());
    if (!(std::fabs(rounded) < 1e37)) Fail("round: cannot convert to an integer");
    return Value::Integer(static_cast<Int>(rounded), input.literal());
  }
  if (std::abs(digits) > 300) Fail("round: precision out of range");
  const Value scale = Arithmetic(BinaryOp::kPow, Value::Integer(10), Value::Integer(digits));
  const Value scaled = Arithmetic(BinaryOp::kMul, input, scale);
  const double value = scaled.AsDouble();
  if (!std::isfinite(value)) Fail("round: cannot convert to an integer");
  const double whole = method == "ceil" ? std::ceil(value) : std::floor(value);
  return Value::Float((whole + 0.0) / scale.AsDouble(), input.literal());
}

Value Indent(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("indent", args, {"width", "first", "blank"}, 0);
  const Text text = AsText(input, "the input of indent");
  Text indention(std::string(4, ' '));
  if (bound[0] && bound[0]->IsString()) {
    indention = bound[0]->text();
  } else if (bound[0]) {
    TextBuilder spaces;
    spaces.AppendRepeated(Text(std::string(" ")),
                          static_cast<uint64_t>(std::max<int64_t>(AsIndex(*bound[0], "width"), 0)));
    indention = spaces.Build();
  }
  const bool blank = bound[2] && Truthy(*bound[2]);
  TextBuilder with_newline;
  with_newline.Append(text);
  with_newline.AppendTrusted("\n");
  const Text source = with_newline.Build();
  const std::vector<Text> lines = SplitLines(source, false);
  TextBuilder out;
  if (bound[1] && Truthy(*bound[1])) out.Append(indention);
  size_t at = 0;  // where the line begins in `source`
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) {
      out.AppendBytes("\n", at > 0 && source.LiteralIn(at - 1, at));
      if (blank || !lines[i].empty()) out.Append(indention);
    }
    out.Append(lines[i]);
    at += lines[i].size();
    if (at < source.size()) {
      const bool crlf =
          source.bytes()[at] == '\r' && at + 1 < source.size() && source.bytes()[at + 1] == '\n';
      at += crlf ? 2 : CharSize(source.view(), at);
    }
  }
  return Value::String(out.Build(text.markup()));
}

Value Format(Interpreter&, const Value& input, CallArgs& args) {
  if (!args.args.empty() && !args.kwargs.empty())
    Fail("format: positional and keyword arguments at the same time");
  Value values = Value::Tuple(args.args);
  if (!args.kwargs.empty()) {
    DictBuilder dict;
    for (const auto& [name, value] : args.kwargs) dict.Set(Value::String(Text(name)), value);
    values = dict.Build();
  }
  return Value::String(PercentFormat(SoftStr(input), values));
}

Value Truncate(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("truncate", args, {"length", "killwords", "end", "leeway"}, 0);
  const int64_t length = bound[0] ? AsIndex(*bound[0], "length") : 255;
  const Text end = bound[2] ? AsText(*bound[2], "end") : Text(std::string("..."));
  const int64_t leeway = IsGiven(bound[3]) ? AsIndex(*bound[3], "leeway") : 5;
  const auto end_length = static_cast<int64_t>(end.char_count());
  if (length < end_length || leeway < 0) Fail("truncate: length or leeway is too small");
  if (static_cast<int64_t>(Length(input)) <= length + leeway) return input;
  const Text text = AsText(input, "the input of truncate");
  size_t cut = text.ByteOffset(static_cast<size_t>(length - end_length));
  if (!(bound[1] && Truthy(*bound[1]))) {
    const size_t space = cut == 0 ? std::string::npos : text.view().substr(0, cut).rfind(' ');
    if (space != std::string::npos) cut = space;
  }
  TextBuilder out;
  out.Append(text, 0, cut);
  out.Append(end);
  return Value::String(out.Build());
}

Value Center(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("center", args, {"width"}, 0);
  CallArgs width;
  width.args.push_back(bound[0] ? *bound[0] : Value::Integer(80));
  return CallStrMethod(SoftStr(input).WithMarkup(false), "center", width);
}

Value WordCount(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("wordcount", args, {}, 0);
  const Text text = SoftStr(input);
  Int words = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const DecodedCodepoint c = DecodeUtf8(text.view(), i);
    const bool word =
        c.codepoint == '_' ||
        (CharFlags(c.codepoint) & (kCharAlpha | kCharDecimal | kCharDigit | kCharNumeric)) != 0;
    if (word && !inside) ++words;
    inside = word;
    i += c.size_bytes;
  }
  return Value::Integer(words);
}

Value Attr(Interpreter&, const Value& input, CallArgs& args) {
  const std::string name = AsText(*BindArgs("attr", args, {"name"}, 1)[0], "name").bytes();
  if (input.IsUndefined()) Fail(input.undefined_message());
  const auto attribute = BuiltinAttribute(input, name);
  return attribute ? *attribute
                   : Value::Undefined(std::string("'") + TypeName(input) +
                                      " object' has no attribute '" + name + "'");
}

constexpr Filter kFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"capitalize", Case<CaseStyle::kCapitalize>},
    {"center", Center},
    {"d", Default},
    {"default", Default},
    {"e", Escape},
    {"escape", Escape},
    {"float", FloatFilter},
    {"forceescape", ForceEscape},
    {"format", Format},
    {"indent", Indent},
    {"int", IntFilter},
    {"lower", Case<CaseStyle::kLower>},
    {"replace", Replace},
    {"round", Round},
    {"safe", Safe},
    {"string", String},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Case<CaseStyle::kUpper>},
    {"wordcount", WordCount},
};

}  // namespace

const Filter* FindFilter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const Filter& f) { return f.name == name; });
  return it != std::end(kFilters) ? it : FindSequenceFilter(name);
}

}  // namespace pocketlm::chat
