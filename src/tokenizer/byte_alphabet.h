// GPT-2's byte alphabet: each byte as one printable character, so that byte-level vocabularies are text.
#pragma once

#include <string>
#include <string_view>

namespace pocketlm {

// Appends the character of `byte` (UTF-8) to *out.
void AppendByteCharacter(unsigned char byte, std::string* out);

// Appends the bytes that `piece` spells. False, with *out unchanged, if a character is not of the alphabet.
bool DecodeByteAlphabet(std::string_view piece, std::string* out);

}  // namespace pocketlm
