// Character properties and case mappings with the meaning of Python's str methods.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pocketlm::chat {

// Bits of CharFlags(): the answers of Python's str.isalpha(), isdecimal(), … for one character.
enum CharFlag : uint32_t {
  kCharAlpha = 1,
  kCharDecimal = 2,
  kCharDigit = 4,
  kCharNumeric = 8,
  kCharLower = 16,
  kCharUpper = 32,
  kCharTitle = 64,
  kCharSpace = 128,
  kCharPrintable = 256,
  kCharCaseIgnorable = 512,
};

// 0 for values that are no Unicode scalar value.
uint32_t CharFlags(char32_t codepoint);

inline bool IsSpace(char32_t codepoint) { return (CharFlags(codepoint) & kCharSpace) != 0; }
inline bool IsCased(char32_t codepoint) {
  return (CharFlags(codepoint) & (kCharLower | kCharUpper | kCharTitle)) != 0;
}

enum class CaseMapping { kUpper, kLower, kTitle };

// Appends the full mapping of one character (ß to SS), without regard to its neighbours.
void AppendMapped(char32_t codepoint, CaseMapping mapping, std::string* out);

}  // namespace pocketlm::chat
