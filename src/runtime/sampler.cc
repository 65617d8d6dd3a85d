#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace pocketlm {
namespace {

Status BadOption(const char* name, const char* expected, double got) {
  return InvalidArgument("sampling: " + std::string(name) + ": expected " + expected + ", got " +
                         std::to_string(got));
}

constexpr int32_t kNotFinite = std::numeric_limits<int32_t>::min();

// A float as an integer of the same order, −0 equal to 0; what is not finite is kNotFinite, below all. Integers and
// no branch, because g++ 12 vectorizes that and no comparison of floats.
inline int32_t OrderedKey(float value) {
  const auto bits = std::bit_cast<int32_t>(value + 0.0f);
  const int32_t finite = ((bits & 0x7FFFFFFF) - 0x7F800000) >> 31;  // all bits or none
  const int32_t key = bits ^ (bits >> 31 & 0x7FFFFFFF);
  return (key & finite) | (kNotFinite & ~finite);
}

int32_t LargestKey(std::span<const float> values) {
  const float* value = values.data();
  const size_t size = values.size();
  int32_t largest = kNotFinite;
  for (size_t i = 0; i < size; ++i) largest = std::max(largest, OrderedKey(value[i]));
  return largest;
}

constexpr uint64_t kPcgMultiplier = 6364136223846793005u;
constexpr uint64_t kPcgIncrement = 1442695040888963407u;

}  // namespace

Status ValidateSamplerOptions(const SamplerOptions& o, int32_t vocab_size) {
  if (!(o.temperature >= 0.0f) || std::isinf(o.temperature))
    return BadOption("temperature", "a number ≥ 0", o.temperature);
  if (o.top_k < 0) return BadOption("top_k", "a number ≥ 0", o.top_k);
  if (!(o.top_p >= 0.0f && o.top_p <= 1.0f)) return BadOption("top_p", "0 to 1", o.top_p);
  if (!(o.min_p >= 0.0f && o.min_p <= 1.0f)) return BadOption("min_p", "0 to 1", o.min_p);
  if (!(o.repetition_penalty > 0.0f) || std::isinf(o.repetition_penalty)) {
    return BadOption("repetition_penalty", "a number > 0", o.repetition_penalty);
  }
  if (!std::isfinite(o.presence_penalty))
    return BadOption("presence_penalty", "a finite number", o.presence_penalty);
  if (!std::isfinite(o.frequency_penalty))
    return BadOption("frequency_penalty", "a finite number", o.frequency_penalty);
  for (const auto& [id, bias] : o.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("sampling: logit_bias: expected a token below " +
                             std::to_string(vocab_size) + ", got " + std::to_string(id));
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return BadOption("logit_bias", "a finite number or -infinity", bias);
    }
  }
  return OkStatus();
}

Pcg32::Pcg32(uint64_t seed) : state_((seed + kPcgIncrement) * kPcgMultiplier + kPcgIncrement) {}

uint32_t Pcg32::Next() {
  const uint64_t old = state_;
  state_ = old * kPcgMultiplier + kPcgIncrement;
  const uint32_t shifted = static_cast<uint32_t>(((old >> 18) ^ old) >> 27);
  const uint32_t rotation = static_cast<uint32_t>(old >> 59);
  return (shifted >> rotation) | (shifted << ((32 - rotation) & 31));
}

double Pcg32::NextUnit() {
  const uint64_t high = Next() >> 5, low = Next() >> 6;
  return (static_cast<double>(high) * 67108864.0 + static_cast<double>(low)) * 0x1p-53;
}

Sampler::Sampler(SamplerOptions options, int32_t vocab_size)
    : options_(std::move(options)), vocab_size_(vocab_size), random_(options_.seed) {
  if (options_.repetition_penalty != 1.0f) seen_.resize(static_cast<size_t>(vocab_size));
}

void Sampler::ObservePrompt(std::span<const int32_t> ids) {
  if (seen_.empty()) return;
  for (int32_t id : ids) {
    if (id >= 0 && id < vocab_size_) seen_[static_cast<size_t>(id)] = true;
  }
}

bool Sampler::ChangesLogits() const {
  return !options_.logit_bias.empty() || !seen_.empty() || options_.presence_penalty != 0.0f ||
         options_.frequency_penalty != 0.0f;
}

