// Sampling (field cases SAM-D*): greedy, penalties, bias, seeds and the distributions themselves.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The answer's tokens to the prompt 'x'.
std::vector<int32_t> AnswerTokens(plm::Session* session, const plm_generate_options& options) {
  session->SetTokens({'x'});
  session->Generate(&options);
  std::vector<int32_t> tokens = session->Tokens();
  tokens.erase(tokens.begin());
  return tokens;
}

// ---- Greedy ----------------------------------------------------------------------------------------

TEST(GreedyTest, SamD1TinyTemperaturesAndTopPZeroAreArgmax) {
  ScriptedModel scripted;
  scripted.file.SetLogit('x', 'a', 40.0f);
  scripted.file.SetLogit('x', 'b', 39.5f);
  scripted.file.SetLogit('x', 'c', -40.0f);
  plm::Session session(scripted.Load());
  for (const float temperature : {0.0f, 1e-6f, 1e-30f, 1e-45f}) {
    plm_generate_options options = Greedy(1);
    options.temperature = temperature;
    EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'a'}) << temperature;
  }
  for (uint64_t seed = 0; seed < 50; ++seed) {
    plm_generate_options options = Greedy(1);
    options.temperature = 1.0f;
    options.top_p = 0.0f;
    options.seed = seed;
    EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'a'}) << seed;
    options.top_p = 1.0f;
    options.top_k = 1;
    EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'a'}) << seed;
  }
}

TEST(GreedyTest, SamD1LargeLogitsWithTopKOffStillSample) {
  ScriptedModel scripted;
  scripted.file.SetLogit('x', 'a', 40.0f);
  scripted.file.SetLogit('x', 'b', 40.0f);
  plm::Session session(scripted.Load());
  int count_a = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    plm_generate_options options = Greedy(1);
    options.temperature = 1.0f;
    options.top_k = 0;
    options.seed = seed;
    const std::vector<int32_t> tokens = AnswerTokens(&session, options);
    ASSERT_THAT(tokens, ::testing::AnyOf(std::vector<int32_t>{'a'}, std::vector<int32_t>{'b'}));
    count_a += tokens[0] == 'a';
  }
  EXPECT_GT(count_a, 60);
  EXPECT_LT(count_a, 140);
}

TEST(GreedyTest, OfEqualLogitsTheLowestIdWins) {
  ScriptedModel scripted;
  for (const int32_t token : {'q', 'd', 'z'}) scripted.file.SetLogit('x', token, 7.0f);
  plm::Session session(scripted.Load());
  EXPECT_EQ(AnswerTokens(&session, Greedy(1)), std::vector<int32_t>{'d'});
}

TEST(GreedyTest, OptionsOutOfRangeAreRefused) {
  ScriptedModel scripted;
  plm::Session session(scripted.Load());
  session.SetTokens({'x'});
  const auto refused = [&](auto change) {
    plm_generate_options options = Greedy(1);
    change(&options);
    return Try([&] { session.Generate(&options); }).status == PLM_INVALID_ARGUMENT;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->temperature = -1.0f; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->temperature = nan; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->top_k = -1; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->top_p = 1.5f; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->top_p = -0.1f; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->min_p = nan; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->repetition_penalty = 0.0f; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->repetition_penalty = nan; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->presence_penalty = kInfinity; }));
  EXPECT_TRUE(refused([&](plm_generate_options* o) { o->max_tokens = -2; }));
  EXPECT_EQ(session.Tokens(), std::vector<int32_t>{'x'});
  EXPECT_EQ(AnswerTokens(&session, Greedy(1)).size(), 1u);
}

// ---- Numerical failure -----------------------------------------------------------------------------

