// What a session takes: memory against the plan, memory over many requests, CPU time of an idle process.
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/api_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using nlohmann::json;

// What a session may take beyond its plan: tokens and their texts, the sampler, and the system's lazy counters.
constexpr int64_t kBudgetBytes = int64_t{4} << 20;

int64_t AnonymousBytes() {
  const plm_memory_usage usage = plm::MeasureMemory();
  return static_cast<int64_t>(usage.anonymous_bytes + usage.swap_bytes);
}

double ProcessCpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

std::vector<int32_t> Prompt(size_t count) {
  std::vector<int32_t> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>(100 + i * 7 % 9000);
  return ids;
}

void Answer(plm::Session* session, const std::vector<int32_t>& prompt, int32_t tokens) {
  session->SetTokens(prompt);
  plm_generate_options options = Greedy(tokens);
  options.ignore_end_tokens = true;
  session->Generate(&options);
}

// MEM-D1: no second copy of the weights, and no more than the plan says. The KV types and a long context make the
// cache the largest part of it.
TEST(MemoryPlanTest, MemD1PeakStaysWithinThePlan) {
  POCKETLM_REQUIRE_MODEL(path, "smollm2-135m");
  const plm::Model model = plm::Model::Load(path);
  const int64_t loaded = AnonymousBytes();
  for (const plm_kv_type type : {PLM_KV_INT8, PLM_KV_F16}) {
    const int64_t before = AnonymousBytes();
    plm_session_options options = ContextOf(600);
    options.kv_k_type = options.kv_v_type = type;
    plm::Session session(model, &options);
    const json plan = json::parse(session.Describe()).at("memory_plan");
    Answer(&session, Prompt(512), 16);
    const int64_t planned =
        plan.at("kv_bytes").get<int64_t>() + plan.at("arena_bytes").get<int64_t>();
    const int64_t taken = AnonymousBytes() - before;
    EXPECT_LE(taken, planned + kBudgetBytes) << type;
    // A plan that promises much more than is taken would be of no use either.
    EXPECT_GE(taken, plan.at("kv_bytes").get<int64_t>() / 2) << type;
  }
  // Loading itself: vocabulary and merges, tables of the tokenizer; far below the 98 MB of weights.
  EXPECT_LE(loaded, int64_t{64} << 20);
}

// MEM-D2. The sanitizers keep freed memory on purpose, and find leaks in their own way.
class MemoryLeakTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(POCKETLM_SANITIZED)
    GTEST_SKIP() << "memory of a sanitized program says nothing";
#endif
  }
};

// Nothing is lost per request.
TEST_F(MemoryLeakTest, MemD2ManyEqualAndDistinctRequests) {
  const plm::Model model = plm::Model::Load(TinyModelPath("tiny_qwen3", "model.gguf"));
  plm::Session session(model);
  const auto request = [&](int32_t number) {
    session.SetTokens({1 + number % 50, 2, 3 + number / 50 % 50, 4});
    plm_generate_options options = Greedy(6);
    options.ignore_end_tokens = true;
    options.repetition_penalty = 1.1f;
    session.Generate(&options);
    session.Logits();
  };
  const auto growth_over = [&](int requests, bool distinct) {
    const int64_t before = AnonymousBytes();
    for (int i = 0; i < requests; ++i) request(distinct ? i : 0);
    return AnonymousBytes() - before;
  };
  growth_over(100, true);  // warm-up
  // 1 kB lost per request would show.
  EXPECT_LE(growth_over(500, false), 400 * 1024);
  EXPECT_LE(growth_over(500, true), 400 * 1024);
}

// Nothing is lost per session either.
TEST_F(MemoryLeakTest, MemD2ManySessions) {
  const plm::Model model = plm::Model::Load(TinyModelPath("tiny_qwen3", "model.gguf"));
  const auto growth_over = [&](int sessions) {
    const int64_t before = AnonymousBytes();
    for (int i = 0; i < sessions; ++i) {
      plm::Session session(model);
      Answer(&session, {1, 2, 3}, 2);
    }
    return AnonymousBytes() - before;
  };
  growth_over(20);
  EXPECT_LE(growth_over(200), 1024 * 1024);
}

// MEM-D3: a tied table lies in the file once, and the plan counts it once.
TEST(MemoryPlanTest, MemD3TiedTableCountsOnce) {
  const plm::Model model = plm::Model::Load(TinyModelPath("tiny_qwen3", "model.gguf"));
  const json plan = json::parse(plm::Session(model).Describe()).at("memory_plan");
  const plm_model_identity identity = plm::IdentifyModel(TinyModelPath("tiny_qwen3", "model.gguf"));
  EXPECT_LE(plan.at("weights_bytes").get<uint64_t>(), identity.file_bytes);
}

// A process that has answered rests within 100 ms: all threads together use next to no CPU time.
TEST(IdleTest, ThrD2NoCpuAfterAnAnswer) {
  plm_model_options options = plm_model_options_default();
  options.num_threads = 4;  // more than most test machines have
  const plm::Model model = plm::Model::Load(TinyModelPath("tiny_qwen3", "model.gguf"), &options);
  plm::Session session(model);
  for (int round = 0; round < 3; ++round) {
    Answer(&session, {1, 2, 3, 4, 5}, 20);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double before = ProcessCpuMs();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_LT(ProcessCpuMs() - before,
              6.0);  // 2 % of one core; one spinning thread would use 300 ms
  }
}

}  // namespace
}  // namespace pocketlm::testing
