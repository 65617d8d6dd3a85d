// Finds stop texts in a stream of text pieces, across their borders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pocketlm {

// One answer's matcher. Text that may still become a stop text is held back, so nothing of a stop text is ever
// emitted. Not thread-safe.
class StopMatcher {
 public:
  // Empty stop texts are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Takes the next piece and returns what can be emitted now. With the piece that completes a stop text: what
  // stands before it (of several completed at once, before the one that begins first); then nothing more.
  std::string Push(std::string_view piece);

  // The answer is over: what was held back.
  std::string Flush();

  bool matched() const { return matched_; }

 private:
  // Length of the longest end of held_ that begins some stop text.
  size_t HoldLength() const;

  std::vector<std::string> stops_;
  std::string held_;  // not emitted yet; shorter than the longest stop text between calls
  bool matched_ = false;
};

}  // namespace pocketlm
