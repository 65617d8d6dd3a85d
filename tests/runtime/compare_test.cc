// Comparing two models: figures against distributions written down by hand, same tokens, windows, errors.
#include "runtime/compare.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "support/api_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using ::testing::HasSubstr;

LogitsComparison CompareRows(const std::vector<float>& a, const std::vector<float>& b, int32_t id) {
  return CompareLogits(a, b, id);
}

TEST(CompareLogitsTest, FiguresOfSmallDistributions) {
  // p = (1/2, 1/4, 1/4), q = (1/4, 1/4, 1/2), each with a shift of its own.
  const auto log2 = static_cast<float>(std::log(2.0));
  const LogitsComparison result =
      CompareRows({100.0f + log2, 100.0f, 100.0f}, {-50.0f, -50.0f, -50.0f + log2}, 0);
  EXPECT_NEAR(result.kl, 0.25 * std::log(2.0), 1e-5);  // 100 + ln 2 as a float is off by 4e-6
  EXPECT_NEAR(result.nll_a, std::log(2.0), 1e-5);
  EXPECT_NEAR(result.nll_b, std::log(4.0), 1e-5);
  EXPECT_FALSE(result.same_top);
}

TEST(CompareLogitsTest, OfEqualLogitsTheFirstIsTheTop) {
  EXPECT_TRUE(CompareRows({1, 3, 3}, {0, 5, 5}, 0).same_top);
  EXPECT_TRUE(CompareRows({1, 3, 3}, {0, 5, 4}, 0).same_top);
  EXPECT_FALSE(CompareRows({1, 3, 3}, {0, 4, 5}, 0).same_top);
}

TEST(CompareLogitsTest, FarApartWithoutOverflow) {
  const LogitsComparison result = CompareRows({1e4f, 0}, {0, 1e4f}, 0);
  EXPECT_DOUBLE_EQ(result.kl, 1e4);
  EXPECT_EQ(result.nll_a, 0.0);
  EXPECT_DOUBLE_EQ(result.nll_b, 1e4);
}

TEST(CompareLogitsTest, NotFiniteShows) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity}) {
    for (const size_t at : {0u, 1u}) {
      std::vector<float> row = {1, 2, 3};
      row[at] = bad;
      EXPECT_FALSE(std::isfinite(CompareRows(row, {1, 2, 3}, 2).kl)) << bad << at;
      EXPECT_FALSE(std::isfinite(CompareRows({1, 2, 3}, row, 2).kl)) << bad << at;
    }
  }
}

// Tiny differences of large vocabularies against long double.
TEST(CompareLogitsTest, KeepsDigitsWhereModelsAreNearlyEqual) {
  std::mt19937 random(1);
  std::normal_distribution<float> wide(0.0f, 4.0f), narrow(0.0f, 1.0f);
  for (const float difference : {0.0f, 1e-4f, 1e-2f, 1.0f}) {
    std::vector<float> a(50000), b(50000);
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = wide(random);
      b[i] = a[i] + difference * narrow(random);
    }
    long double sum_a = 0, sum_b = 0, kl = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum_a += std::exp(static_cast<long double>(a[i]));
      sum_b += std::exp(static_cast<long double>(b[i]));
    }
    for (size_t i = 0; i < a.size(); ++i) {
      const long double log_p = a[i] - std::log(sum_a), log_q = b[i] - std::log(sum_b);
      kl += std::exp(log_p) * (log_p - log_q);
    }
    const LogitsComparison result = CompareRows(a, b, 7);
    EXPECT_NEAR(result.kl, static_cast<double>(kl), 1e-13 + 1e-9 * static_cast<double>(kl));
    EXPECT_NEAR(result.nll_b, static_cast<double>(std::log(sum_b) - b[7]), 1e-11);
    if (difference == 0.0f) {
      EXPECT_EQ(result.kl, 0.0);
    }
  }
}

// Logits after each byte, in a bigram model of bytes alone: all others are 0.
using Rows = std::map<char, std::map<char, float>>;