void Sampler::Penalize(std::span<float> logits) const {
  for (const auto& [id, bias] : options_.logit_bias) logits[static_cast<size_t>(id)] += bias;
  for (size_t id = 0; id < seen_.size(); ++id) {
    if (!seen_[id]) continue;
    float& logit = logits[id];
    logit =
        logit > 0.0f ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
  }
  if (options_.presence_penalty == 0.0f && options_.frequency_penalty == 0.0f) return;
  for (const auto& [id, count] : answer_counts_) {
    logits[static_cast<size_t>(id)] -=
        options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
  }
}

Result<int32_t> Sampler::Greedy(std::span<const float> logits) const {
  constexpr size_t kBlock = 256;
  const size_t size = static_cast<size_t>(vocab_size_);
  int32_t best = kNotFinite;
  size_t best_begin = 0;
  for (size_t begin = 0; begin < size; begin += kBlock) {
    const int32_t largest = LargestKey(logits.subspan(begin, std::min(kBlock, size - begin)));
    if (largest > best) {
      best = largest;
      best_begin = begin;
    }
  }
  if (best == kNotFinite) return Internal("sampling: no token has a finite logit");
  size_t id = best_begin;
  while (OrderedKey(logits[id]) != best) ++id;
  return static_cast<int32_t>(id);
}

// Fills candidates_ with the finite logits after top-k, most likely first, probabilities relative to the first.
Status Sampler::CollectCandidates(std::span<const float> logits) {
  candidates_.clear();
  for (int32_t id = 0; id < vocab_size_; ++id) {
    const float logit = logits[static_cast<size_t>(id)];
    if (std::isfinite(logit)) candidates_.push_back({id, logit, 0.0});
  }
  if (candidates_.empty()) return Internal("sampling: no token has a finite logit");
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const size_t top_k = static_cast<size_t>(options_.top_k);
  if (top_k > 0 && top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(top_k),
                     candidates_.end(), more_likely);
    candidates_.resize(top_k);
  }
  const Candidate best = *std::min_element(candidates_.begin(), candidates_.end(), more_likely);
  // Subtracting the largest logit first keeps every quotient ≤ 0, so no temperature overflows; a zero difference
  // stays zero even where the temperature is so small that 0 / temperature would be undefined.
  for (Candidate& c : candidates_) {
    const double difference = static_cast<double>(c.logit) - static_cast<double>(best.logit);
    c.probability =
        difference == 0.0 ? 1.0 : std::exp(difference / static_cast<double>(options_.temperature));
  }
  // Tokens that cannot be drawn need no sorting; with a usual temperature that is most of a vocabulary.
  std::erase_if(candidates_, [](const Candidate& c) { return c.probability < 1e-12; });
  std::sort(candidates_.begin(), candidates_.end(), more_likely);
  return OkStatus();
}

// Keeps the shortest beginning whose probability reaches top_p, at least one token.
void Sampler::KeepTopP() {
  if (options_.top_p >= 1.0f) return;
  double total = 0.0;
  for (const Candidate& c : candidates_) total += c.probability;
  double sum = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += candidates_[i].probability;
    if (sum >= static_cast<double>(options_.top_p) * total) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

void Sampler::KeepMinP() {
  if (options_.min_p <= 0.0f) return;
  const double floor = static_cast<double>(options_.min_p) * candidates_.front().probability;
  size_t keep = 1;
  while (keep < candidates_.size() && candidates_[keep].probability >= floor) ++keep;
  candidates_.resize(keep);
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  POCKETLM_CHECK(logits.size() >= static_cast<size_t>(vocab_size_));
  if (ChangesLogits()) {
    changed_.assign(logits.begin(), logits.begin() + vocab_size_);
    Penalize(changed_);
    logits = changed_;
  }
  int32_t chosen = 0;
  if (options_.temperature == 0.0f) {
    POCKETLM_ASSIGN_OR_RETURN(chosen, Greedy(logits));
  } else {
    POCKETLM_RETURN_IF_ERROR(CollectCandidates(logits));
    KeepTopP();
    KeepMinP();
    double total = 0.0;
    for (const Candidate& c : candidates_) total += c.probability;
    double left = random_.NextUnit() * total;
    chosen = candidates_.back().id;
    for (const Candidate& c : candidates_) {
      left -= c.probability;
      if (left < 0.0) {
        chosen = c.id;
        break;
      }
    }
  }
  ++answer_counts_[chosen];
  if (!seen_.empty()) seen_[static_cast<size_t>(chosen)] = true;
  return chosen;
}

}  // namespace pocketlm
