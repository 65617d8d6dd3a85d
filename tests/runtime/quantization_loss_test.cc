// What 8 and 4 bits cost a model, as `pocketlm diff` measures it (field case QNT-D3): real models, and a toy one.
#include <gmock/gmock.h>

#include <random>

#include "base/file.h"
#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

struct Encoding {
  const char* type;
  const char* offset;  // "" for the type's own
};

// The path of `model` with every matrix rounded anew.
std::string Quantized(const std::string& model, const Encoding& encoding) {
  const std::string path = JoinPath(ScratchDir(), "quantized.plm");
  plm_convert_options options = plm_convert_options_default();
  options.type = options.head_type = encoding.type;
  options.offset = encoding.offset;
  options.requantize = true;
  plm::Convert(model, path, &options);
  return path;
}

// Mean KL divergence from `model`, which computes with float activations as its weights are no packed ones.
double Loss(const std::string& model, const Encoding& encoding, const std::string& text,
            uint32_t window, size_t windows) {
  const plm::Model source = plm::Model::Load(model);
  const plm::Model other = plm::Model::Load(Quantized(model, encoding));
  const plm_session_options context = ContextOf(window);
  plm::Session a(source, &context), b(other, &context);
  plm_perplexity_options options = plm_perplexity_options_default();
  options.max_windows = windows;
  plm::Comparison comparison(&a, &b, &options);
  const plm_comparison_result result = comparison.Add(text);
  EXPECT_EQ(result.positions, windows * (window / 2 - 1));
  EXPECT_LE(result.kl_mean, result.kl_max);
  return result.kl_mean;
}

// In nats, on the texts below, where 8 bits were measured at 0.010 (SmolLM2) and 0.016 (Gemma), 4 bits at 0.58 and 0.77.
// Both include what int8 activations cost.
constexpr double kEightBitLimit = 0.03;
constexpr double kFourBitLimit = 1.2;

void CheckRealModel(const std::string& model, const char* file) {
  POCKETLM_REQUIRE_DATA_PATH(text_path, file);
  const auto text = ReadFile(text_path);
  ASSERT_OK(text);
  const std::string part = text->substr(0, 4000);
  const double eight = Loss(model, {"int8", ""}, part, 64, 2);
  const double four = Loss(model, {"int4", "zero4"}, part, 64, 2);
  ::testing::Test::RecordProperty("kl_int8", std::to_string(eight));
  ::testing::Test::RecordProperty("kl_int4", std::to_string(four));
  EXPECT_LE(eight, four);
  EXPECT_LE(eight, kEightBitLimit);
  EXPECT_LE(four, kFourBitLimit);
}

TEST(QuantizationLossTest, QntD3SmolLm2) {
  POCKETLM_REQUIRE_MODEL(model, "smollm2-135m");
  CheckRealModel(model, "calib/wikitext2_en/valid.txt");
}

TEST(QuantizationLossTest, QntD3Gemma3) {
  POCKETLM_REQUIRE_MODEL(model, "gemma3-270m");
  CheckRealModel(model, "calib/wiki_zh/gsd_dev.txt");
}

// Every kind of four bits, and eight, on random weights.
TEST(QuantizationLossTest, QntD3EightBitsLoseLessThanFourOfAnyKind) {
  const std::string config = JoinPath(ScratchDir(), "config.json");
  WriteFileOrDie(config, R"({"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "vocab_size": 512, "max_position_embeddings": 256, "tie_word_embeddings": true})");
  const std::string model = JoinPath(ScratchDir(), "source.plm");
  plm_convert_options exact = plm_convert_options_default();
  exact.type = "f16";
  plm_new_model_options options = plm_new_model_options_default();
  options.config = config.c_str();
  options.encoding = &exact;
  plm::NewModel(model, &options);
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 600; ++i) text += static_cast<char>('a' + random() % 26);
  const double eight = Loss(model, {"int8", ""}, text, 64, 4);
  ::testing::Test::RecordProperty("kl_int8", std::to_string(eight));
  EXPECT_GT(eight, 0.0);
  for (const char* offset : {"none", "zero4", "min_f16"}) {
    const double four = Loss(model, {"int4", offset}, text, 64, 4);
    ::testing::Test::RecordProperty(std::string("kl_int4_") + offset, std::to_string(four));
    EXPECT_LE(eight, four / 10) << offset;
    EXPECT_LE(four, 0.1) << offset;
  }
}

}  // namespace
}  // namespace pocketlm::testing