BigramModel ModelOf(const Rows& rows) {
  BigramModel model;
  for (const auto& [from, logits] : rows) {
    for (const auto& [token, logit] : logits)
      model.SetLogit(static_cast<uint8_t>(from), static_cast<uint8_t>(token), logit);
  }
  return model;
}

const Rows kRowsA = {
    {'a', {{'b', 6}, {'c', 2}}}, {'b', {{'c', 5}}}, {'c', {{'a', 7}, {'b', 6.5f}}}};
const Rows kRowsB = {{'a', {{'b', 5}, {'c', 4}}}, {'b', {{'c', 5}}}, {'c', {{'a', 6}, {'b', 7}}}};

std::vector<double> Probabilities(const Rows& rows, char from) {
  std::vector<double> out(256, 1.0);
  if (const auto row = rows.find(from); row != rows.end()) {
    for (const auto& [token, logit] : row->second)
      out[static_cast<uint8_t>(token)] = std::exp(static_cast<double>(logit));
  }
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& p : out) p /= sum;
  return out;
}

// What a comparison of kRowsA and kRowsB on the tokens text[i], i in `scored`, has to find.
struct Expected {
  std::vector<double> kl;
  double nll_a = 0.0, nll_b = 0.0;
  int same_top = 0;

  void Score(const std::string& text, size_t i) {
    const auto p = Probabilities(kRowsA, text[i - 1]), q = Probabilities(kRowsB, text[i - 1]);
    double divergence = 0.0;
    for (size_t token = 0; token < p.size(); ++token)
      divergence += p[token] * std::log(p[token] / q[token]);
    kl.push_back(divergence);
    nll_a -= std::log(p[static_cast<uint8_t>(text[i])]);
    nll_b -= std::log(q[static_cast<uint8_t>(text[i])]);
    same_top += std::max_element(p.begin(), p.end()) - p.begin() ==
                std::max_element(q.begin(), q.end()) - q.begin();
  }
  // numpy.percentile(kl, 99)
  double p99() const {
    std::vector<double> sorted = kl;
    std::sort(sorted.begin(), sorted.end());
    const double place = 0.99 * static_cast<double>(sorted.size() - 1);
    const double low = sorted[static_cast<size_t>(std::floor(place))];
    const double high = sorted[static_cast<size_t>(std::ceil(place))];
    return low + (high - low) * (place - std::floor(place));
  }
};

void ExpectFigures(const plm_comparison_result& result, const Expected& expected) {
  const auto count = static_cast<double>(expected.kl.size());
  EXPECT_EQ(result.positions, expected.kl.size());
  EXPECT_NEAR(result.kl_mean, std::accumulate(expected.kl.begin(), expected.kl.end(), 0.0) / count,
              1e-5);
  EXPECT_NEAR(result.kl_p99, expected.p99(), 1e-5);
  EXPECT_NEAR(result.kl_max, *std::max_element(expected.kl.begin(), expected.kl.end()), 1e-5);
  EXPECT_DOUBLE_EQ(result.top1_agreement, expected.same_top / count);
  EXPECT_NEAR(result.nll_a, expected.nll_a, 1e-5 * result.nll_a);
  EXPECT_NEAR(result.nll_b, expected.nll_b, 1e-5 * result.nll_b);
  for (const auto& [perplexity, nll] :
       {std::pair{result.perplexity_a, result.nll_a}, {result.perplexity_b, result.nll_b}}) {
    EXPECT_NEAR(perplexity, std::exp(nll / static_cast<double>(result.tokens)), 1e-9 * perplexity);
  }
  EXPECT_NEAR(result.bits_per_byte_b,
              result.nll_b / std::log(2.0) / static_cast<double>(result.bytes), 1e-9);
}

// Two models and sessions on them.
struct Pair {
  Pair(const std::string& path_a, const std::string& path_b, uint32_t context, uint32_t chunk = 128)
      : Pair(plm::Model::Load(path_a), plm::Model::Load(path_b), context, chunk) {}
  Pair(const plm::Model& model_a, const plm::Model& model_b, uint32_t context, uint32_t chunk = 128)
      : a(Make(model_a, context, chunk)), b(Make(model_b, context, chunk)) {}

