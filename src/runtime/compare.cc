#include "runtime/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/quote.h"
#include "runtime/text_windows.h"

namespace pocketlm {
namespace {

constexpr char kOtherMeasure[] =
    "; compare such models by perplexity, in bits per byte of all tokens";

// Of a sorted list that is not empty.
double Percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

// "17 'the'", "17, which has no token".
std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  if (id < 0) return "none";
  if (!tokenizer.IsValid(id)) return std::to_string(id) + ", which has no token";
  return std::to_string(id) + " " + Quote(tokenizer.Piece(id), 40);
}

Status Differs(const std::string& expected, const std::string& got) {
  return InvalidArgument("tokenizers: expected " + expected + " in both models, got " + got +
                         kOtherMeasure);
}

Status CheckBos(const Tokenizer& a, const Tokenizer& b) {
  const auto start = [](const Tokenizer& t) { return t.add_bos() ? t.bos_id() : int32_t{-1}; };
  if (start(a) == start(b)) return OkStatus();
  return Differs("the same token before a text",
                 TokenText(a, start(a)) + " and " + TokenText(b, start(b)));
}

}  // namespace

LogitsComparison CompareLogits(std::span<const float> a, std::span<const float> b, int32_t id) {
  const auto top_a = std::max_element(a.begin(), a.end());
  const auto top_b = std::max_element(b.begin(), b.end());
  const auto max_a = static_cast<double>(*top_a), max_b = static_cast<double>(*top_b);
  double sum_a = 0.0, sum_b = 0.0;
  double difference = 0.0;  // Σ exp(a − max_a) · (a − b), both from their largest
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]) - max_a;
    const double y = static_cast<double>(b[i]) - max_b;
    const double weight = std::exp(x);
    sum_a += weight;
    sum_b += std::exp(y);
    difference += weight * (x - y);
  }
  const double log_a = std::log(sum_a), log_b = std::log(sum_b);
  const double kl = difference / sum_a - log_a + log_b;
  const auto at = static_cast<size_t>(id);
  return {.kl = kl < 0.0 ? 0.0 : kl,  // rounding may leave a little below; NaN stays
          .nll_a = log_a + max_a - static_cast<double>(a[at]),
          .nll_b = log_b + max_b - static_cast<double>(b[at]),
          .same_top = top_a - a.begin() == top_b - b.begin()};
}

Status CheckSameTokens(const Tokenizer& a, const Tokenizer& b) {
  const int32_t common = std::min(a.vocab_size(), b.vocab_size());
  const std::string sizes = " (vocabularies of " + std::to_string(a.vocab_size()) + " and " +
                            std::to_string(b.vocab_size()) + " ids)";
  for (int32_t id = 0; id < common; ++id) {
    if (a.IsUnused(id) && b.IsUnused(id)) continue;
    if (a.TokenBytes(id) == b.TokenBytes(id)) continue;
    return Differs("the same tokens", TokenText(a, id) + " and " + TokenText(b, id) + sizes);
  }
  const bool a_is_longer = a.vocab_size() > common;
  const Tokenizer& longer = a_is_longer ? a : b;
  for (int32_t id = common; id < longer.vocab_size(); ++id) {
    if (longer.IsUnused(id)) continue;
    return Differs("the same tokens", TokenText(longer, id) + " in the " +
                                          (a_is_longer ? "first" : "second") + " one only" + sizes);
  }
  return CheckBos(a, b);
}

void Comparison::Sums::Count(size_t bytes, double nll_a, double nll_b) {
  for (PerplexityResult* result : {&a, &b}) {
    ++result->tokens;
    result->bytes += bytes;
  }
  a.nll += nll_a;
  b.nll += nll_b;
}

ComparisonResult Comparison::Sums::Summary() const {
  ComparisonResult out;
  out.a = a;
  out.b = b;
  out.positions = kl.size();
  if (kl.empty()) return out;
  std::vector<double> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  out.kl_mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  out.kl_p99 = Percentile(sorted, 0.99);
  out.kl_max = sorted.back();
  out.top1_agreement = static_cast<double>(same_top) / count;
  return out;
}

Result<Comparison> Comparison::Create(Session* a, Session* b, const PerplexityOptions& options) {
  if (a->context_length() != b->context_length()) {
    return InvalidArgument("compare: expected contexts of the same length, got " +
                           std::to_string(a->context_length()) + " and " +
                           std::to_string(b->context_length()) + " tokens");
  }
  const Status same = CheckSameTokens(a->model().tokenizer(), b->model().tokenizer());
  if (!same.ok()) return same.WithContext("compare");
  return Comparison(a, b, options);
}

Status Comparison::Measure(std::string_view text, const ProgressSink& progress, Sums* sums) const {
  const Tokenizer& tokenizer = a_->model().tokenizer();
  const Tokenizer& other = b_->model().tokenizer();
  if (tokenizer.Encode(text) != other.Encode(text))
    return Differs("the same cuts of a text", "other ones");
  POCKETLM_ASSIGN_OR_RETURN(const TextWindows windows,
                            TextWindows::Create(tokenizer, text, options_, a_->context_length()));
  const auto vocab_size = static_cast<size_t>(std::min(tokenizer.vocab_size(), other.vocab_size()));
  if (windows.first_is_unconditional()) {
    const double chance = std::log(static_cast<double>(vocab_size));
    sums->Count(tokenizer.TokenBytes(windows.first_token()).size(), chance, chance);
  }
  const auto compare = [&](int32_t id, std::span<const std::span<const float>> logits) -> Status {
    const LogitsComparison position =
        CompareLogits(logits[0].first(vocab_size), logits[1].first(vocab_size), id);
    if (!std::isfinite(position.kl) || !std::isfinite(position.nll_a + position.nll_b))
      return Internal("the logits of a model are not finite");
    sums->Count(tokenizer.TokenBytes(id).size(), position.nll_a, position.nll_b);
    sums->same_top += position.same_top ? 1 : 0;
    sums->kl.push_back(position.kl);
    return OkStatus();
  };
  POCKETLM_ASSIGN_OR_RETURN(WindowPass pass, WindowPass::Create({a_, b_}));
  return pass.Run(windows, progress, compare);
}

Result<ComparisonResult> Comparison::Add(std::string_view text, const ProgressSink& progress) {
  Sums sums;
  const Status status = Measure(text, progress, &sums);
  if (!status.ok()) return status.WithContext("compare");
  for (const auto& [total, part] : {std::pair{&total_.a, &sums.a}, {&total_.b, &sums.b}}) {
    total->tokens += part->tokens;
    total->bytes += part->bytes;
    total->nll += part->nll;
  }
  total_.same_top += sums.same_top;
  total_.kl.insert(total_.kl.end(), sums.kl.begin(), sums.kl.end());
  return sums.Summary();
}

ComparisonResult Comparison::Total() const { return total_.Summary(); }

}  // namespace pocketlm
