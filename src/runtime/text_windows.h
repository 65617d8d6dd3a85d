// Windows of a text for measuring models on it, and one or more sessions that compute them in step: what perplexity
// and comparisons share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/session.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {

// Tokens that are computed from an empty cache. Those from `first_scored` ≥ 1 on are scored.
struct TextWindow {
  std::vector<int32_t> ids;
  size_t first_scored = 1;
};

// A text cut as Session::Perplexity says. Immutable.
class TextWindows {
 public:
  // `window`: tokens of one, at least 4 unless options.score_all. kInvalidArgument: a text that is too short, or too
  // small a window.
  static Result<TextWindows> Create(const Tokenizer& tokenizer, std::string_view text,
                                    const PerplexityOptions& options, size_t window);

  size_t count() const { return count_; }
  TextWindow at(size_t index) const;
  // Whether the text's first token is scored with nothing before it: as likely as any token.
  bool first_is_unconditional() const { return first_is_unconditional_; }
  // The first token of the text. Requires first_is_unconditional().
  int32_t first_token() const { return ids_.front(); }

 private:
  bool score_all_ = false;
  bool first_is_unconditional_ = false;
  int32_t bos_ = -1;  // takes the place of a window's first token; -1: it stays
  size_t window_ = 0;
  size_t stride_ = 0;
  size_t count_ = 0;
  std::vector<int32_t> ids_;
};

// Receives a scored token and, from each session, the logits before it: [vocabulary of its tokenizer].
using ScoredTokenSink =
    std::function<Status(int32_t id, std::span<const std::span<const float>> logits)>;

// Runs windows on sessions. Memory: 16 rows of logits per session. One thread.
class WindowPass {
 public:
  // Takes the sessions, which are in use until this object is destroyed, and forgets their tokens: kBusy if a call
  // is running on one of them, also if it is given twice.
  static Result<WindowPass> Create(std::vector<Session*> sessions);

  // Computes all windows, each on every session before the next, and hands out the scored tokens in order. The
  // windows fit every context, their ids every vocabulary. kCancelled by a session's Cancel or by `progress`.
  Status Run(const TextWindows& windows, const ProgressSink& progress, const ScoredTokenSink& sink);

 private:
  explicit WindowPass(std::vector<Session*> sessions) : sessions_(std::move(sessions)) {}
  Status RunWindow(const TextWindow& window, const ScoredTokenSink& sink);
  Status ScoreRows(std::span<const int32_t> targets, size_t first_row, size_t end_row,
                   const ScoredTokenSink& sink);

  std::vector<Session*> sessions_;
  std::vector<Session::Lease> leases_;
  std::vector<std::vector<float>> logits_;  // of each session
};

}  // namespace pocketlm