  static plm::Session Make(const plm::Model& model, uint32_t context, uint32_t chunk) {
    plm_session_options options = ContextOf(context);
    options.prefill_chunk = chunk;
    return plm::Session(model, &options);
  }

  plm::Session a, b;
};

plm_perplexity_options ScoreAll() {
  plm_perplexity_options options = plm_perplexity_options_default();
  options.score_all = true;
  return options;
}

TEST(ComparisonTest, HandComputedFiguresInWindows) {
  const std::string a = ModelOf(kRowsA).WriteGguf(), b = ModelOf(kRowsB).WriteGguf();
  const std::string text = "abcabacbabccabxababcacbaacb";  // three windows of 8 and a rest
  Expected expected;
  for (const size_t window : {0u, 8u, 16u}) {
    for (const size_t i : {5u, 6u, 7u}) expected.Score(text, window + i);
  }
  for (const uint32_t chunk : {1u, 3u, 128u}) {
    Pair pair(a, b, 8, chunk);
    plm::Comparison comparison(&pair.a, &pair.b);
    const plm_comparison_result result = comparison.Add(text);
    EXPECT_EQ(result.tokens, 9u);
    EXPECT_EQ(result.bytes, 9u);
    ExpectFigures(result, expected);
  }
}

TEST(ComparisonTest, HandComputedFiguresOfEveryToken) {
  Pair pair(ModelOf(kRowsA).WriteGguf(), ModelOf(kRowsB).WriteGguf(), 8);
  const std::string text = "abcabacbabccabxababcacbaacb";
  const plm_perplexity_options options = ScoreAll();
  plm::Comparison comparison(&pair.a, &pair.b, &options);
  Expected expected;
  for (size_t i = 1; i < text.size(); ++i) expected.Score(text, i);
  // Without a token to begin with, the first one is as likely as any, and no prediction to compare.
  expected.nll_a += std::log(256.0);
  expected.nll_b += std::log(256.0);
  const plm_comparison_result result = comparison.Add(text);
  EXPECT_EQ(result.tokens, text.size());
  EXPECT_EQ(result.positions, text.size() - 1);
  ExpectFigures(result, expected);
}

TEST(ComparisonTest, TheTotalIsThatOfAllPositions) {
  Pair pair(ModelOf(kRowsA).WriteGguf(), ModelOf(kRowsB).WriteGguf(), 8);
  plm::Comparison comparison(&pair.a, &pair.b);
  EXPECT_EQ(comparison.Total().positions, 0u);
  EXPECT_EQ(comparison.Total().kl_max, 0.0);
  Expected expected;
  for (const std::string& text : {std::string("aaaacbab"), std::string("xxxxaaxbbbbbbbbbxx")}) {
    comparison.Add(text);
    for (size_t window = 0; window + 8 <= text.size(); window += 8) {
      for (const size_t i : {5u, 6u, 7u}) expected.Score(text, window + i);
    }
    // A text that fails does not count.
    EXPECT_EQ(Try([&] { comparison.Add("short"); }).status, PLM_INVALID_ARGUMENT);
    EXPECT_EQ(Try([&] { comparison.Add("aaaacbab", [](double) { return false; }); }).status,
              PLM_CANCELLED);
  }
  EXPECT_EQ(comparison.Total().tokens, 9u);
  ExpectFigures(comparison.Total(), expected);
}

class TinyComparisonTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, TinyComparisonTest, ::testing::ValuesIn(TinyModelNames()),
                         [](const auto& suite) { return suite.param; });

