#include "base/quote.h"

#include "base/utf8.h"

namespace pocketlm {

std::string Shorten(std::string_view text, size_t max_bytes) {
  const bool cut = text.size() > max_bytes;
  text = text.substr(0, max_bytes);
  if (cut) text.remove_suffix(IncompleteUtf8Suffix(text));
  std::string out = ReplaceInvalidUtf8(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (cut) out += "…";
  return out;
}

std::string Quote(std::string_view text, size_t max_bytes) {
  return "'" + Shorten(text, max_bytes) + "'";
}

}  // namespace pocketlm
