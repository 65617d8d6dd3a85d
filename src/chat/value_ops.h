// Python's operators on values. All throw TemplateError where Python raises.
#pragma once

#include <string>
#include <vector>

#include "chat/value.h"

namespace pocketlm::chat {

bool Truthy(const Value& value);
bool Equals(const Value& a, const Value& b);
// a < b; throws where Python has no order.
bool Less(const Value& a, const Value& b);
bool LessOrEqual(const Value& a, const Value& b);
bool Contains(const Value& container, const Value& item);
void CheckHashable(const Value& value);

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Value Arithmetic(BinaryOp op, const Value& a, const Value& b);
Value Negate(const Value& value, bool negative);

// len(value); throws if it has none.
size_t Length(const Value& value);
// list(value); consumes a generator.
std::vector<Value> Iterate(const Value& value);
bool IsIterable(const Value& value);
// The characters of a string as values.
std::vector<Value> Characters(const Text& text);

// value[start:stop:step]; none means not given.
Value Slice(const Value& value, const Value& start, const Value& stop, const Value& step);
// value[index] for sequences, strings and ranges; false if Python raises IndexError or TypeError.
bool IndexSequence(const Value& value, const Value& index, Value* out);

// str(value) and repr(value).
Text Str(const Value& value);
Text Repr(const Value& value);

// Whether anything inside comes from data.
bool AnyLiteral(const Value& value);

// The value as an index or count; throws unless it is an integer (or bool) within ±2^62.
int64_t AsIndex(const Value& value, const char* what);
// The value as a string; throws otherwise.
Text AsText(const Value& value, const char* what);

// HTML escapes, as the filter `escape`; text that is already safe stays.
Text EscapeHtml(const Text& text);

}  // namespace pocketlm::chat
