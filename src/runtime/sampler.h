// Chooses the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"

namespace pocketlm {

// What is off by default changes nothing. Order of work: logit bias, repetition penalty, presence and frequency
// penalties, temperature, top-k, top-p, min-p (the order of Transformers' processors and warpers).
struct SamplerOptions {
  float temperature = 0.0f;  // 0: greedy. Tiny values are safe and equal greedy in effect.
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // 1: off; 0 keeps the most likely token
  float min_p = 0.0f;        // 0: off; keeps tokens of at least min_p times the largest probability
  // > 0; the logit of a token seen in prompt or answer is divided by it if positive, else multiplied.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   // subtracted once from each token of the answer
  float frequency_penalty = 0.0f;  // subtracted for each occurrence in the answer
  uint64_t seed = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // −infinity bans a token
};

// kInvalidArgument for values that make no sense (negative temperature, NaN, bias of an unknown token).
Status ValidateSamplerOptions(const SamplerOptions& options, int32_t vocab_size);

// The random numbers of one answer: PCG32 (O'Neill 2014, XSH-RR 64/32), the same on every platform.
class Pcg32 {
 public:
  explicit Pcg32(uint64_t seed);
  uint32_t Next();
  double NextUnit();  // in [0, 1), 53 random bits

 private:
  uint64_t state_;
};

// One answer's sampler. Not thread-safe.
class Sampler {
 public:
  // `options` must be valid for `vocab_size`, the number of tokens that may be chosen: ids at and above it,
  // padding rows of the head, never are.
  Sampler(SamplerOptions options, int32_t vocab_size);

  // Tells what the prompt holds, for the repetition penalty.
  void ObservePrompt(std::span<const int32_t> ids);

  // Picks a token; it counts as part of the answer from then on. `logits` has at least vocab_size values; they are
  // copied only where a bias or a penalty changes some. Ties go to the lowest id. kInternal if no logit is finite
  // (NaN counts as not finite).
  Result<int32_t> Sample(std::span<const float> logits);

 private:
  struct Candidate {
    int32_t id;
    float logit;
    double probability;
  };

  bool ChangesLogits() const;
  void Penalize(std::span<float> logits) const;
  Result<int32_t> Greedy(std::span<const float> logits) const;
  Status CollectCandidates(std::span<const float> logits);
  void KeepTopP();
  void KeepMinP();

  SamplerOptions options_;
  int32_t vocab_size_;
  Pcg32 random_;
  std::vector<bool> seen_;  // [vocab_size], only if a repetition penalty is on
  std::unordered_map<int32_t, uint32_t> answer_counts_;
  std::vector<Candidate> candidates_;  // most likely first
  std::vector<float> changed_;         // [vocab_size], the logits after biases and penalties
};

}  // namespace pocketlm
