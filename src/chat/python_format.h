// Python's text forms of values: str(), repr(), json.dumps(), the % operator and str.format().
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/value.h"

namespace pocketlm::chat {

std::string FormatInt(Int value);
// Shortest text that reads back as the same double: 1.0, 1e+16, nan.
std::string FormatFloat(double value);
// round(value, digits) to the nearest decimal, ties by the exact binary value.
double RoundFloat(double value, int64_t digits);
// int(text, base) and float(text); false where Python raises ValueError.
bool ParsePythonInt(std::string_view text, int base, Int* out);
bool ParsePythonFloat(std::string_view text, double* out);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // an indent was given
  std::string indent;   // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// json.dumps(value); literal as a whole if anything in it comes from data.
Text ToJson(const Value& value, const JsonOptions& options);

// format % args
Text PercentFormat(const Text& format, const Value& args);
// format.format(*args, **kwargs); fields with attributes or indexes are refused.
Text StrFormat(const Text& format, const std::vector<Value>& args,
               const std::vector<std::pair<std::string, Value>>& kwargs);

}  // namespace pocketlm::chat
