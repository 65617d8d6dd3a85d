#include "chat/value_ops.h"

#include <algorithm>
#include <cmath>

#include "chat/python_format.h"

namespace pocketlm::chat {
namespace {

[[noreturn]] void FailUndefined(const Value& value) { Fail(value.undefined_message()); }

void RefuseUndefined(const Value& a, const Value& b) {
  if (a.IsUndefined()) FailUndefined(a);
  if (b.IsUndefined()) FailUndefined(b);
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  ChargeSteps(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equals(a[i], b[i])) return false;
  }
  return true;
}

bool EqualDicts(const DictData& a, const DictData& b) {
  if (a.items.size() != b.items.size()) return false;
  ChargeSteps(a.items.size());
  for (const auto& [key, value] : a.items) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equals(value, *other)) return false;
  }
  return true;
}

bool EqualRanges(const RangeData& a, const RangeData& b) {
  const Int length = a.Length();
  if (length != b.Length()) return false;
  return length == 0 || (a.start == b.start && (length == 1 || a.step == b.step));
}

}  // namespace

bool Truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.int_value() != 0;
    case Kind::kFloat:
      return value.float_value() != 0;
    case Kind::kString:
      return !value.As<TextData>().bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    case Kind::kRange:
      return value.range().Length() != 0;
    case Kind::kDictView:
      return !value.view().dict.dict().items.empty();
    default:
      return true;
  }
}

bool Equals(const Value& a, const Value& b) {
  ChargeSteps(1);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsIntLike() && b.IsIntLike()) return a.int_value() == b.int_value();
    return a.AsDouble() == b.AsDouble();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.As<TextData>().bytes == b.As<TextData>().bytes;
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(a.list().items, b.list().items);
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Kind::kRange:
      return EqualRanges(a.range(), b.range());
    case Kind::kMethod:
      return a.method().name == b.method().name &&
             a.method().self.object() == b.method().self.object();
    case Kind::kDictView:
      if (a.view().of != b.view().of) return false;
      if (a.view().of == ViewOf::kValues) return a.object() == b.object();
      return EqualDicts(a.view().dict.dict(), b.view().dict.dict());
    default:
      return a.object() == b.object();
  }
}

namespace {

// a < b, or a <= b if `or_equal`.
bool Ordered(const Value& a, const Value& b, bool or_equal) {
  ChargeSteps(1);
  RefuseUndefined(a, b);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsIntLike() && b.IsIntLike())
      return or_equal ? a.int_value() <= b.int_value() : a.int_value() < b.int_value();
    return or_equal ? a.AsDouble() <= b.AsDouble() : a.AsDouble() < b.AsDouble();
  }
  // UTF-8 keeps the order of code points.
  if (a.IsString() && b.IsString()) {
    const int order = a.As<TextData>().bytes.compare(b.As<TextData>().bytes);
    return order < 0 || (or_equal && order == 0);
  }
  if (a.IsSequence() && a.kind() == b.kind()) {
    const auto& x = a.list().items;
    const auto& y = b.list().items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equals(x[i], y[i])) return Ordered(x[i], y[i], or_equal);
    }
    return x.size() < y.size() || (or_equal && x.size() == y.size());
  }
  Fail(std::string("no order between '") + TypeName(a) + "' and '" + TypeName(b) + "'");
}

}  // namespace

bool Less(const Value& a, const Value& b) { return Ordered(a, b, false); }
bool LessOrEqual(const Value& a, const Value& b) { return Ordered(a, b, true); }

bool Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      ChargeSteps(container.As<TextData>().bytes.size() / 16);
      return container.As<TextData>().bytes.find(AsText(item, "left operand of 'in'").bytes()) !=
             std::string::npos;
    case Kind::kDict:
      return container.dict().Find(item) != nullptr;
    case Kind::kDictView:
      if (container.view().of == ViewOf::kKeys) {
        return container.view().dict.dict().Find(item) != nullptr;
      }
      break;
    case Kind::kNamespace:
      Fail("a namespace cannot be searched");
    case Kind::kRange: {
      if (!item.IsNumber()) return false;
      const RangeData& range = container.range();
      if (item.Is(Kind::kFloat) && item.float_value() != std::floor(item.float_value()))
        return false;
      if (item.Is(Kind::kFloat) && std::abs(item.float_value()) > 1e18) return false;
      const Int i = item.Is(Kind::kFloat) ? static_cast<Int>(item.float_value()) : item.int_value();
      const bool inside = range.step > 0 ? (i >= range.start && i < range.stop)
                                         : (i <= range.start && i > range.stop);
      return inside && (i - range.start) % range.step == 0;
    }
    case Kind::kGenerator: {
      Value next;
      while (container.generator().TakeOne(&next)) {
        if (Equals(next, item)) return true;
      }
      return false;
    }
    default:
      break;
  }
  for (const Value& candidate : Iterate(container)) {
    if (Equals(candidate, item)) return true;
  }
  return false;
}

