// The operators + - * / // % ** and unary minus.
#include <cmath>

#include "chat/python_format.h"
#include "chat/value_ops.h"

namespace pocketlm::chat {
namespace {

constexpr Int kIntMax = static_cast<Int>(~static_cast<unsigned __int128>(0) >> 1);

[[noreturn]] void FailOverflow() { FailUnsupported("integer beyond 128 bits"); }

Int Magnitude(Int a) {
  if (a < -kIntMax) FailOverflow();
  return a < 0 ? -a : a;
}

Int Multiply(Int a, Int b) {
  if (a == 0 || b == 0) return 0;
  if (Magnitude(a) > kIntMax / Magnitude(b)) FailOverflow();
  return a * b;
}

Int FloorDivide(Int a, Int b) {
  if (b == 0) Fail("integer division or modulo by zero");
  const Int quotient = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int Power(Int base, Int exponent) {
  Int result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  for (; exponent > 0; --exponent) result = Multiply(result, base);
  return result;
}

Value IntArithmetic(BinaryOp op, Int a, Int b, bool literal) {
  Int result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) FailOverflow();
      return Value::Integer(result, literal);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) FailOverflow();
      return Value::Integer(result, literal);
    case BinaryOp::kMul:
      return Value::Integer(Multiply(a, b), literal);
    case BinaryOp::kDiv:
      if (b == 0) Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b), literal);
    case BinaryOp::kFloorDiv:
      return Value::Integer(FloorDivide(a, b), literal);
    case BinaryOp::kMod:
      return Value::Integer(a - FloorDivide(a, b) * b, literal);
    case BinaryOp::kPow:
      if (b >= 0) return Value::Integer(Power(a, b), literal);
      if (a == 0) Fail("0.0 cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)), literal);
  }
  return Value();
}

double FloatModulo(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod == 0) return std::copysign(0.0, b);
  return (b < 0) != (mod < 0) ? mod + b : mod;
}

double FloatFloorDivide(double a, double b) {
  const double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1.0;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Value FloatArithmetic(BinaryOp op, double a, double b, bool literal) {
  double result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      result = a + b;
      break;
    case BinaryOp::kSub:
      result = a - b;
      break;
    case BinaryOp::kMul:
      result = a * b;
      break;
    case BinaryOp::kDiv:
      if (b == 0) Fail("float division by zero");
      result = a / b;
      break;
    case BinaryOp::kFloorDiv:
      if (b == 0) Fail("float floor division by zero");
      result = FloatFloorDivide(a, b);
      break;
    case BinaryOp::kMod:
      if (b == 0) Fail("float modulo by zero");
      result = FloatModulo(a, b);
      break;
    case BinaryOp::kPow:
      if (a == 0 && b < 0) Fail("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b) && std::isfinite(a)) FailUnsupported("complex number");
      result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
        Fail("numerical result out of range");
      break;
  }
  return Value::Float(result, literal);
}

Value Repeat(const Value& sequence, const Value& count_value) {
  if (Magnitude(count_value.int_value()) >> 63 != 0) Fail("repeat count does not fit 64 bits");
  const int64_t count = std::max<int64_t>(0, AsIndex(count_value, "repeat count"));
  if (sequence.IsString()) {
    TextBuilder out;
    out.AppendRepeated(sequence.text(), static_cast<uint64_t>(count));
    return Value::String(out.Build(sequence.text().markup()));
  }
  const auto& items = sequence.list().items;
  std::vector<Value> out;
  if (!items.empty() && count > 0) {
    if (static_cast<uint64_t>(count) > (SIZE_MAX >> 8) / items.size())
      FailLimit("the template uses too much memory");
    const size_t total = items.size() * static_cast<size_t>(count);
    if (const Meter* meter = Meter::Current()) meter->Check(total * sizeof(Value));
    ChargeSteps(total / 8);
    out.reserve(total);
    for (int64_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.Is(Kind::kList) ? Value::List(std::move(out), sequence.literal())
                                  : Value::Tuple(std::move(out), sequence.literal());
}

Value AddText(const Text& a, const Text& b) {
  TextBuilder out;
  const bool markup = a.markup() || b.markup();
  out.Append(markup ? EscapeHtml(a) : a);
  out.Append(markup ? EscapeHtml(b) : b);
  return Value::String(out.Build(markup));
}

Value AddLists(const Value& a, const Value& b) {
  std::vector<Value> items = a.list().items;
  items.insert(items.end(), b.list().items.begin(), b.list().items.end());
  const bool literal = a.literal() || b.literal();
  return a.Is(Kind::kList) ? Value::List(std::move(items), literal)
                           : Value::Tuple(std::move(items), literal);
}

const char* OpName(BinaryOp op) {
  static constexpr const char* kNames[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kNames[static_cast<int>(op)];
}

}  // namespace

Value Arithmetic(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::kMod && a.IsString()) return Value::String(PercentFormat(a.text(), b));
  if (a.IsUndefined()) Fail(a.undefined_message());
  if (b.IsUndefined()) Fail(b.undefined_message());
  const bool literal = a.literal() || b.literal();
  if (a.IsIntLike() && b.IsIntLike())
    return IntArithmetic(op, a.int_value(), b.int_value(), literal);
  if (a.IsNumber() && b.IsNumber()) return FloatArithmetic(op, a.AsDouble(), b.AsDouble(), literal);
  if (op == BinaryOp::kAdd) {
    if (a.IsString() && b.IsString()) return AddText(a.text(), b.text());
    if (a.IsSequence() && a.kind() == b.kind()) return AddLists(a, b);
  }
  if (op == BinaryOp::kMul) {
    if ((a.IsString() || a.IsSequence()) && b.IsIntLike()) return Repeat(a, b);
    if ((b.IsString() || b.IsSequence()) && a.IsIntLike()) return Repeat(b, a);
  }
  Fail(std::string("unsupported operand types for ") + OpName(op) + ": '" + TypeName(a) +
       "' and '" + TypeName(b) + "'");
}

Value Negate(const Value& value, bool negative) {
  if (value.IsUndefined()) Fail(value.undefined_message());
  if (!value.IsNumber())
    Fail(std::string("bad operand type for unary operator: '") + TypeName(value) + "'");
  if (value.Is(Kind::kFloat))
    return Value::Float(negative ? -value.float_value() : value.float_value(), value.literal());
  if (value.int_value() < -kIntMax) FailOverflow();
  return Value::Integer(negative ? -value.int_value() : value.int_value(), value.literal());
}

}  // namespace pocketlm::chat
