// Tiny models through the API: logits against Transformers, the same bits for any number of threads, any
// chunk and any cached beginning, Hugging Face folder = GGUF file, perplexity.
#include <gmock/gmock.h>

#include <memory>

#include "support/api_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

constexpr double kTolerance = 1e-4;  // as in tests/model

plm::Model LoadWith(const std::string& path, int32_t threads) {
  plm_model_options options = plm_model_options_default();
  options.num_threads = threads;
  return plm::Model::Load(path, &options);
}

plm_session_options SessionWith(plm_kv_type kv_type, uint32_t chunk) {
  plm_session_options options = plm_session_options_default();
  options.kv_k_type = options.kv_v_type = kv_type;
  options.prefill_chunk = chunk;
  return options;
}

std::vector<float> LogitsOf(const plm::Model& model, const plm_session_options& options,
                            const std::vector<int32_t>& ids) {
  plm::Session session(model, &options);
  session.SetTokens(ids);
  return session.Logits();
}

class TinyModelsApiTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, TinyModelsApiTest, ::testing::ValuesIn(TinyModelNames()),
                         [](const auto& suite) { return suite.param; });

TEST_P(TinyModelsApiTest, LogitsEqualTransformers) {
  const TinyGolden golden(GetParam());
  for (const std::string& path : TinyModelForms(GetParam())) {
    const plm::Model model = plm::Model::Load(path);
    const auto prompts = golden.prompts();
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<float> logits = LogitsOf(model, SessionWith(PLM_KV_F32, 128), prompts[i]);
      EXPECT_LE(RelativeError(logits, golden.Array("logits", i)), kTolerance)
          << path << ", prompt " << i;
    }
  }
}

TEST_P(TinyModelsApiTest, HalfPrecisionCacheStaysClose) {
  const TinyGolden golden(GetParam());
  const plm::Model model = plm::Model::Load(TinyModelPath(GetParam(), "hf"));
  const auto prompts = golden.prompts();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<float> logits = LogitsOf(model, SessionWith(PLM_KV_F16, 128), prompts[i]);
    EXPECT_LE(RelativeError(logits, golden.Array("logits", i)), 0.03) << "prompt " << i;
  }
}

class TwoFormsTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, TwoFormsTest,
                         ::testing::ValuesIn(TinyModelNamesWithout(kFolderOnlyModel)),
                         [](const auto& suite) { return suite.param; });

TEST_P(TwoFormsTest, FolderAndGgufFileAgree) {
  const plm::Model folder = plm::Model::Load(TinyModelPath(GetParam(), "hf"));
  const plm::Model file = plm::Model::Load(TinyModelPath(GetParam(), "model.gguf"));
  for (const std::vector<int32_t>& prompt : TinyGolden(GetParam()).prompts()) {
    const plm_session_options options = SessionWith(PLM_KV_F32, 128);
    EXPECT_LE(RelativeError(LogitsOf(folder, options, prompt), LogitsOf(file, options, prompt)),
              1e-5);
  }
  for (const char* text :
       {"The kettle is on the stove.", "今天天气很好，123 + 456!", " \n  é🦙 <|im_end|>", ""}) {
    EXPECT_EQ(folder.tokenizer().Encode(text), file.tokenizer().Encode(text)) << text;
  }
  const std::string messages = R"([{"role": "user", "content": " The weather "}])";
  EXPECT_EQ(folder.RenderChat(messages), file.RenderChat(messages));
}

TEST_P(TinyModelsApiTest, SameBitsForAnyThreadsAndChunk) {
  const auto prompts = TinyGolden(GetParam()).prompts();
  const std::string path = TinyModelPath(GetParam(), "hf");
  for (const plm_kv_type kv_type : {PLM_KV_F16, PLM_KV_F32}) {
    std::vector<std::vector<float>> expected;
    const plm::Model reference = LoadWith(path, 1);
    for (const auto& prompt : prompts) {
      expected.push_back(LogitsOf(reference, SessionWith(kv_type, 128), prompt));
    }
    for (const int32_t threads : {1, 2, 3}) {
      if (kv_type == PLM_KV_F32 && threads != 2) continue;
      const plm::Model model = LoadWith(path, threads);
      for (const uint32_t chunk : {1u, 3u, 16u, 128u}) {
        for (size_t i = 0; i < prompts.size(); ++i) {
          EXPECT_EQ(LogitsOf(model, SessionWith(kv_type, chunk), prompts[i]), expected[i])
              << threads << " threads, chunk " << chunk << ", prompt " << i;
        }
      }
    }
  }
}

