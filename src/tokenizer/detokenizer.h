// Ids of a stream to text, one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace pocketlm {

// Emits complete characters only: bytes that may still become one wait for the next token. All results
// joined, Flush included, equal Tokenizer::Decode of all ids. One object per stream; not thread-safe.
class IncrementalDetokenizer {
 public:
  // `tokenizer` must outlive the object. With skip_special, control tokens give no text.
  explicit IncrementalDetokenizer(const Tokenizer* tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; often empty. An id that is not valid gives none.
  std::string Push(int32_t id);

  // The text of bytes that came without a token (a stream replayed by bytes).
  std::string PushBytes(std::string_view bytes);

  // Ends the stream: U+FFFD if a character is unfinished. The object then starts anew.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool at_start_ = true;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace pocketlm
