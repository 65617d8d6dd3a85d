// Names from files, made fit for error messages.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.h"

namespace pocketlm {

// 'text' in single quotes, at most `max_bytes` of it, with control characters and ill-formed UTF-8
// replaced, so that a message stays one short line whatever the file holds.
inline std::string Quote(std::string_view text, size_t max_bytes = 100) {
  const bool cut = text.size() > max_bytes;
  std::string out = ReplaceInvalidUtf8(text.substr(0, max_bytes));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return "'" + out + (cut ? "…'" : "'");
}

}  // namespace pocketlm