TEST_P(TinyComparisonTest, AModelEqualsItselfAndItsPerplexity) {
  const std::string text = TinyGolden(GetParam()).perplexity().at("text");
  const plm::Model model = plm::Model::Load(TinyModelPath(GetParam(), "hf"));
  for (const bool score_all : {false, true}) {
    plm_perplexity_options options = plm_perplexity_options_default();
    options.score_all = score_all;
    Pair pair(model, model, 64, 16);
    plm::Comparison comparison(&pair.a, &pair.b, &options);
    const plm_comparison_result result = comparison.Add(text);
    EXPECT_EQ(result.kl_max, 0.0);
    EXPECT_EQ(result.top1_agreement, 1.0);
    EXPECT_EQ(result.nll_a, result.nll_b);
    const plm_perplexity_result alone = pair.a.Perplexity(text, &options);
    EXPECT_EQ(result.tokens, alone.tokens);
    EXPECT_EQ(result.bytes, alone.bytes);
    EXPECT_NEAR(result.perplexity_a / alone.perplexity, 1.0, 1e-6);
    EXPECT_NEAR(result.bits_per_byte_b / alone.bits_per_byte, 1.0, 1e-6);
  }
}

TEST_P(TinyComparisonTest, OtherKeysAndValuesOfOneModel) {
  const std::string text = TinyGolden(GetParam()).perplexity().at("text");
  const plm::Model model = plm::Model::Load(TinyModelPath(GetParam(), "hf"));
  plm_session_options options = ContextOf(64);
  options.kv_k_type = options.kv_v_type = PLM_KV_F32;
  plm::Session exact(model, &options);
  options.kv_k_type = options.kv_v_type = PLM_KV_F16;
  plm::Session half(model, &options);
  const plm_perplexity_options all = ScoreAll();
  plm::Comparison comparison(&exact, &half, &all);
  const plm_comparison_result result = comparison.Add(text);
  EXPECT_GT(result.kl_mean, 0.0);
  EXPECT_LT(result.kl_mean, 1e-3);
  EXPECT_GE(result.kl_p99, result.kl_mean);
  EXPECT_GE(result.kl_max, result.kl_p99);
}

// ---- The same tokens

Outcome CompareModels(const std::string& a, const std::string& b) {
  return Try([&] {
    Pair pair(a, b, 8);
    const plm_perplexity_options options = ScoreAll();
    plm::Comparison comparison(&pair.a, &pair.b, &options);
    comparison.Add("abcabcabc");
  });
}

TEST(SameTokensTest, TheFirstDifferenceIsNamed) {
  BigramModel a, b, longer;
  for (BigramModel* model : {&a, &b, &longer}) model->AddToken("kettle");
  a.AddToken("tea");
  b.AddToken("pot");
  longer.AddToken("tea");
  longer.AddToken("mug");
  Outcome outcome = CompareModels(a.WriteGguf(), b.WriteGguf());
  EXPECT_EQ(outcome.status, PLM_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("got 257 'tea' and 257 'pot'"));
  EXPECT_THAT(outcome.message, HasSubstr("258 and 258 ids"));
  EXPECT_THAT(outcome.message, HasSubstr("perplexity, in bits per byte"));
  outcome = CompareModels(a.WriteGguf(), longer.WriteGguf());
  EXPECT_EQ(outcome.status, PLM_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("got 258 'mug' in the second one only"));
  outcome = CompareModels(longer.WriteGguf(), a.WriteGguf());
  EXPECT_THAT(outcome.message, HasSubstr("got 258 'mug' in the first one only"));
  EXPECT_EQ(CompareModels(a.WriteGguf(), a.WriteGguf()).status, PLM_OK);
}

TEST(SameTokensTest, TheTokenBeforeATextMatters) {
  BigramModel a, b;
  for (BigramModel* model : {&a, &b}) model->AddControl("<s>");
  a.set_bos(a.Id("<s>"), true);
  const Outcome outcome = CompareModels(a.WriteGguf(), b.WriteGguf());
  EXPECT_EQ(outcome.status, PLM_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("got 256 '<s>' and none"));
}