void CheckHashable(const Value& value) {
  if (value.Is(Kind::kList) || value.Is(Kind::kDict)) {
    Fail(std::string("unhashable type: '") + TypeName(value) + "'");
  }
  if (value.Is(Kind::kTuple)) {
    ChargeSteps(value.list().items.size());
    for (const Value& item : value.list().items) CheckHashable(item);
  }
}

size_t Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.As<TextData>().char_count;
    case Kind::kList:
    case Kind::kTuple:
      return value.list().items.size();
    case Kind::kDict:
      return value.dict().items.size();
    case Kind::kDictView:
      return value.view().dict.dict().items.size();
    case Kind::kRange:
      return static_cast<size_t>(value.range().Length());
    default:
      Fail(std::string("object of type '") + TypeName(value) + "' has no length");
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kGenerator:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

std::vector<Value> Characters(const Text& text) {
  std::vector<Value> out;
  if (const Meter* meter = Meter::Current()) {
    meter->Check(text.char_count() * (sizeof(Value) + sizeof(TextData)));
  }
  ChargeSteps(text.char_count());
  out.reserve(text.char_count());
  for (size_t i = 0; i < text.size();) {
    const size_t n = CharSize(text.view(), i);
    TextBuilder one;
    one.Append(text, i, i + n);
    out.push_back(Value::String(one.Build()));
    i += n;
  }
  return out;
}

std::vector<Value> Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kString:
      return Characters(value.text());
    case Kind::kList:
    case Kind::kTuple:
      ChargeSteps(value.list().items.size() / 8);
      return value.list().items;
    case Kind::kGenerator:
      return value.generator().TakeAll();
    case Kind::kRange: {
      std::vector<Value> out;
      const RangeData& range = value.range();
      const Int length = range.Length();
      ChargeSteps(static_cast<uint64_t>(length) / 4);
      for (Int i = 0; i < length; ++i) out.push_back(Value::Integer(range.start + i * range.step));
      return out;
    }
    case Kind::kDict:
    case Kind::kDictView: {
      const bool is_view = value.Is(Kind::kDictView);
      const ViewOf of = is_view ? value.view().of : ViewOf::kKeys;
      const auto& items = is_view ? value.view().dict.dict().items : value.dict().items;
      ChargeSteps(items.size());
      std::vector<Value> out;
      out.reserve(items.size());
      for (const auto& [k, v] : items) {
        out.push_back(of == ViewOf::kKeys ? k : of == ViewOf::kValues ? v : Value::Tuple({k, v}));
      }
      return out;
    }
    default:
      Fail(std::string("'") + TypeName(value) + "' object is not iterable");
  }
}

namespace {

// Python's slice.indices() for a sequence of `length`.
struct SliceIndices {
  Int start, stop, step;
  Int Count() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
};

SliceIndices ResolveSlice(Int length, const Value& start, const Value& stop, const Value& step) {
  SliceIndices s{0, length, 1};
  if (!step.IsNone()) s.step = AsIndex(step, "slice step");
  if (s.step == 0) Fail("slice step cannot be zero");
  const auto clamp = [&](const Value& v, Int missing) -> Int {
    if (v.IsNone()) return missing;
    Int i = AsIndex(v, "slice index");
    if (i < 0) i += length;
    const Int low = s.step > 0 ? 0 : -1;
    const Int high = s.step > 0 ? length : length - 1;
    return std::min(std::max(i, low), high);
  };
  s.start = clamp(start, s.step > 0 ? 0 : length - 1);
  s.stop = clamp(stop, s.step > 0 ? length : -1);
  return s;
}

Text SliceText(const Text& text, const SliceIndices& s) {
  const Int count = s.Count();
  if (count <= 0) return Text().WithMarkup(text.markup());
  if (s.step == 1) {
    const size_t begin = text.ByteOffset(static_cast<size_t>(s.start));
    return text.Slice(begin, text.ByteOffset(static_cast<size_t>(s.stop)));
  }
  std::vector<size_t> offsets;
  offsets.reserve(text.char_count() + 1);
  for (size_t i = 0; i < text.size(); i += CharSize(text.view(), i)) offsets.push_back(i);
  offsets.push_back(text.size());
  TextBuilder out;
  for (Int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(s.start + i * s.step);
    out.Append(text, offsets[at], offsets[at + 1]);
  }
  return out.Build(text.markup());
}

}  // namespace

