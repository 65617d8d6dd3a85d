// The split patterns of byte-level BPE tokenizers as hand-written matchers: linear time, no recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pocketlm {

enum class Splitter : uint8_t {
  kNone,  // the whole text is one piece
  kGpt2,  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kQwen2,  // (?i:'s|…)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,  // as kQwen2 with \p{N}{1,3}
  kSmolLm,  // every digit on its own, then kGpt2 on what is between digits
};

// Where the piece that begins at text[begin] ends; begin < text.size(), and the result is > begin. Pieces
// taken one after the other, from 0, cover the text. Ill-formed UTF-8 counts as a symbol: no letter, no
// number, no space. Taking all pieces of a text is linear in its size.
size_t PieceEnd(Splitter splitter, std::string_view text, size_t begin);

}  // namespace pocketlm