TEST(NumericalFailureTest, SamD2NanLogitsFailTheRequestOnly) {
  ScriptedModel broken, sound;
  broken.file.set_nan_norm();
  sound.file.Script('x', {"one"}, sound.eos);
  plm::Session broken_session(broken.Load()), sound_session(sound.Load());
  for (const float temperature : {0.0f, 1.0f}) {
    plm_generate_options options = Greedy(5);
    options.temperature = temperature;
    broken_session.SetTokens({'x'});
    const Outcome outcome = Try([&] { broken_session.Generate(&options); });
    EXPECT_EQ(outcome.status, PLM_INTERNAL);
    EXPECT_THAT(outcome.message, ::testing::HasSubstr("finite"));
    EXPECT_EQ(broken_session.Tokens(), std::vector<int32_t>{'x'})
        << "a failure keeps the tokens from before";
    broken_session.Reset();
    sound_session.SetTokens({'x'});
    EXPECT_EQ(sound_session.Generate().text, "one");
  }
}

TEST(NumericalFailureTest, SamD2EveryTokenBannedFailsTheRequestOnly) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one"}, scripted.eos);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  std::vector<plm_logit_bias> bias;
  for (int32_t id = 0; id < model.tokenizer().vocab_size(); ++id) bias.push_back({id, -kInfinity});
  for (const float temperature : {0.0f, 1.0f}) {
    plm_generate_options options = Greedy(5);
    options.temperature = temperature;
    options.logit_bias = bias.data();
    options.logit_bias_count = bias.size();
    session.SetTokens({'x'});
    EXPECT_EQ(Try([&] { session.Generate(&options); }).status, PLM_INTERNAL);
    EXPECT_EQ(session.Tokens(), std::vector<int32_t>{'x'});
    EXPECT_EQ(session.Generate().text, "one");
  }
}

// ---- Bias and penalties ----------------------------------------------------------------------------

TEST(LogitBiasTest, RaisesAndBansTokens) {
  ScriptedModel scripted;
  scripted.file.SetLogit('x', 'a', 10.0f);
  scripted.file.SetLogit('x', 'b', 9.0f);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  plm_generate_options options = Greedy(1);
  plm_logit_bias bias[] = {{'b', 0.5f}, {'b', 1.0f}};
  options.logit_bias = bias;
  options.logit_bias_count = 1;
  EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'a'});
  bias[0] = {'b', 1.5f};
  EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'b'});
  bias[0] = {'a', -kInfinity};
  EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{'b'});
  bias[0] = {model.tokenizer().vocab_size(), 1.0f};
  EXPECT_EQ(Try([&] { AnswerTokens(&session, options); }).status, PLM_INVALID_ARGUMENT);
  bias[0] = {'a', std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(Try([&] { AnswerTokens(&session, options); }).status, PLM_INVALID_ARGUMENT);
}

TEST(PenaltyTest, SamD3NegativeLogitsSinkToTheirProduct) {
  // 'x' was seen: its logit −2 becomes −3 with a penalty of 1.5, so it beats −3.1 and loses to −2.9.
  for (const float rival : {-2.9f, -3.1f}) {
    ScriptedModel scripted;
    for (int32_t id = 0; id < scripted.file.num_tokens(); ++id)
      scripted.file.SetLogit('x', id, -100.0f);
    scripted.file.SetLogit('x', 'x', -2.0f);
    scripted.file.SetLogit('x', 'r', rival);
    plm::Session session(scripted.Load());
    plm_generate_options options = Greedy(1);
    options.repetition_penalty = 1.5f;
    const int32_t expected = rival > -3.0f ? 'r' : 'x';
    EXPECT_EQ(AnswerTokens(&session, options), std::vector<int32_t>{expected}) << rival;
  }
}

// Logits of a random bigram table and a straightforward greedy sampler over them.
class ReferenceSampler {
 public:
  static constexpr int32_t kFirst = 'A';
  static constexpr int kTokens = 20;

  explicit ReferenceSampler(uint32_t seed) : table_(kTokens, std::vector<float>(kTokens)) {
    std::mt19937 rng(seed);
    std::uniform_real_distribution<float> logit(-4.0f, 4.0f);
    for (auto& row : table_) {
      for (float& value : row) value = std::round(logit(rng) * 64.0f) / 64.0f;
    }
  }