// KV-D1: the beginning that is already computed changes nothing.
TEST_P(TinyModelsApiTest, KvD1SameBitsWithACachedBeginning) {
  const std::vector<int32_t> prompt = TinyGolden(GetParam()).prompts().back();
  const plm::Model model = LoadWith(TinyModelPath(GetParam(), "hf"), 2);
  const plm_session_options options = SessionWith(PLM_KV_F16, 16);
  const std::vector<float> expected = LogitsOf(model, options, prompt);
  plm::Session session(model, &options);
  for (const size_t size : {1u, 2u, 17u, 100u, 99u, 30u, 200u, 200u}) {
    session.SetTokens(
        std::vector<int32_t>(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(size)));
    const std::vector<float> logits = session.Logits();
    if (size == prompt.size()) {
      EXPECT_EQ(logits, expected);
    }
  }
}

TEST_P(TinyModelsApiTest, KvD1SameGreedyAnswerHoweverItIsComputed) {
  const std::vector<int32_t> prompt = TinyGolden(GetParam()).prompts().back();
  const auto answer = [&](int32_t threads, uint32_t chunk) {
    const plm::Model model = LoadWith(TinyModelPath(GetParam(), "hf"), threads);
    const plm_session_options options = SessionWith(PLM_KV_F16, chunk);
    plm::Session session(model, &options);
    plm_generate_options generate = Greedy(40);
    generate.ignore_end_tokens = true;
    std::vector<std::vector<int32_t>> out;
    for (int round = 0; round < 3; ++round) {
      session.SetTokens(prompt);
      session.Generate(&generate);
      out.push_back(session.Tokens());
    }
    EXPECT_EQ(out[0], out[1]);
    EXPECT_EQ(out[0], out[2]);
    return out[0];
  };
  const std::vector<int32_t> expected = answer(1, 128);
  EXPECT_EQ(expected.size(), prompt.size() + 40);
  EXPECT_EQ(answer(3, 1), expected);
  EXPECT_EQ(answer(2, 16), expected);
  // A fresh prefill of prompt and answer gives the same last step as decoding did.
  const plm::Model model = LoadWith(TinyModelPath(GetParam(), "hf"), 1);
  const std::vector<int32_t> all_but_last(expected.begin(), expected.end() - 1);
  const std::vector<float> logits = LogitsOf(model, SessionWith(PLM_KV_F16, 128), all_but_last);
  EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), expected.back());
}

// tiny_qwen3 has padding rows, which Transformers counts in its softmax and we do not.
class TinyPerplexityTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, TinyPerplexityTest,
                         ::testing::ValuesIn(TinyModelNamesWithout("tiny_qwen3")),
                         [](const auto& suite) { return suite.param; });

TEST_P(TinyPerplexityTest, EqualsTransformers) {
  const nlohmann::json golden = TinyGolden(GetParam()).perplexity();
  const std::string text = golden.at("text");
  for (const std::string& path : TinyModelForms(GetParam())) {
    const plm::Model model = plm::Model::Load(path);
    plm_session_options options = SessionWith(PLM_KV_F32, 128);
    plm::Session whole(model, &options);
    plm_perplexity_options all = plm_perplexity_options_default();
    all.score_all = true;
    plm_perplexity_result result = whole.Perplexity(text, &all);
    EXPECT_EQ(result.tokens, golden.at("all").at("tokens").get<uint64_t>());
    EXPECT_EQ(result.bytes, text.size());
    EXPECT_NEAR(result.nll / golden.at("all").at("nll").get<double>(), 1.0, kTolerance) << path;
    EXPECT_NEAR(result.perplexity, std::exp(result.nll / static_cast<double>(result.tokens)),
                1e-9 * result.perplexity);
    EXPECT_NEAR(result.bits_per_byte, result.nll / std::log(2.0) / static_cast<double>(text.size()),
                1e-9);

    options.context_length = golden.at("windows").at("size");
    plm::Session windows(model, &options);
    result = windows.Perplexity(text);
    EXPECT_EQ(result.tokens, golden.at("windows").at("tokens").get<uint64_t>());
    EXPECT_NEAR(result.nll / golden.at("windows").at("nll").get<double>(), 1.0, kTolerance) << path;
  }
}

// Windows that overlap score every token once, whatever the context.
TEST(ScoreAllTest, EveryTokenIsScoredOnceInAnyContext) {
  const nlohmann::json golden = TinyGolden("tiny_llama").perplexity();
  const std::string text = golden.at("text");
  const plm::Model model = plm::Model::Load(TinyModelPath("tiny_llama", "hf"));
  plm_perplexity_options all = plm_perplexity_options_default();
  all.score_all = true;
  for (const uint32_t context : {8u, 9u, 64u, 143u, 144u, 145u, 512u}) {
    const plm_session_options options = ContextOf(context);
    plm::Session session(model, &options);
    const plm_perplexity_result result = session.Perplexity(text, &all);
    EXPECT_EQ(result.tokens, golden.at("all").at("tokens").get<uint64_t>()) << context;
    EXPECT_EQ(result.bytes, text.size()) << context;
    EXPECT_GT(result.nll, 0.0);
  }
}

}  // namespace
}  // namespace pocketlm::testing
