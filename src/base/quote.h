// Text from files made fit for error messages, which stay one short line of valid UTF-8 whatever a file holds.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pocketlm {

// At most `max_bytes` of `text`, cut between characters and then with "…" at the end. A control character
// becomes '?', an ill-formed part U+FFFD.
std::string Shorten(std::string_view text, size_t max_bytes = 100);

// The same in single quotes.
std::string Quote(std::string_view text, size_t max_bytes = 100);

}  // namespace pocketlm