  plm::Model Load() const {
    ScriptedModel scripted;
    for (int from = 0; from < kTokens; ++from) {
      for (int32_t id = 0; id < scripted.file.num_tokens(); ++id)
        scripted.file.SetLogit(kFirst + from, id, -1000.0f);
      for (int to = 0; to < kTokens; ++to)
        scripted.file.SetLogit(kFirst + from, kFirst + to, table_[from][to]);
    }
    return scripted.Load(1);
  }

  std::vector<int32_t> Generate(std::vector<int32_t> tokens,
                                const plm_generate_options& options) const {
    const size_t prompt = tokens.size();
    while (tokens.size() < prompt + static_cast<size_t>(options.max_tokens)) {
      std::vector<float> logits = table_[static_cast<size_t>(tokens.back() - kFirst)];
      for (int i = 0; i < kTokens; ++i) {
        const bool seen = std::count(tokens.begin(), tokens.end(), kFirst + i) > 0;
        const auto said =
            std::count(tokens.begin() + static_cast<long>(prompt), tokens.end(), kFirst + i);
        if (seen)
          logits[i] = logits[i] > 0 ? logits[i] / options.repetition_penalty
                                    : logits[i] * options.repetition_penalty;
        if (said > 0) logits[i] -= options.presence_penalty;
        logits[i] -= options.frequency_penalty * static_cast<float>(said);
      }
      tokens.push_back(
          kFirst +
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return tokens;
  }

 private:
  std::vector<std::vector<float>> table_;
};

TEST(PenaltyTest, SequencesEqualAStraightforwardReference) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const ReferenceSampler reference(seed);
    plm::Session session(reference.Load());
    for (const auto& [repetition, presence, frequency] :
         std::vector<std::tuple<float, float, float>>{{1.0f, 0.0f, 0.0f},
                                                      {1.3f, 0.0f, 0.0f},
                                                      {0.8f, 0.0f, 0.0f},
                                                      {1.0f, 0.7f, 0.0f},
                                                      {1.0f, 0.0f, 0.3f},
                                                      {1.0f, -0.5f, 0.0f},
                                                      {1.0f, 0.4f, 0.2f}}) {
      plm_generate_options options = Greedy(60);
      options.repetition_penalty = repetition;
      options.presence_penalty = presence;
      options.frequency_penalty = frequency;
      const std::vector<int32_t> prompt = {'A', 'D', 'G', 'A'};
      session.SetTokens(prompt);
      session.Generate(&options);
      EXPECT_EQ(session.Tokens(), reference.Generate(prompt, options))
          << "seed " << seed << ", penalties " << repetition << " " << presence << " " << frequency;
    }
  }
}

// ---- Distributions ---------------------------------------------------------------------------------

// A model whose logits are the same after every one of its tokens 'A', 'B', …; all others are at −1000.
class DistributionTest : public ::testing::Test {
 protected:
  static constexpr int32_t kFirst = 'A';
  static constexpr int kDraws = 1500;
  // For at most 7 degrees of freedom a chi-square above this has a probability below 1e-4.
  static constexpr double kLimit = 30.0;

  void SetUp() override {
    ScriptedModel scripted;
    scripted.file.set_context_length(4096);
    for (size_t from = 0; from < kLogits.size(); ++from) {
      const int32_t state = kFirst + static_cast<int32_t>(from);
      for (int32_t id = 0; id < scripted.file.num_tokens(); ++id)
        scripted.file.SetLogit(state, id, -1000.0f);
      for (size_t to = 0; to < kLogits.size(); ++to) {
        scripted.file.SetLogit(state, kFirst + static_cast<int32_t>(to), kLogits[to]);
      }
    }
    session_ = std::make_unique<plm::Session>(scripted.Load(1));
  }

