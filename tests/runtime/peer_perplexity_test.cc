// Perplexity of the real models against llama.cpp's, on the first windows of the calibration texts.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

nlohmann::json PeerFigures() {
  std::ifstream in(JoinPath(SourceDir(), "tests/goldens/peer_perplexity.json"));
  return nlohmann::json::parse(in);
}

// Compares every case of one model. llama.cpp on the same weights as F32 computes what we compute; on the
// quantized file it rounds activations to int8, which shifts its figure where the golden file says so.
void CheckModel(const std::string& path, const std::string& name) {
  const nlohmann::json figures = PeerFigures();
  int checked = 0;
  for (const nlohmann::json& figure : figures.at("cases")) {
    if (figure.at("model") != name) continue;
    const std::string file = figure.at("file");
    POCKETLM_REQUIRE_DATA_PATH(text_path, file);
    const auto text = ReadFile(text_path);
    ASSERT_OK(text);
    const plm::Model model = plm::Model::Load(path);
    plm_session_options session_options = ContextOf(figures.at("ctx"));
    session_options.kv_k_type = session_options.kv_v_type = PLM_KV_F16;  // llama.cpp's default
    plm::Session session(model, &session_options);
    plm_perplexity_options options = plm_perplexity_options_default();
    options.max_windows = figure.at("windows");
    const plm_perplexity_result result = session.Perplexity(*text, &options);
    EXPECT_EQ(result.tokens, figure.at("tokens").get<uint64_t>()) << file;
    EXPECT_NEAR(result.perplexity / figure.at("peer_exact").get<double>(), 1.0, 0.001) << file;
    if (figure.at("rounding_is_small")) {
      EXPECT_NEAR(result.perplexity / figure.at("peer").get<double>(), 1.0, 0.005) << file;
    }
    ++checked;
  }
  EXPECT_GT(checked, 0);
}

TEST(PeerPerplexityTest, SmolLm2) {
  POCKETLM_REQUIRE_MODEL(path, "smollm2-135m");
  CheckModel(path, "smollm2-135m");
}

TEST(PeerPerplexityTest, Gemma3) {
  POCKETLM_REQUIRE_MODEL(path, "gemma3-270m");
  CheckModel(path, "gemma3-270m");
}

}  // namespace
}  // namespace pocketlm::testing
