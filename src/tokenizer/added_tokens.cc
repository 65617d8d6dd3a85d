#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/utf8.h"

namespace pocketlm {
namespace {

// Start of the character that ends at `end` > 0; an ill-formed byte is a character of its own.
size_t PreviousStart(std::string_view text, size_t end) {
  for (size_t back = 1; back <= 4 && back <= end; ++back) {
    const DecodedCodepoint d = DecodeUtf8(text.substr(0, end), end - back);
    if (d.valid && d.size_bytes == back) return end - back;
  }
  return end - 1;
}

bool HasClass(std::string_view text, size_t i, uint8_t char_class) {
  const DecodedCodepoint d = DecodeUtf8(text, i);
  return d.valid && (CharClass(d.codepoint) & char_class);
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && HasClass(text, PreviousStart(text, begin), kCharWord)) return false;
  return end == text.size() || !HasClass(text, end, kCharWord);
}

size_t StripLeft(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const size_t start = PreviousStart(text, begin);
    if (start < limit || !HasClass(text, start, kCharSpace)) break;
    begin = start;
  }
  return begin;
}

size_t StripRight(std::string_view text, size_t end) {
  while (end < text.size() && HasClass(text, end, kCharSpace))
    end += DecodeUtf8(text, end).size_bytes;
  return end;
}

enum class Overlap { kNone, kPartial, kInside };

// How [begin, end) lies to `ranges`; *hint is the first range that ends after begin, and only grows.
Overlap Locate(const std::vector<ByteRange>& ranges, size_t* hint, size_t begin, size_t end) {
  while (*hint < ranges.size() && ranges[*hint].end <= begin) ++*hint;
  if (*hint == ranges.size() || ranges[*hint].begin >= end) return Overlap::kNone;
  return ranges[*hint].begin <= begin && end <= ranges[*hint].end ? Overlap::kInside
                                                                  : Overlap::kPartial;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  // std::string compares bytes as unsigned, so equal first bytes are neighbours in ascending order.
  for (const AddedToken& t : tokens_) ++first_byte_[static_cast<uint8_t>(t.content[0]) + 1u];
  for (size_t b = 0; b < 256; ++b) first_byte_[b + 1] += first_byte_[b];
}

AddedTokenMatcher::Match AddedTokenMatcher::MatchAt(std::string_view text, size_t begin,
                                                    const ControlPolicy& policy,
                                                    size_t* hint) const {
  const auto first = static_cast<uint8_t>(text[begin]);
  auto low = tokens_.begin() + first_byte_[first];
  auto high = tokens_.begin() + first_byte_[first + 1u];
  Match best;
  // The candidates agree with the text on `length` bytes; a token of that length sorts first.
  for (size_t length = 1; low != high; ++length) {
    if (low->content.size() == length) {
      const size_t end = begin + length;
      const Overlap overlap = !low->control || policy.literal == nullptr
                                  ? Overlap::kNone
                                  : Locate(*policy.literal, hint, begin, end);
      if (!low->control || (policy.allowed && overlap == Overlap::kNone)) {
        best = {&*low, end};
      } else if (overlap != Overlap::kPartial) {
        best = {nullptr, end};
      }
      ++low;
    }
    if (begin + length == text.size()) break;
    const char next = text[begin + length];
    const auto less = [length](const AddedToken& t, char c) {
      return static_cast<uint8_t>(t.content[length]) < static_cast<uint8_t>(c);
    };
    const auto greater = [length](char c, const AddedToken& t) {
      return static_cast<uint8_t>(c) < static_cast<uint8_t>(t.content[length]);
    };
    low = std::lower_bound(low, high, next, less);
    high = std::upper_bound(low, high, next, greater);
  }
  return best;
}

std::vector<AddedTokenMatcher::Span> AddedTokenMatcher::Split(std::string_view text,
                                                              const ControlPolicy& policy) const {
  std::vector<Span> spans;
  size_t covered = 0;  // end of the last span
  size_t hint = 0;
  for (size_t i = 0; i < text.size() && !tokens_.empty();) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (first_byte_[byte] == first_byte_[byte + 1u]) {
      ++i;
      continue;
    }
    const Match match = MatchAt(text, i, policy, &hint);
    if (match.end == 0) {
      ++i;
      continue;
    }
    const AddedToken* token = match.token;
    size_t begin = i, end = match.end;
    i = match.end;
    if (token == nullptr || (token->single_word && !StandsAlone(text, begin, end))) continue;
    if (token->lstrip) begin = std::max(StripLeft(text, begin, 0), covered);
    // Inside what a token before it has taken; the package fails here.
    if (begin > end) continue;
    if (token->rstrip) end = StripRight(text, end);
    if (covered < begin) spans.push_back({-1, {covered, begin}});
    spans.push_back({token->id, {begin, end}});
    covered = end;
  }
  if (covered < text.size()) spans.push_back({-1, {covered, text.size()}});
  return spans;
}

}  // namespace pocketlm
