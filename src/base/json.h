// JSON of untrusted origin: a DOM with bounded depth and memory, no exceptions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace pocketlm {

struct JsonLimits {
  uint64_t max_bytes = uint64_t{64} << 20;        // length of the text
  uint64_t max_token_bytes = uint64_t{16} << 20;  // length of one string or number as written
  int max_depth = 64;                             // arrays and objects inside each other
  // The DOM may take fixed_memory_bytes + memory_factor * text length; denser JSON (mostly empty
  // strings or objects) is refused. Ordinary files, compact ones too, stay below a factor of 12.
  uint64_t memory_factor = 16;
  uint64_t fixed_memory_bytes = uint64_t{1} << 20;
};

// Parses one JSON value that fills the whole text. A UTF-8 byte order mark in front is skipped;
// CRLF counts as white space; of equal keys in one object the last one wins (as in Python). Strings
// must be valid UTF-8. Numbers: integers that fit are int64 or uint64, others double; NaN and
// Infinity are errors.
// Errors  kDataError "JSON: line 3, column 7: …" for a malformed text or one beyond the limits;
//         kOutOfMemory.
// Memory  What JsonLimits allows, plus 10 times the longest string or number. Depth of the C++ stack does
//         not depend on the text.
Result<nlohmann::json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The same, with the members of objects in the order of the text (a repeated key keeps its first place).
Result<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                const JsonLimits& limits = {});

// kDataError if a string or number of a JSON text is longer than `max_bytes` or a string has no end. For
// those who run nlohmann's parser themselves: it buffers and copies whole tokens, so this comes first.
Status CheckJsonTokens(std::string_view text, uint64_t max_bytes);

// `text` without a UTF-8 byte order mark in front.
std::string_view SkipByteOrderMark(std::string_view text);

// The error that nlohmann's parser hands to json_sax::parse_error, as "line 3, column 7: reason", without
// the parser's own prefix and the token that it read.
std::string JsonErrorText(std::string_view text, size_t position, const std::exception& error);

// "line 3, column 7" of a byte offset, for messages. Lines and columns (bytes) count from 1.
std::string LineAndColumn(std::string_view text, size_t offset);

}  // namespace pocketlm