Value Slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.IsUndefined()) Fail(value.undefined_message());
  if (!value.IsString() && !value.IsSequence() && !value.Is(Kind::kRange)) {
    Fail(std::string("'") + TypeName(value) + "' object cannot be sliced");
  }
  const auto s = ResolveSlice(static_cast<Int>(Length(value)), start, stop, step);
  if (value.IsString()) return Value::String(SliceText(value.text(), s));
  if (value.Is(Kind::kRange)) {
    const RangeData& r = value.range();
    return Value::Of(Kind::kRange,
                     std::make_shared<RangeData>(r.start + s.start * r.step,
                                                 r.start + s.stop * r.step, r.step * s.step));
  }
  const auto& items = value.list().items;
  std::vector<Value> out;
  const Int count = s.Count();
  for (Int i = 0; i < count; ++i) out.push_back(items[static_cast<size_t>(s.start + i * s.step)]);
  return value.Is(Kind::kList) ? Value::List(std::move(out), value.literal())
                               : Value::Tuple(std::move(out), value.literal());
}

bool IndexSequence(const Value& value, const Value& index, Value* out) {
  if (!index.IsIntLike()) return false;
  if (!value.IsString() && !value.IsSequence() && !value.Is(Kind::kRange)) return false;
  const Int length = static_cast<Int>(Length(value));
  Int i = index.int_value();
  if (i < 0) i += length;
  if (i < 0 || i >= length) return false;
  if (value.IsString()) {
    const Text text = value.text();
    const size_t begin = text.ByteOffset(static_cast<size_t>(i));
    *out = Value::String(text.Slice(begin, begin + CharSize(text.view(), begin)));
  } else if (value.Is(Kind::kRange)) {
    *out = Value::Integer(value.range().start + i * value.range().step);
  } else {
    *out = value.list().items[static_cast<size_t>(i)];
  }
  return true;
}

bool AnyLiteral(const Value& value) {
  ChargeSteps(1);
  if (value.literal()) return true;
  switch (value.kind()) {
    case Kind::kString:
      return !value.As<TextData>().literal.empty();
    case Kind::kList:
    case Kind::kTuple:
      for (const Value& item : value.list().items) {
        if (AnyLiteral(item)) return true;
      }
      return false;
    case Kind::kDict:
      for (const auto& [k, v] : value.dict().items) {
        if (AnyLiteral(k) || AnyLiteral(v)) return true;
      }
      return false;
    case Kind::kDictView:
      return AnyLiteral(value.view().dict);
    default:
      return false;
  }
}

int64_t AsIndex(const Value& value, const char* what) {
  if (value.IsUndefined()) Fail(value.undefined_message());
  if (!value.IsIntLike())
    Fail(std::string(what) + " must be an integer, not '" + TypeName(value) + "'");
  const Int limit = Int{1} << 62;
  return static_cast<int64_t>(std::min(std::max(value.int_value(), -limit), limit));
}

Text AsText(const Value& value, const char* what) {
  if (value.IsUndefined()) Fail(value.undefined_message());
  if (!value.IsString())
    Fail(std::string(what) + " must be a string, not '" + TypeName(value) + "'");
  return value.text();
}

Text EscapeHtml(const Text& text) {
  if (text.markup()) return text;
  TextBuilder out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* entity = nullptr;
    switch (text.bytes()[i]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '"':
        entity = "&#34;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      default:
        break;
    }
    if (entity != nullptr) {
      out.AppendBytes(entity, text.LiteralIn(i, i + 1));
    } else {
      out.Append(text, i, i + 1);
    }
  }
  return out.Build(true);
}

}  // namespace pocketlm::chat
