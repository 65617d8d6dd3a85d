// pocketlm/measure.h: timed sessions, memory, bandwidth, machine, identity; null and wrong arguments.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "support/api_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

plm_benchmark_options Decode(uint32_t tokens, uint32_t depth) {
  plm_benchmark_options options = plm_benchmark_options_default();
  options.phase = PLM_BENCHMARK_DECODE;
  options.tokens = tokens;
  options.depth = depth;
  options.repeats = 3;
  return options;
}

plm::Model LoadTiny(const std::string& name) {
  plm_model_options options = plm_model_options_default();
  options.num_threads = 2;
  return plm::Model::Load(TinyModelPath(name, "hf"), &options);
}

class BenchmarkTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Models, BenchmarkTest, ::testing::ValuesIn(TinyModelNames()),
                         [](const auto& suite) { return suite.param; });

TEST_P(BenchmarkTest, BothPhasesAtAnyDepthAndChunk) {
  const plm::Model model = LoadTiny(GetParam());
  for (const uint32_t chunk : {7u, 128u}) {
    plm_session_options session_options = ContextOf(64);
    session_options.prefill_chunk = chunk;
    plm::Session session(model, &session_options);
    for (const uint32_t depth : {0u, 1u, 48u}) {
      plm_benchmark_options options = Decode(16, depth);
      const plm_benchmark_result decode = session.Time(&options).result;
      EXPECT_GT(decode.min_ms, 0.0);
      EXPECT_GE(decode.median_ms, decode.min_ms);
      EXPECT_GE(decode.max_ms, decode.median_ms);
      EXPECT_GT(decode.sampling_ms, 0.0);
      EXPECT_LT(decode.sampling_ms, decode.max_ms);
      EXPECT_GE(decode.sync_ms, 0.0);
      EXPECT_GT(decode.weight_bytes_per_token, 1000u);
      EXPECT_GT(decode.kv_bytes_per_token, 0u);
      options.phase = PLM_BENCHMARK_PREFILL;
      const plm_benchmark_result prefill = session.Time(&options).result;
      EXPECT_GT(prefill.min_ms, 0.0);
      EXPECT_EQ(prefill.weight_bytes_per_token, 0u);
    }
  }
}

TEST(BenchmarkContractTest, ProfileNamesTheOps) {
  plm::Session session(LoadTiny("tiny_qwen3"));
  plm_benchmark_options options = Decode(8, 3);
  EXPECT_EQ(session.Time(&options).profile_json, "{}");
  options.profile = true;
  const plm::Benchmark timed = session.Time(&options);
  const json profile = json::parse(timed.profile_json);
  for (const char* op : {"sampling", "attention", "head", "other"}) {
    ASSERT_TRUE(profile.contains(op)) << timed.profile_json;
    EXPECT_GE(profile[op].get<double>(), 0.0);
  }
}

// What the benchmark made up must not pass for the keys of a prompt.
TEST(BenchmarkContractTest, ForgetsTheSessionAndLeavesNothing) {
  const plm::Model model = LoadTiny("tiny_qwen3");
  plm::Session session(model), fresh(model);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  session.SetTokens(prompt);
  const std::vector<float> before = session.Logits();
  const plm_benchmark_options options = Decode(4, 9);
  session.Time(&options);
  EXPECT_TRUE(session.Tokens().empty());
  session.SetTokens(prompt);
  EXPECT_EQ(session.Logits(), before);
  session.Time(&options);
  session.SetTokens({1, 2, 3});
  fresh.SetTokens({1, 2, 3});
  EXPECT_EQ(session.Logits(), fresh.Logits());
}

