// Character classes and canonical composition, exactly as the Hugging Face `tokenizers` package sees them.
// The data is probed from that package (tools/make_unicode_tables.py), so its Unicode versions are ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm {

// Bits of CharClass.
enum : uint8_t {
  kCharLetter = 1,        // \p{L} of the split patterns
  kCharNumber = 2,        // \p{N} of the split patterns
  kCharSpace = 4,         // \s
  kCharDigitSplit = 8,    // what the Digits pre-tokenizer splits off
  kCharWord = 16,         // \w at the borders of single_word tokens
  kCharNfcInteracts = 32  // may change under NFC, alone or with what stands before it
};

// The classes of a code point; 0 above U+10FFFF and for kReplacementCharacter.
uint8_t CharClass(char32_t codepoint);

// Half-open range of byte offsets.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

// Appends the NFC form of `text` to *out. Ill-formed bytes stay as they are and separate what is around
// them. Time is linear in the text (n log n within one run of combining marks).
//
// If `marks` is not null, it holds sorted, disjoint ranges of `text`, and *out_marks receives the ranges
// of *out that come from them; a character composed from marked and unmarked bytes counts as marked.
void AppendNfc(std::string_view text, const std::vector<ByteRange>* marks, std::string* out,
               std::vector<ByteRange>* out_marks);

}  // namespace pocketlm
