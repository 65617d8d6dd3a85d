#include "tokenizer/splitter.h"

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace pocketlm {
namespace {

struct Char {
  char32_t codepoint = 0;
  uint8_t size_bytes = 0;
  uint8_t classes = 0;

  bool letter() const { return classes & kCharLetter; }
  bool number() const { return classes & kCharNumber; }
  bool space() const { return classes & kCharSpace; }
  bool cut() const { return classes & kCharDigitSplit; }
  bool symbol() const {
    return !(classes & (kCharLetter | kCharNumber | kCharSpace | kCharDigitSplit));
  }
  bool newline() const { return codepoint == '\r' || codepoint == '\n'; }
};

// With kCutDigits, what the Digits pre-tokenizer splits off is of no other class, so every match stops
// before it; without, that class does not exist.
template <bool kCutDigits>
uint8_t Classes(char32_t codepoint) {
  const uint8_t classes = CharClass(codepoint);
  if (!kCutDigits) return static_cast<uint8_t>(classes & ~kCharDigitSplit);
  return (classes & kCharDigitSplit) != 0 ? uint8_t{kCharDigitSplit} : classes;
}

template <bool kCutDigits>
Char CharAt(std::string_view text, size_t i) {
  const auto byte = static_cast<uint8_t>(text[i]);
  if (byte < 0x80) return {byte, 1, Classes<kCutDigits>(byte)};
  const DecodedCodepoint d = DecodeUtf8(text, i);
  return {d.codepoint, d.size_bytes, d.valid ? Classes<kCutDigits>(d.codepoint) : uint8_t{0}};
}

// End of the longest run of characters, from `i`, that satisfy `predicate`.
template <bool kCutDigits, typename Predicate>
size_t RunEnd(std::string_view text, size_t i, Predicate predicate) {
  while (i < text.size()) {
    const Char c = CharAt<kCutDigits>(text, i);
    if (!predicate(c)) break;
    i += c.size_bytes;
  }
  return i;
}

bool IsLetter(const Char& c) { return c.letter(); }
bool IsNumber(const Char& c) { return c.number(); }
bool IsSymbol(const Char& c) { return c.symbol(); }

// A letter of a contraction, lower case, or 0; U+017F folds to s where the pattern ignores case.
char FoldLetter(const Char& c, bool ignore_case) {
  if (c.codepoint >= 'a' && c.codepoint <= 'z') return static_cast<char>(c.codepoint);
  if (!ignore_case) return 0;
  if (c.codepoint >= 'A' && c.codepoint <= 'Z') return static_cast<char>(c.codepoint - 'A' + 'a');
  return c.codepoint == 0x17F ? 's' : 0;
}

// End of 's 't 're 've 'm 'll 'd at `begin`, which holds an apostrophe; `begin` if there is none.
size_t ContractionEnd(std::string_view text, size_t begin, bool ignore_case) {
  size_t i = begin + 1;
  if (i >= text.size()) return begin;
  const Char first_char = CharAt<false>(text, i);
  const char first = FoldLetter(first_char, ignore_case);
  i += first_char.size_bytes;
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return i;
  if (i >= text.size()) return begin;
  const Char second_char = CharAt<false>(text, i);
  const char second = FoldLetter(second_char, ignore_case);
  const bool match = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
  return match ? i + second_char.size_bytes : begin;
}

// \s+(?!\S)|\s+ at `begin`, which holds a space: a run gives its last space to the word that follows,
// unless it is the only one. Nothing follows a run before a cut.
template <bool kCutDigits>
size_t SpaceEnd(std::string_view text, size_t begin) {
  size_t i = begin, last = begin;
  while (i < text.size()) {
    const Char c = CharAt<kCutDigits>(text, i);
    if (!c.space()) return last > begin && !c.cut() ? last : i;
    last = i;
    i += c.size_bytes;
  }
  return i;
}

// \s*[\r\n]+ at `begin`: through the last newline of the run of spaces; `begin` if there is none.
size_t NewlineEnd(std::string_view text, size_t begin) {
  size_t end = begin;
  for (size_t i = begin; i < text.size();) {
    const Char c = CharAt<false>(text, i);
    if (!c.space()) break;
    i += c.size_bytes;
    if (c.newline()) end = i;
  }
  return end;
}

template <bool kCutDigits>
size_t Gpt2End(std::string_view text, size_t begin) {
  const Char first = CharAt<kCutDigits>(text, begin);
  if (first.cut()) return begin + first.size_bytes;
  if (first.codepoint == '\'') {
    if (const size_t end = ContractionEnd(text, begin, false); end > begin) return end;
  }
  size_t body = begin;
  if (first.codepoint == ' ') {
    if (begin + 1 == text.size()) return begin + 1;
    body = begin + 1;
  }
  const Char c = body == begin ? first : CharAt<kCutDigits>(text, body);
  if (c.letter()) return RunEnd<kCutDigits>(text, body, IsLetter);
  if (c.number()) return RunEnd<kCutDigits>(text, body, IsNumber);
  if (c.symbol()) return RunEnd<kCutDigits>(text, body, IsSymbol);
  return SpaceEnd<kCutDigits>(text, begin);
}

// kQwen2 and kLlama3, which differ in how many digits a piece holds.
size_t Qwen2End(std::string_view text, size_t begin, int max_digits) {
  const Char first = CharAt<false>(text, begin);
  if (first.letter()) return RunEnd<false>(text, begin, IsLetter);
  if (first.codepoint == '\'') {
    if (const size_t end = ContractionEnd(text, begin, true); end > begin) return end;
  }
  if (first.number()) {
    size_t end = begin + first.size_bytes;
    for (int digits = 1; digits < max_digits && end < text.size(); ++digits) {
      const Char c = CharAt<false>(text, end);
      if (!c.number()) break;
      end += c.size_bytes;
    }
    return end;
  }
  const size_t next = begin + first.size_bytes;
  const bool has_next = next < text.size();
  const Char second = has_next ? CharAt<false>(text, next) : Char{};
  if (has_next && second.letter() && !first.newline()) return RunEnd<false>(text, next, IsLetter);
  if (first.symbol() || (first.codepoint == ' ' && has_next && second.symbol())) {
    const size_t end = RunEnd<false>(text, first.symbol() ? begin : next, IsSymbol);
    return RunEnd<false>(text, end, [](const Char& c) { return c.newline(); });
  }
  if (const size_t end = NewlineEnd(text, begin); end > begin) return end;
  return SpaceEnd<false>(text, begin);
}

}  // namespace

size_t PieceEnd(Splitter splitter, std::string_view text, size_t begin) {
  switch (splitter) {
    case Splitter::kGpt2:
      return Gpt2End<false>(text, begin);
    case Splitter::kQwen2:
      return Qwen2End(text, begin, 1);
    case Splitter::kLlama3:
      return Qwen2End(text, begin, 3);
    case Splitter::kSmolLm:
      return Gpt2End<true>(text, begin);
    case Splitter::kNone:
      break;
  }
  return text.size();
}

}  // namespace pocketlm