  static std::vector<double> Softmax(double temperature) {
    std::vector<double> p;
    for (const float logit : kLogits) p.push_back(std::exp(logit / temperature));
    return Normalized(p);
  }
  static std::vector<double> Normalized(std::vector<double> p) {
    double sum = 0.0;
    for (const double value : p) sum += value;
    for (double& value : p) value /= sum;
    return p;
  }

  // Draws kDraws tokens in one answer and compares their frequencies with `expected`.
  void Check(plm_generate_options options, const std::vector<double>& expected) {
    options.max_tokens = kDraws;
    session_->SetTokens({kFirst});
    session_->Generate(&options);
    std::map<int32_t, int> counts;
    const std::vector<int32_t> tokens = session_->Tokens();
    ASSERT_EQ(tokens.size(), 1u + kDraws);
    for (size_t i = 1; i < tokens.size(); ++i) ++counts[tokens[i] - kFirst];
    double chi_square = 0.0;
    int counted = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const int count = counts[static_cast<int32_t>(i)];
      counted += count;
      if (expected[i] == 0.0) {
        EXPECT_EQ(count, 0) << "token " << i << " should have been cut";
        continue;
      }
      const double mean = expected[i] * kDraws;
      chi_square += (count - mean) * (count - mean) / mean;
    }
    EXPECT_EQ(counted, kDraws);
    EXPECT_LT(chi_square, kLimit) << "seed " << options.seed;
  }

  static plm_generate_options Sampled(uint64_t seed) {
    plm_generate_options options = plm_generate_options_default();
    options.temperature = 1.0f;
    options.seed = seed;
    return options;
  }

  static inline const std::vector<float> kLogits = {1.0f, 2.0f, 0.5f, 1.5f, 0.0f, -1.0f};
  std::unique_ptr<plm::Session> session_;
};

TEST_F(DistributionTest, TemperatureScalesTheLogits) {
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    plm_generate_options options = Sampled(static_cast<uint64_t>(temperature * 10));
    options.temperature = temperature;
    Check(options, Softmax(temperature));
  }
}

TEST_F(DistributionTest, TopKKeepsTheLargest) {
  plm_generate_options options = Sampled(3);
  options.top_k = 3;
  std::vector<double> expected = Softmax(1.0);
  expected[2] = expected[4] = expected[5] = 0.0;
  Check(options, Normalized(expected));
}

TEST_F(DistributionTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // In order: 0.427, 0.259, 0.157, 0.095, 0.058, … — 0.70 needs three tokens, 0.65 two.
  std::vector<double> expected = Softmax(1.0);
  expected[2] = expected[4] = expected[5] = 0.0;
  plm_generate_options options = Sampled(4);
  options.top_p = 0.75f;
  Check(options, Normalized(expected));
  expected[0] = 0.0;
  options.top_p = 0.6f;
  Check(options, Normalized(expected));
}

TEST_F(DistributionTest, MinPCutsBelowAFractionOfTheLargest) {
  // Relative to the largest: e^-1 = 0.37, 1, e^-1.5 = 0.22, e^-0.5 = 0.61, 0.14, 0.05.
  std::vector<double> expected = Softmax(1.0);
  expected[2] = expected[4] = expected[5] = 0.0;
  plm_generate_options options = Sampled(5);
  options.min_p = 0.3f;
  Check(options, Normalized(expected));
}

TEST_F(DistributionTest, TheSeedDecidesTheAnswer) {
  const auto answer = [&](uint64_t seed) {
    plm_generate_options options = Sampled(seed);
    options.max_tokens = 50;
    session_->SetTokens({kFirst});
    return session_->Generate(&options).text;
  };
  EXPECT_EQ(answer(7), answer(7));
  EXPECT_NE(answer(7), answer(8));
  EXPECT_NE(answer(0), answer(uint64_t{1} << 63));
}

}  // namespace
}  // namespace pocketlm::testing
