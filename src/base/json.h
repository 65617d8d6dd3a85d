// JSON of untrusted origin: a DOM with bounded depth and memory, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace pocketlm {

struct JsonLimits {
  uint64_t max_bytes = uint64_t{64} << 20;  // length of the text
  int max_depth = 64;                       // arrays and objects inside each other
  // The DOM may take fixed_memory_bytes + memory_factor * text length; denser JSON (mostly empty
  // strings or objects) is refused. Ordinary files, compact ones too, stay below a factor of 12.
  uint64_t memory_factor = 16;
  uint64_t fixed_memory_bytes = uint64_t{1} << 20;
};

// Parses one JSON value that fills the whole text. A UTF-8 byte order mark in front is skipped;
// CRLF counts as white space; of equal keys in one object the last one wins (as in Python). Strings
// must be valid UTF-8. Numbers: integers that fit are int64 or uint64, others double; NaN and
// Infinity are errors. Errors  kDataError "JSON: line 3, column 7: …" for a malformed text or one
// beyond the limits;
//         kOutOfMemory.
// Memory  What JsonLimits allows, plus a buffer of the longest string. Depth of the C++ stack does
// not
//         depend on the text.
Result<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// `text` without a UTF-8 byte order mark in front.
std::string_view SkipByteOrderMark(std::string_view text);

// "line 3, column 7" of a byte offset, for messages. Lines and columns (bytes) count from 1.
std::string LineAndColumn(std::string_view text, size_t offset);

}  // namespace pocketlm
