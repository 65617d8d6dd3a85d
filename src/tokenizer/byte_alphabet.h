// How vocabularies spell single bytes: GPT-2's alphabet of printable characters for byte-level BPE, "<0x0A>" for
// SentencePiece's byte fallback.
#pragma once

#include <string>
#include <string_view>

namespace pocketlm {

// Appends the character of `byte` in GPT-2's alphabet (UTF-8) to *out.
void AppendByteCharacter(unsigned char byte, std::string* out);

// Appends the bytes that `piece` spells. False, with *out unchanged, if a character is not of the alphabet.
bool DecodeByteAlphabet(std::string_view piece, std::string* out);

// The byte of "<0x00>" to "<0xFF>" (upper case), or -1.
int ParseByteToken(std::string_view piece);

}  // namespace pocketlm
