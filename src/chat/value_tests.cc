// The tests behind `is`.
#include <algorithm>

#include "chat/interpreter.h"

namespace pocketlm::chat {
namespace {

template <bool (*kFn)(const Value&)>
bool Simple(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("test", args, {}, 0);
  return kFn(input);
}

template <bool (*kFn)(const Value&, const Value&)>
bool WithOther(Interpreter&, const Value& input, CallArgs& args) {
  return kFn(input, *BindArgs("test", args, {"other"}, 1)[0]);
}

bool IsOdd(const Value& v) {
  return Equals(Arithmetic(BinaryOp::kMod, v, Value::Integer(2)), Value::Integer(1));
}
bool IsEven(const Value& v) {
  return Equals(Arithmetic(BinaryOp::kMod, v, Value::Integer(2)), Value::Integer(0));
}
bool IsDivisibleBy(const Value& v, const Value& by) {
  return Equals(Arithmetic(BinaryOp::kMod, v, by), Value::Integer(0));
}
bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.IsNone(); }
bool IsBoolean(const Value& v) { return v.Is(Kind::kBool); }
bool IsFalse(const Value& v) { return v.Is(Kind::kBool) && !v.bool_value(); }
bool IsTrue(const Value& v) { return v.Is(Kind::kBool) && v.bool_value(); }
bool IsInteger(const Value& v) { return v.Is(Kind::kInt); }
bool IsFloat(const Value& v) { return v.Is(Kind::kFloat); }
bool IsNumber(const Value& v) { return v.IsNumber(); }
bool IsString(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.Is(Kind::kDict); }
bool IsEscaped(const Value& v) { return v.IsString() && v.text().markup(); }

// Has a length and can be subscripted; an undefined value has both in jinja2, but its subscript raises.
bool IsSequence(const Value& v) {
  return v.IsString() || v.IsSequence() || v.Is(Kind::kDict) || v.Is(Kind::kRange) ||
         v.IsUndefined();
}

bool IsCallable(const Value& v) {
  return v.Is(Kind::kMacro) || v.Is(Kind::kMethod) || v.Is(Kind::kFunction) || v.Is(Kind::kLoop) ||
         v.IsUndefined();
}

bool IsSameAs(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.IsNone()) return true;
  if (a.Is(Kind::kBool)) return a.bool_value() == b.bool_value();
  // Small integers are single objects in Python.
  if (a.Is(Kind::kInt))
    return a.int_value() == b.int_value() && a.int_value() >= -5 && a.int_value() <= 256;
  return a.object() != nullptr && a.object() == b.object();
}

template <const char* const* kName>
bool CaseTest(const Value& v) {
  CallArgs none;
  return Truthy(CallStrMethod(Str(v).WithMarkup(false), *kName, none));
}
constexpr const char* kLowerName = "islower";
constexpr const char* kUpperName = "isupper";

bool Ne(const Value& a, const Value& b) { return !Equals(a, b); }
bool Gt(const Value& a, const Value& b) { return Less(b, a); }
bool Ge(const Value& a, const Value& b) { return LessOrEqual(b, a); }
bool In(const Value& item, const Value& container) { return Contains(container, item); }

constexpr Test kTests[] = {
    {"!=", WithOther<Ne>},
    {"<", WithOther<Less>},
    {"<=", WithOther<LessOrEqual>},
    {"==", WithOther<Equals>},
    {">", WithOther<Gt>},
    {">=", WithOther<Ge>},
    {"boolean", Simple<IsBoolean>},
    {"callable", Simple<IsCallable>},
    {"defined", Simple<IsDefined>},
    {"divisibleby", WithOther<IsDivisibleBy>},
    {"eq", WithOther<Equals>},
    {"equalto", WithOther<Equals>},
    {"escaped", Simple<IsEscaped>},
    {"even", Simple<IsEven>},
    {"false", Simple<IsFalse>},
    {"float", Simple<IsFloat>},
    {"ge", WithOther<Ge>},
    {"greaterthan", WithOther<Gt>},
    {"gt", WithOther<Gt>},
    {"in", WithOther<In>},
    {"integer", Simple<IsInteger>},
    {"iterable", Simple<IsIterable>},
    {"le", WithOther<LessOrEqual>},
    {"lessthan", WithOther<Less>},
    {"lower", Simple<CaseTest<&kLowerName>>},
    {"lt", WithOther<Less>},
    {"mapping", Simple<IsMapping>},
    {"ne", WithOther<Ne>},
    {"none", Simple<IsNone>},
    {"number", Simple<IsNumber>},
    {"odd", Simple<IsOdd>},
    {"sameas", WithOther<IsSameAs>},
    {"sequence", Simple<IsSequence>},
    {"string", Simple<IsString>},
    {"true", Simple<IsTrue>},
    {"undefined", Simple<IsUndefined>},
    {"upper", Simple<CaseTest<&kUpperName>>},
};

}  // namespace

const Test* FindTest(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTests), std::end(kTests),
                                [&](const Test& t) { return t.name == name; });
  return it == std::end(kTests) ? nullptr : it;
}

}  // namespace pocketlm::chat
