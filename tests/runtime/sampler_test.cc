// The greedy choice against its definition, on logits that are hard to compare.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/test_support.h"

namespace pocketlm::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The lowest id of the largest finite logit; -1 if there is none.
int32_t Definition(const std::vector<float>& logits, size_t size) {
  int32_t best = -1;
  for (size_t i = 0; i < size; ++i) {
    if (std::isfinite(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  }
  return best;
}

void ExpectDefinition(const std::vector<float>& logits, size_t size) {
  Sampler sampler({}, static_cast<int32_t>(size));
  const auto chosen = sampler.Sample(logits);
  const int32_t expected = Definition(logits, size);
  if (expected < 0) {
    EXPECT_EQ(chosen.status().code(), StatusCode::kInternal);
  } else {
    ASSERT_OK(chosen);
    EXPECT_EQ(*chosen, expected) << size;
  }
}

TEST(GreedyTest, EveryPlaceOfTheLargestLogit) {
  for (const size_t size : {1, 2, 15, 16, 17, 255, 256, 257, 300, 515}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> logits(size + 3, -2.0f);
      logits[at] = -1.0f;
      logits[size] = logits[size + 1] = 100.0f;  // padding rows of the head
      ExpectDefinition(logits, size);
    }
  }
}

TEST(GreedyTest, TiesZerosAndValuesThatAreNotFinite) {
  Pcg32 random(7);
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f,
                          -1.0f,
                          kInf,
                          -kInf,
                          kNan,
                          -kNan,
                          std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::lowest(),
                          std::numeric_limits<float>::denorm_min()};
  for (int round = 0; round < 2000; ++round) {
    const size_t size = 1 + random.Next() % 700;
    // Few values in a round, so that ties and rounds without a finite one are common.
    const float choice[] = {values[random.Next() % 11], values[random.Next() % 11],
                            values[random.Next() % 11]};
    std::vector<float> logits(size);
    for (float& logit : logits) logit = choice[random.Next() % 3];
    ExpectDefinition(logits, size);
  }
  ExpectDefinition(std::vector<float>(600, kNan), 600);
  ExpectDefinition(std::vector<float>(600, -kInf), 600);
  ExpectDefinition(std::vector<float>(600, kInf), 600);
}

TEST(GreedyTest, LogitsAreNotChangedByBiasAndPenalties) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f};
  SamplerOptions options;
  options.logit_bias = {{1, -kInf}};
  options.frequency_penalty = 5.0f;
  Sampler sampler(options, 3);
  EXPECT_EQ(*sampler.Sample(logits), 2);
  EXPECT_EQ(*sampler.Sample(logits), 0);
  EXPECT_EQ(logits, (std::vector<float>{1.0f, 3.0f, 2.0f}));
}

}  // namespace
}  // namespace pocketlm::testing
