// Finds added tokens (control and user-defined) in text, as the `tokenizers` package's AddedVocabulary does.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace pocketlm {

struct AddedToken {
  int32_t id = 0;
  std::string content;  // not empty
  bool control = false;
  bool lstrip = false;
  bool rstrip = false;
  bool single_word = false;
};

// Which control tokens may match.
struct ControlPolicy {
  bool allowed = false;
  // If set, control tokens match only where they touch none of these sorted, disjoint ranges of the text.
  const std::vector<ByteRange>* literal = nullptr;
};

// Immutable; safe from any thread.
class AddedTokenMatcher {
 public:
  struct Span {
    int32_t id = -1;  // -1: text between tokens
    ByteRange range;
  };

  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  bool empty() const { return tokens_.empty(); }

  // Cuts `text` into added tokens (leftmost, longest) and the text between them, without empty spans.
  // A control token that the policy forbids is text, and what it covers is not searched again; where it
  // only touches a literal range, shorter tokens and later starts are tried.
  // Time: text size × the longest token that nearly matches.
  std::vector<Span> Split(std::string_view text, const ControlPolicy& policy) const;

 private:
  struct Match {
    const AddedToken* token = nullptr;  // nullptr with end > begin: skip to end
    size_t end = 0;
  };
  Match MatchAt(std::string_view text, size_t begin, const ControlPolicy& policy,
                size_t* hint) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  // Tokens [first_byte_[b], first_byte_[b + 1]) begin with byte b.
  std::array<uint32_t, 257> first_byte_{};
};

}  // namespace pocketlm
