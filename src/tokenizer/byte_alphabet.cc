#include "tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace pocketlm {
namespace {

// Printable Latin-1 stands for itself; the other 68 bytes, in order, are U+0100 and up.
struct Alphabet {
  std::array<char16_t, 256> to_char{};
  std::array<int16_t, 0x144> to_byte{};

  Alphabet() {
    to_byte.fill(-1);
    char16_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      const char16_t c = printable ? static_cast<char16_t>(b) : next++;
      to_char[static_cast<size_t>(b)] = c;
      to_byte[c] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& Table() {
  static const Alphabet alphabet;
  return alphabet;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

void AppendByteCharacter(unsigned char byte, std::string* out) {
  AppendUtf8(Table().to_char[byte], out);
}

bool DecodeByteAlphabet(std::string_view piece, std::string* out) {
  const Alphabet& table = Table();
  const size_t before = out->size();
  for (size_t i = 0; i < piece.size();) {
    const DecodedCodepoint d = DecodeUtf8(piece, i);
    if (d.codepoint >= table.to_byte.size() || table.to_byte[d.codepoint] < 0) {
      out->resize(before);
      return false;
    }
    out->push_back(static_cast<char>(table.to_byte[d.codepoint]));
    i += d.size_bytes;
  }
  return true;
}

int ParseByteToken(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  const int high = HexDigit(piece[3]), low = HexDigit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace pocketlm
