// UTF-8: decoding of untrusted bytes, encoding, validation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pocketlm {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct DecodedCodepoint {
  char32_t codepoint;  // kReplacementCharacter if not valid
  uint8_t size_bytes;  // ≥ 1; for ill-formed input, the length of the maximal ill-formed part
  bool valid;
};

// Decodes the code point that starts at text[offset]; offset < text.size(). Overlong forms, surrogates
// and values above U+10FFFF are ill-formed. Maximal parts as in Unicode 3.9 (what Python's
// errors="replace" and the WHATWG decoder do).
DecodedCodepoint DecodeUtf8(std::string_view text, size_t offset);

// Appends the UTF-8 form of `codepoint`, which must be a Unicode scalar value.
void AppendUtf8(char32_t codepoint, std::string* out);

bool IsValidUtf8(std::string_view text);

// `text` with every maximal ill-formed part replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// Number of bytes at the end of `text` that begin a valid but unfinished UTF-8 sequence: 0 to 3.
size_t IncompleteUtf8Suffix(std::string_view text);

}  // namespace pocketlm
