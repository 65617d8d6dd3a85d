// Attributes and methods of built-in types, and the `loop` object.
#include <algorithm>

#include "chat/interpreter.h"
#include "chat/interpreter_values.h"
#include "chat/python_format.h"

namespace pocketlm::chat {
namespace {

template <size_t kSize>
bool OneOf(std::string_view name, const std::string_view (&names)[kSize]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

constexpr std::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kLoopMethods[] = {"changed", "cycle"};
// The immutable sandbox hides these: an attribute that is undefined.
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
// What Python has and this engine does not.
constexpr std::string_view kOtherStr[] = {"casefold",     "encode",    "expandtabs", "format_map",
                                          "isidentifier", "maketrans", "translate"};
constexpr std::string_view kOtherNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};

Value Unsafe(const Value& object, const std::string& name) {
  return Value::Undefined("access to attribute '" + name + "' of '" + TypeName(object) +
                          "' object is unsafe");
}

Value Bound(const Value& object, const std::string& name) {
  return Value::Of(Kind::kMethod, std::make_shared<MethodData>(object, name));
}

std::optional<Value> ListAttribute(const Value& object, const std::string& name) {
  if (object.Is(Kind::kTuple))
    return OneOf(name, kTupleMethods) ? std::optional(Bound(object, name)) : std::nullopt;
  if (OneOf(name, kListMethods)) return Bound(object, name);
  if (OneOf(name, kListMutators)) return Unsafe(object, name);
  return std::nullopt;
}

std::optional<Value> DictAttribute(const Value& object, const std::string& name) {
  if (OneOf(name, kDictMethods)) return Bound(object, name);
  if (OneOf(name, kDictMutators)) return Unsafe(object, name);
  if (name == "fromkeys") FailUnsupported("dict.fromkeys");
  return std::nullopt;
}

std::optional<Value> RangeAttribute(const Value& object, const std::string& name) {
  const RangeData& range = object.range();
  if (name == "start") return Value::Integer(range.start);
  if (name == "stop") return Value::Integer(range.stop);
  if (name == "step") return Value::Integer(range.step);
  if (OneOf(name, kTupleMethods)) return Bound(object, name);
  return std::nullopt;
}

}  // namespace

bool IsMethodName(std::string_view name) {
  return IsStrMethod(name) || OneOf(name, kDictMethods) || OneOf(name, kListMethods) ||
         OneOf(name, kLoopMethods) || OneOf(name, kDictMutators) || OneOf(name, kListMutators);
}

std::optional<Value> BuiltinAttribute(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::kString:
      if (IsStrMethod(name)) return Bound(object, name);
      if (OneOf(name, kOtherStr)) FailUnsupported("str." + name);
      return std::nullopt;
    case Kind::kList:
    case Kind::kTuple:
      return ListAttribute(object, name);
    case Kind::kDict:
      return DictAttribute(object, name);
    case Kind::kRange:
      return RangeAttribute(object, name);
    case Kind::kNamespace: {
      const Value* found = object.name_space().Find(name);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::kLoop: {
      if (OneOf(name, kLoopMethods)) return Bound(object, name);
      bool found = false;
      Value value = const_cast<LoopData&>(object.As<LoopData>()).Attribute(name, &found);
      return found ? std::optional(std::move(value)) : std::nullopt;
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (OneOf(name, kOtherNumber)) FailUnsupported(std::string(TypeName(object)) + "." + name);
      return std::nullopt;
    case Kind::kMacro:
      if (name == "name") return Value::String(Text(MacroName(object)));
      if (name == "arguments" || name == "caller" || name == "catch_kwargs" ||
          name == "catch_varargs")
        FailUnsupported("macro." + name);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Value Interpreter::GetAttr(const Value& object, const std::string& name) {
  if (object.IsUndefined()) Fail(object.undefined_message());
  if (auto attribute = BuiltinAttribute(object, name)) return *attribute;
  if (object.Is(Kind::kDict)) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return Value::Undefined(std::string("'") + TypeName(object) + " object' has no attribute '" +
                          name + "'");
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  if (object.IsUndefined()) Fail(object.undefined_message());
  Value item;
  if (object.Is(Kind::kDict)) {
    if (!key.Is(Kind::kList) && !key.Is(Kind::kDict)) {
      if (const Value* found = object.dict().Find(key)) return *found;
    }
  } else if (IndexSequence(object, key, &item)) {
    return item;
  }
  if (key.IsString()) {
    const std::string& name = key.As<TextData>().bytes;
    if (auto attribute = BuiltinAttribute(object, name)) return *attribute;
    return Value::Undefined(std::string("'") + TypeName(object) + " object' has no attribute '" +
                            name + "'");
  }
  return Value::Undefined(std::string(TypeName(object)) + " object has no such element");
}

namespace {

Value CallDictMethod(const Value& self, const std::string& name, CallArgs& args) {
  if (name == "get") {
    const auto bound = BindArgs("get", args, {"key", "default"}, 1);
    if (const Value* found = self.dict().Find(*bound[0])) return *found;
    return bound[1] ? *bound[1] : Value::None();
  }
  BindArgs(name.c_str(), args, {}, 0);
  if (name == "copy") return self;
  const ViewOf of = name == "keys"     ? ViewOf::kKeys
                    : name == "values" ? ViewOf::kValues
                                       : ViewOf::kItems;
  return Value::Of(Kind::kDictView, std::make_shared<DictViewData>(self, of));
}

Value CallSequenceMethod(const Value& self, const std::string& name, CallArgs& args) {
  if (name == "copy") {
    BindArgs("copy", args, {}, 0);
    return self;
  }
  const auto bound = BindArgs(name.c_str(), args, {"value", "start", "stop"}, 1);
  if (name == "count" && (bound[1] || bound[2])) Fail("count takes one argument");
  const std::vector<Value> items = Iterate(self);
  const auto length = static_cast<int64_t>(items.size());
  int64_t first = bound[1] ? AsIndex(*bound[1], "start") : 0;
  int64_t last = bound[2] ? AsIndex(*bound[2], "stop") : length;
  if (first < 0) first = std::max<int64_t>(first + length, 0);
  if (last < 0) last += length;
  Int count = 0;
  for (int64_t i = first; i < std::min(last, length); ++i) {
    if (!Equals(items[static_cast<size_t>(i)], *bound[0])) continue;
    if (name == "index") return Value::Integer(i);
    ++count;
  }
  if (name == "index") Fail("value is not in the list");
  return Value::Integer(count);
}

Value CallLoopMethod(Interpreter& interpreter, const Value& self, const std::string& name,
                     CallArgs& args) {
  auto& loop = const_cast<LoopData&>(self.As<LoopData>());
  if (!args.kwargs.empty()) Fail("loop." + name + " takes no keyword argument");
  if (name == "cycle") {
    if (args.args.empty()) Fail("no items for cycling given");
    return args.args[static_cast<size_t>(loop.index0) % args.args.size()];
  }
  const Value now = Value::Tuple(args.args);
  if (loop.last_changed && Equals(*loop.last_changed, now)) return Value::Bool(false);
  if (!loop.last_changed) interpreter.Own(self.object());
  loop.last_changed = now;
  return Value::Bool(true);
}

}  // namespace

Value CallMethod(Interpreter& interpreter, const MethodData& method, CallArgs& args) {
  switch (method.self.kind()) {
    case Kind::kString:
      return CallStrMethod(method.self.text(), method.name, args);
    case Kind::kDict:
      return CallDictMethod(method.self, method.name, args);
    case Kind::kLoop:
      return CallLoopMethod(interpreter, method.self, method.name, args);
    default:
      return CallSequenceMethod(method.self, method.name, args);
  }
}

LoopData::LoopData(std::vector<Value> source, int source_depth,
                   std::function<bool(const Value&)> keep, const Stmt* stmt_in, ScopePtr outer_in,
                   int depth0_in)
    : Object(source.size() * sizeof(Value), source_depth + 1),
      stmt(stmt_in),
      outer(std::move(outer_in)),
      depth0(depth0_in),
      source_(std::move(source)),
      keep_(std::move(keep)) {
  if (!keep_) length_ = source_.size();
}

bool LoopData::Pull(Value* out) {
  while (next_ < source_.size()) {
    const Value& candidate = source_[next_++];
    if (keep_ && !keep_(candidate)) continue;
    *out = candidate;
    return true;
  }
  return false;
}

bool LoopData::Peek() {
  if (after_) return true;
  Value next;
  if (!Pull(&next)) return false;
  after_ = std::move(next);
  return true;
}

bool LoopData::Advance() {
  Value next;
  if (after_) {
    next = std::move(*after_);
    after_.reset();
  } else if (!Pull(&next)) {
    return false;
  }
  ++index0;
  before_ = std::move(current_);
  current_ = std::move(next);
  return true;
}

size_t LoopData::Length() {
  if (length_) return *length_;
  // A filtered loop has to look at the rest to know.
  std::vector<Value> rest;
  Value next;
  while (Pull(&next)) rest.push_back(next);
  length_ = rest.size() + static_cast<size_t>(index0 + 1) + (after_ ? 1 : 0);
  source_ = std::move(rest);
  next_ = 0;
  keep_ = nullptr;
  return *length_;
}

Value LoopData::Attribute(std::string_view name, bool* found) {
  *found = true;
  if (name == "index0") return Value::Integer(index0);
  if (name == "index") return Value::Integer(index0 + 1);
  if (name == "first") return Value::Bool(index0 == 0);
  if (name == "last") return Value::Bool(IsLast());
  if (name == "length") return Value::Integer(static_cast<Int>(Length()));
  if (name == "revindex") return Value::Integer(static_cast<Int>(Length()) - index0);
  if (name == "revindex0") return Value::Integer(static_cast<Int>(Length()) - index0 - 1);
  if (name == "depth") return Value::Integer(depth0 + 1);
  if (name == "depth0") return Value::Integer(depth0);
  if (name == "previtem") return before_ ? *before_ : Value::Undefined("there is no previous item");
  if (name == "nextitem") return Peek() ? *after_ : Value::Undefined("there is no next item");
  *found = false;
  return Value();
}

std::string MacroName(const Value& macro) { return macro.As<MacroData>().stmt->macro->name; }

std::string LoopRepr(const Value& loop) {
  auto& data = const_cast<LoopData&>(loop.As<LoopData>());
  return "<LoopContext " + FormatInt(data.index0 + 1) + "/" +
         FormatInt(static_cast<Int>(data.Length())) + ">";
}

}  // namespace pocketlm::chat