TEST(BenchmarkContractTest, WrongArguments) {
  const plm::Model model = LoadTiny("tiny_qwen3");
  const plm_session_options context = ContextOf(32);
  plm::Session session(model, &context);
  const auto status_of = [&](const plm_benchmark_options& options) {
    return Try([&] { session.Time(&options); }).status;
  };
  EXPECT_EQ(status_of(Decode(16, 16)), PLM_OK);
  EXPECT_EQ(status_of(Decode(17, 16)), PLM_CONTEXT_FULL);
  EXPECT_EQ(status_of(Decode(UINT32_MAX, UINT32_MAX)), PLM_CONTEXT_FULL);
  EXPECT_EQ(status_of(Decode(0, 0)), PLM_INVALID_ARGUMENT);
  plm_benchmark_options options = Decode(1, 0);
  for (const uint32_t repeats : {0u, 1001u}) {
    options.repeats = repeats;
    EXPECT_EQ(status_of(options), PLM_INVALID_ARGUMENT);
  }
  options = Decode(1, 0);
  options.phase = static_cast<plm_benchmark_phase>(2);
  EXPECT_EQ(status_of(options), PLM_INVALID_ARGUMENT);
  options = Decode(1, 0);
  options.size_bytes = 0;
  EXPECT_EQ(status_of(options), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(Try([&] { session.Time(nullptr, [](double) { return false; }); }).status,
            PLM_CONTEXT_FULL);  // the default of 512 tokens
  options = Decode(1, 0);
  EXPECT_EQ(Try([&] { session.Time(&options, [](double) { return false; }); }).status,
            PLM_CANCELLED);
  EXPECT_EQ(status_of(Decode(16, 16)), PLM_OK);
}

TEST(BenchmarkContractTest, NullArgumentsAreInvalid) {
  plm_benchmark_result timed = {sizeof(plm_benchmark_result)};
  plm_read_bandwidth bandwidth = {};
  char* text = nullptr;
  EXPECT_EQ(plm_session_benchmark(nullptr, nullptr, nullptr, nullptr, &timed, nullptr),
            PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_describe(nullptr, &text), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_measure_memory(nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_measure_read_bandwidth(nullptr, 1, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_measure_read_bandwidth(nullptr, 1, &bandwidth), PLM_INVALID_ARGUMENT);  // no size
  EXPECT_EQ(plm_describe_machine(nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_identify_model(nullptr, nullptr), PLM_INVALID_ARGUMENT);
  plm::Session session(LoadTiny("tiny_qwen3"));
  EXPECT_EQ(plm_session_benchmark(session.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
            PLM_INVALID_ARGUMENT);
}

TEST(MeasureTest, MachineMemoryAndIdentity) {
  const json machine = json::parse(plm::DescribeMachine());
  EXPECT_GE(machine.at("cpus").get<int>(), 1);
  EXPECT_TRUE(machine.at("cpu_flags").is_array());
  const plm_memory_usage memory = plm::MeasureMemory();
  EXPECT_GE(memory.peak_rss_bytes, memory.anonymous_bytes);
  const plm_model_identity identity = plm::IdentifyModel(TinyModelPath("tiny_qwen3", "model.gguf"));
  EXPECT_EQ(std::string(identity.hash).size(), 16u);
  EXPECT_GT(identity.file_bytes, 1000u);
  EXPECT_EQ(Try([&] { plm::IdentifyModel("no/such.gguf"); }).status, PLM_NOT_FOUND);
  EXPECT_EQ(Try([&] { plm::MeasureReadBandwidth("no/such.gguf", 1); }).status, PLM_NOT_FOUND);
  EXPECT_EQ(Try([&] { plm::MeasureReadBandwidth("", -1); }).status, PLM_INVALID_ARGUMENT);
}

TEST(KvTypeTest, SessionsSayWhatTheyUse) {
  const plm::Model model = LoadTiny("tiny_qwen3");
  EXPECT_EQ(json::parse(plm::Session(model).Describe()).at("kv_k_type"), "int8");
  plm_session_options options = ContextOf(40);
  options.kv_k_type = PLM_KV_F32;
  options.kv_v_type = PLM_KV_F16;
  const json described = json::parse(plm::Session(model, &options).Describe());
  EXPECT_EQ(described.at("kv_k_type"), "f32");
  EXPECT_EQ(described.at("kv_v_type"), "f16");
  EXPECT_EQ(described.at("context_length"), 40);
  EXPECT_EQ(described.at("num_threads"), 2);
  options.kv_v_type = static_cast<plm_kv_type>(4);
  EXPECT_EQ(Try([&] { plm::Session session(model, &options); }).status, PLM_INVALID_ARGUMENT);
}

// KV-D3: keys in 4 bits are warned of, once, with what to take instead; other pairs are not.
TEST(KvTypeTest, KvD3FourBitKeysAreWarnedOf) {
  const plm::Model model = LoadTiny("tiny_qwen3");
  std::vector<std::string> warnings;
  plm_set_log_callback(
      [](plm_log_level level, const char* message, void* user) {
        if (level == PLM_LOG_WARNING)
          static_cast<std::vector<std::string>*>(user)->push_back(message);
      },
      &warnings);
  plm_session_options options = ContextOf(32);
  const auto open = [&](plm_kv_type k, plm_kv_type v) {
    options.kv_k_type = k;
    options.kv_v_type = v;
    return Try([&] { plm::Session session(model, &options); }).status;
  };
  EXPECT_EQ(open(PLM_KV_INT8, PLM_KV_INT4), PLM_OK);
  EXPECT_EQ(open(PLM_KV_F16, PLM_KV_INT8), PLM_OK);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(open(PLM_KV_INT4, PLM_KV_INT8), PLM_OK);
  plm_set_log_callback(nullptr, nullptr);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("int4"));
  EXPECT_THAT(warnings[0], HasSubstr("int8"));
  EXPECT_THAT(warnings[0], ::testing::Not(HasSubstr("\n")));
}

TEST(ActivationsTest, AreAnOptionOfTheModel) {
  const std::string path = TinyModelPath("tiny_qwen3", "model.gguf");
  EXPECT_EQ(json::parse(plm::Model::Load(path).Describe()).at("activations"), "int8");
  plm_model_options options = plm_model_options_default();
  options.activations = PLM_ACTIVATIONS_F32;
  EXPECT_EQ(json::parse(plm::Model::Load(path, &options).Describe()).at("activations"), "f32");
  options.activations = static_cast<plm_activations>(2);
  EXPECT_EQ(Try([&] { plm::Model::Load(path, &options); }).status, PLM_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace pocketlm::testing
