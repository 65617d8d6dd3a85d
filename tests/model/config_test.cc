// ModelConfig from config.json: what a file may leave out, and what it may not get wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

json Sizes(const char* model_type) {
  return {{"model_type", model_type}, {"vocab_size", 384},      {"hidden_size", 40},
          {"intermediate_size", 72},  {"num_hidden_layers", 7}, {"num_attention_heads", 4}};
}

// The defaults of Gemma3TextConfig in Transformers. The configs of the published 4B model rely on them.
TEST(HuggingFaceConfigTest, Gemma3Defaults) {
  json config = Sizes("gemma3_text");
  config.erase("vocab_size");
  config.erase("num_attention_heads");
  const auto c = ConfigFromHuggingFace(config);
  ASSERT_OK(c);
  EXPECT_EQ(c->vocab_size, 262208u);
  EXPECT_EQ(c->num_attention_heads, 8u);
  EXPECT_EQ(c->num_key_value_heads, 4u);
  EXPECT_EQ(c->head_dim, 256u);
  EXPECT_EQ(c->sliding_window, 4096u);
  EXPECT_EQ(c->max_position_embeddings, 131072u);
  EXPECT_TRUE(c->tie_word_embeddings);
  EXPECT_EQ(c->sliding_layers, (std::vector<bool>{true, true, true, true, true, false, true}));
}

TEST(HuggingFaceConfigTest, Gemma3AttentionScaleDoesNotFollowHeadDim) {
  json config = Sizes("gemma3_text");
  config["head_dim"] = 64;
  const auto c = ConfigFromHuggingFace(config);
  ASSERT_OK(c);
  EXPECT_FLOAT_EQ(c->attention_scale, 1.0f / std::sqrt(256.0f));
}

TEST(HuggingFaceConfigTest, Gemma3NullSwitchesTheSlidingWindowOff) {
  json config = Sizes("gemma3_text");
  config["sliding_window"] = nullptr;
  const auto c = ConfigFromHuggingFace(config);
  ASSERT_OK(c);
  EXPECT_EQ(c->sliding_window, 0u);
}

TEST(HuggingFaceConfigTest, DefaultsOfTheOthers) {
  auto c = ConfigFromHuggingFace(Sizes("llama"));
  ASSERT_OK(c);
  EXPECT_EQ(c->num_key_value_heads, 4u);
  EXPECT_EQ(c->head_dim, 10u);
  EXPECT_EQ(c->max_position_embeddings, 2048u);
  c = ConfigFromHuggingFace(Sizes("qwen3"));
  ASSERT_OK(c);
  EXPECT_EQ(c->head_dim, 128u);
  EXPECT_EQ(c->max_position_embeddings, 32768u);
  EXPECT_FALSE(c->tie_word_embeddings);
}

// Taken for absent, they would give wrong positions in silence.
TEST(HuggingFaceConfigTest, RopeSettingsOfTheWrongTypeAreErrors) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    for (const json& wrong : {json("linear"), json(2.0), json::array({1}), json(true)}) {
      json config = Sizes("llama");
      config[key] = wrong;
      const auto c = ConfigFromHuggingFace(config);
      ASSERT_FALSE(c.ok()) << key << " = " << wrong;
      EXPECT_THAT(c.status().message(), HasSubstr(std::string(key) + ": expected an object"));
    }
  }
}

}  // namespace
}  // namespace pocketlm