// Rows without a token, here with the largest logits of all, take no part; neither do the names that GGUF gives them.
TEST(SameTokensTest, PaddingIsNoDifference) {
  BigramModel model = ModelOf(kRowsA);
  const std::string plain = model.WriteGguf();
  const std::string padded = model.WriteHuggingFace({.padding_rows = 40});
  for (const auto& [a, b] : {std::pair{plain, padded}, {padded, plain}}) {
    Pair pair(a, b, 8);
    plm::Comparison comparison(&pair.a, &pair.b);
    EXPECT_LT(comparison.Add("abcabacb").kl_max, 1e-12);
  }
  // tiny_qwen3 has 24 rows of padding, which its GGUF file names.
  const std::string folder = TinyModelPath("tiny_qwen3", "hf");
  const std::string file = TinyModelPath("tiny_qwen3", "model.gguf");
  ASSERT_LT(plm::Model::Load(folder).tokenizer().vocab_size(),
            plm::Model::Load(file).tokenizer().vocab_size());
  Pair pair(folder, file, 64);
  plm::Comparison comparison(&pair.a, &pair.b);
  EXPECT_LT(
      comparison.Add(TinyGolden("tiny_qwen3").perplexity().at("text").get<std::string>()).kl_max,
      1e-8);
}

// ---- Wrong use

TEST(ComparisonErrorsTest, SessionsThatDoNotFit) {
  const plm::Model model = plm::Model::Load(ModelOf(kRowsA).WriteGguf());
  const plm_session_options context = ContextOf(8), longer = ContextOf(9);
  plm::Session a(model, &context), b(model, &longer);
  const Outcome outcome = Try([&] { plm::Comparison comparison(&a, &b); });
  EXPECT_EQ(outcome.status, PLM_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("contexts of the same length, got 8 and 9"));
  plm::Comparison twice(&a, &a);
  EXPECT_EQ(Try([&] { twice.Add("abcabcab"); }).status, PLM_BUSY);
  EXPECT_EQ(a.Perplexity("abcabcab").tokens, 3u);  // the session is free again
}

TEST(ComparisonErrorsTest, LogitsThatAreNotFinite) {
  BigramModel good = ModelOf(kRowsA), bad = ModelOf(kRowsA);
  bad.set_nan_norm();
  const Outcome outcome = CompareModels(good.WriteGguf(), bad.WriteGguf());
  EXPECT_EQ(outcome.status, PLM_INTERNAL);
  EXPECT_THAT(outcome.message, HasSubstr("not finite"));
}

TEST(ComparisonErrorsTest, NullAndWrongArguments) {
  const plm::Model model = plm::Model::Load(ModelOf(kRowsA).WriteGguf());
  Pair pair(model, model, 8);
  plm_session *a = pair.a.get(), *b = pair.b.get();
  plm_comparison* comparison = nullptr;
  EXPECT_EQ(plm_comparison_create(nullptr, b, nullptr, &comparison), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_comparison_create(a, nullptr, nullptr, &comparison), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_comparison_create(a, b, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  plm_perplexity_options options = plm_perplexity_options_default();
  options.size_bytes = 0;
  EXPECT_EQ(plm_comparison_create(a, b, &options, &comparison), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(comparison, nullptr);
  ASSERT_EQ(plm_comparison_create(a, b, nullptr, &comparison), PLM_OK);
  plm_comparison_result result;
  result.size_bytes = sizeof(result);
  const auto add = [&](plm_comparison* to, const char* text, plm_comparison_result* out) {
    return plm_comparison_add(to, text, 8, nullptr, nullptr, out);
  };
  EXPECT_EQ(add(nullptr, "abcabcab", &result), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(add(comparison, nullptr, &result), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(add(comparison, "abcabcab", nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_comparison_total(nullptr, &result), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_comparison_total(comparison, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(add(comparison, "abcabcab", &result), PLM_OK);
  EXPECT_EQ(result.tokens, 3u);
  result.size_bytes = 0;
  EXPECT_EQ(plm_comparison_total(comparison, &result), PLM_INVALID_ARGUMENT);
  plm_comparison_free(comparison);
  plm_comparison_free(nullptr);
}

}  // namespace
}  // namespace pocketlm::testing
