// How much a model differs from another one: the work of `pocketlm diff`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/session.h"

namespace pocketlm {

// Next-token distributions p of a and q of b at one position, in double.
struct LogitsComparison {
  double kl = 0.0;     // Σ p · ln(p / q), at least 0
  double nll_a = 0.0;  // −ln p(id)
  double nll_b = 0.0;
  bool same_top = false;  // both find the same id likeliest; of equal ones the first counts
};

// Compares the softmax of two rows of equal length at `id`. A row that is not finite makes a figure NaN.
LogitsComparison CompareLogits(std::span<const float> a, std::span<const float> b, int32_t id);

// Figures of a text, or of several together.
struct ComparisonResult {
  PerplexityResult a, b;   // of the same tokens
  uint64_t positions = 0;  // compared; the tokens but for a first one that no model has predicted
  double kl_mean = 0.0;    // nats, as the next two
  double kl_p99 = 0.0;     // 99th percentile, interpolated linearly between the two nearest
  double kl_max = 0.0;
  double top1_agreement = 0.0;  // share of positions with same_top
};

// kInvalidArgument if texts do not become the same tokens: the message says where the vocabularies differ. A
// vocabulary may have unused ids after the last one of the other (rows of padding).
Status CheckSameTokens(const Tokenizer& a, const Tokenizer& b);

// Compares session b's model with session a's, the reference, text by text, over the tokens that both vocabularies
// have. Memory: a chunk's logits and a number per position. One call at a time.
class Comparison {
 public:
  // The sessions must outlive the comparison; they may be of one model, with other types of keys and values.
  // kInvalidArgument: contexts of different lengths, or different tokens (CheckSameTokens).
  static Result<Comparison> Create(Session* a, Session* b, const PerplexityOptions& options);

  // Compares on one text, in windows as Session::Perplexity. On failure the text does not count.
  // kInvalidArgument: a text that is too short, or that the tokenizers cut differently. kBusy. kCancelled by
  // Cancel of a session or by `progress`. kInternal: logits that are not finite.
  Result<ComparisonResult> Add(std::string_view text, const ProgressSink& progress);

  // Of all texts.
  ComparisonResult Total() const;

 private:
  // Sums of texts.
  struct Sums {
    PerplexityResult a, b;
    uint64_t same_top = 0;
    std::vector<double> kl;  // of each position
    void Count(size_t bytes, double nll_a, double nll_b);
    ComparisonResult Summary() const;
  };

  Comparison(Session* a, Session* b, const PerplexityOptions& options)
      : a_(a), b_(b), options_(options) {}
  Status Measure(std::string_view text, const ProgressSink& progress, Sums* sums) const;

  Session* a_;
  Session* b_;
  PerplexityOptions options_;
  Sums total_;
};

}  // namespace pocketlm
