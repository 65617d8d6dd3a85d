// Tiny models of every architecture against Transformers in float32, layer by layer and at the end.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include <nlohmann/json.hpp>

#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "support/safetensors_writer.h"
#include "support/tiny_models.h"

namespace pocketlm {
namespace {

using testing::RelativeError;
using testing::TinyGolden;
using testing::TinyModelForms;
using testing::TinyModelNames;
using testing::TinyModelPath;

// Both sides compute in float32; sums of at most a few hundred terms in another order.
constexpr double kTolerance = 1e-4;
constexpr size_t kAllPositionsPrompt = 2;

struct ForwardPass {
  std::vector<float> all_logits;           // [tokens, vocab_size]
  std::vector<std::vector<float>> hidden;  // after each layer, [tokens, hidden_size]
};

// One forward pass with a float32 cache.
ForwardPass RunModel(Model* model, const std::vector<int32_t>& ids) {
  ForwardPass run;
  auto decoder = Decoder::Create(model->config(), model->weights(), &model->backend(), ids.size());
  EXPECT_OK(decoder);
  auto cache = KvCache::Create(model->config(), ids.size(), KvType::kF32, KvType::kF32);
  EXPECT_OK(cache);
  decoder->set_observer([&](size_t layer, std::span<const float> hidden) {
    EXPECT_EQ(layer, run.hidden.size());
    run.hidden.emplace_back(hidden.begin(), hidden.end());
  });
  EXPECT_OK(decoder->Forward(ids, 0, &*cache, nullptr));
  run.all_logits.resize(ids.size() * model->config().vocab_size);
  decoder->Logits(0, ids.size(), run.all_logits.data());
  return run;
}

// The relative error of the logits; where it is too large, the first layer that diverges is reported.
void ExpectLogits(const ForwardPass& run, const TinyGolden& golden, const std::string& what) {
  const double error =
      RelativeError(run.all_logits, golden.Array("all_logits", kAllPositionsPrompt));
  if (error <= kTolerance) return;
  std::string report;
  for (size_t layer = 0; layer < run.hidden.size(); ++layer) {
    const std::vector<float> expected =
        golden.Array("hidden." + std::to_string(layer + 1), kAllPositionsPrompt);
    if (expected.empty()) break;  // Transformers reports the last layer after the final norm only
    const double layer_error = RelativeError(run.hidden[layer], expected);
    if (layer_error <= kTolerance) continue;
    report = "first diverging layer: " + std::to_string(layer) + ", relative error " +
             std::to_string(layer_error);
    break;
  }
  if (report.empty()) report = "no inner layer diverges: last layer, final norm or head";
  ADD_FAILURE() << what << ": relative error of the logits " << error << "; " << report;
}

class TinyModelsTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, TinyModelsTest, ::testing::ValuesIn(TinyModelNames()),
                         [](const auto& suite) { return suite.param; });

TEST_P(TinyModelsTest, EveryPositionEqualsTransformers) {
  const TinyGolden golden(GetParam());
  for (const std::string& path : TinyModelForms(GetParam())) {
    auto model = Model::Load(path, {.num_threads = 1});
    ASSERT_OK(model);
    const ForwardPass run = RunModel(model->get(), golden.prompts()[kAllPositionsPrompt]);
    ASSERT_EQ(run.all_logits.size(), golden.Array("all_logits", kAllPositionsPrompt).size());
    ExpectLogits(run, golden, path);
  }
}

TEST_P(TinyModelsTest, EveryInnerLayerEqualsTransformers) {
  const TinyGolden golden(GetParam());
  for (const std::string& path : TinyModelForms(GetParam())) {
    auto model = Model::Load(path, {.num_threads = 1});
    ASSERT_OK(model);
    const ForwardPass run = RunModel(model->get(), golden.prompts()[kAllPositionsPrompt]);
    ASSERT_EQ(run.hidden.size(), (*model)->config().num_hidden_layers);
    size_t compared = 0;
    for (size_t layer = 0; layer < run.hidden.size(); ++layer) {
      const std::vector<float> expected =
          golden.Array("hidden." + std::to_string(layer + 1), kAllPositionsPrompt);
      if (expected.empty()) continue;
      ASSERT_EQ(run.hidden[layer].size(), expected.size());
      EXPECT_LE(RelativeError(run.hidden[layer], expected), kTolerance)
          << path << ", layer " << layer;
      ++compared;
    }
    EXPECT_EQ(compared, run.hidden.size() - 1);
  }
}

TEST_P(TinyModelsTest, TheReportNamesTheFirstDivergingLayer) {
  const TinyGolden golden(GetParam());
  auto model = Model::Load(TinyModelPath(GetParam(), "hf"), {.num_threads = 1});
  ASSERT_OK(model);
  ForwardPass run = RunModel(model->get(), golden.prompts()[kAllPositionsPrompt]);
  run.hidden[1][0] += 10.0f;
  run.all_logits[0] += 1000.0f;
  EXPECT_NONFATAL_FAILURE(ExpectLogits(run, golden, "changed"), "first diverging layer: 1");
}

// ---- VOC-D1: a tied model without a head of its own ------------------------------------------------

TEST(TiedHeadTest, VocD1TopLevelAndTextConfig) {
  for (const char* name : {"tiny_qwen3", "tiny_gemma3_vlm"}) {
    auto model = Model::Load(TinyModelPath(name, "hf"), {.num_threads = 1});
    ASSERT_OK(model);
    EXPECT_TRUE((*model)->config().tie_word_embeddings) << name;
    EXPECT_EQ((*model)->weights().lm_head.data, (*model)->weights().embed_tokens.data)
        << name << ": stored once";
  }
  auto untied = Model::Load(TinyModelPath("tiny_llama_untied", "hf"), {.num_threads = 1});
  ASSERT_OK(untied);
  EXPECT_NE((*untied)->weights().lm_head.data, (*untied)->weights().embed_tokens.data);
}

TEST(TiedHeadTest, VocD1UntiedModelWithoutHeadIsALoadError) {
  using nlohmann::json;
  const std::string source = TinyModelPath("tiny_qwen3", "hf");
  const std::string folder = testing::ScratchDir();
  for (const char* file :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    auto content = ReadFile(JoinPath(source, file));
    ASSERT_OK(content);
    if (std::string(file) == "config.json") {
      json config = json::parse(*content);
      config["tie_word_embeddings"] = false;
      content = config.dump();
    }
    testing::WriteFileOrDie(JoinPath(folder, file), *content);
  }
  auto model = Model::Load(folder, {.num_threads = 1});
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), ::testing::HasSubstr("lm_head"));
}

}  // namespace
}  // namespace pocketlm
