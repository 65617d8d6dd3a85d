// Bytes that a token reads, counted from the shapes of the tiny models.
#include "runtime/benchmark.h"

#include <gtest/gtest.h>

#include "model/model.h"
#include "runtime/session.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

std::shared_ptr<Model> LoadTiny(const std::string& name) {
  auto model = Model::Load(TinyModelPath(name, "hf"), {.num_threads = 2});
  POCKETLM_CHECK(model.ok());
  return *model;
}

// MEM-D3 and the head once: of a tied model a token reads the table as the head, of an untied one the head alone.
TEST(BenchmarkBytesTest, EveryTensorOnceButTheTableThatIsOnlyLookedUp) {
  for (const std::string& name : TinyModelNamesWithout(kFolderOnlyModel)) {
    const auto model = LoadTiny(name);
    uint64_t expected = 0;
    for (const TensorView* tensor : model->source().Tensors()) {
      const bool table = tensor->name.find("embed_tokens") != std::string::npos;
      if (table && !model->config().tie_word_embeddings) continue;
      uint64_t values = 1;
      for (const uint64_t size : tensor->shape) values *= size;
      // Norms are kept as floats, whatever the file has.
      expected += tensor->shape.size() == 1 ? values * sizeof(float) : tensor->data.size();
    }
    EXPECT_EQ(WeightBytesPerToken(model->weights()), expected) << name;
  }
}

TEST(BenchmarkBytesTest, MemD3TiedHeadIsTheTable) {
  const auto model = LoadTiny("tiny_qwen3");
  ASSERT_TRUE(model->config().tie_word_embeddings);
  EXPECT_EQ(model->weights().lm_head.data, model->weights().embed_tokens.data);
  EXPECT_NE(model->weights().lm_head.data, nullptr);
}

TEST(BenchmarkBytesTest, KeysAndValuesOfAPosition) {
  ModelConfig config;
  config.num_hidden_layers = 3;
  config.num_key_value_heads = 2;
  config.head_dim = 64;
  EXPECT_EQ(KvBytesPerToken(config, KvType::kF16, KvType::kF16, 0), 3u * 2 * 2 * 64 * 2);
  EXPECT_EQ(KvBytesPerToken(config, KvType::kF32, KvType::kF16, 9), 10u * 3 * 2 * 64 * 6);
  // Codes, and one fp16 scale for each 64 values.
  EXPECT_EQ(KvBytesPerToken(config, KvType::kI8, KvType::kI8, 9), 10u * 3 * 2 * 2 * (64 + 2));
  EXPECT_EQ(KvBytesPerToken(config, KvType::kI8, KvType::kI4, 9), 10u * 3 * 2 * (66 + 34));
  config.sliding_window = 4;
  config.sliding_layers = {true, false, true};
  EXPECT_EQ(KvBytesPerToken(config, KvType::kF16, KvType::kF16, 9), (10u + 2 * 4) * 2 * 2 * 64 * 2);
  EXPECT_EQ(KvBytesPerToken(config, KvType::kF16, KvType::kF16, 1), 6u * 2 * 2 * 64 * 2);
}

TEST(SessionOptionsTest, KvTypesThatDoNotFitTheHeads) {
  ModelConfig config;
  config.max_position_embeddings = 100;
  config.head_dim = 6;
  const auto resolved = ResolveSessionOptions({}, config);
  ASSERT_OK(resolved);
  EXPECT_EQ(resolved->kv_k_type, KvType::kF16);
  EXPECT_EQ(resolved->kv_v_type, KvType::kF16);
  SessionOptions options;
  options.kv_v_type = KvType::kI4;
  const auto refused = ResolveSessionOptions(options, config);
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.status().message().find("kv_v_type"), std::string::npos);
  config.head_dim = 64;
  EXPECT_EQ(ResolveSessionOptions({}, config)->kv_k_type, KvType::kI8);
  EXPECT_EQ(ResolveSessionOptions(options, config)->kv_v_type, KvType::kI4);
}

}  // namespace
}  // namespace pocketlm::testing
