// Sessions of one model side by side give what each gives alone (field cases BAT-D1, BAT-D2).
#include <gmock/gmock.h>

#include <barrier>
#include <set>
#include <thread>

#include "support/api_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

struct Answer {
  std::vector<int32_t> ids;   // prompt and answer
  std::vector<float> logits;  // after them
  bool operator==(const Answer&) const = default;
};

plm::Session SessionOf(const plm::Model& model, uint32_t chunk) {
  plm_session_options options = ContextOf(128);
  options.prefill_chunk = chunk;
  return plm::Session(model, &options);
}

// Sixteen tokens after whatever the session's prompt is, and the logits that follow.
Answer Continue(plm::Session* session) {
  plm_generate_options greedy = Greedy(16);
  greedy.ignore_end_tokens = true;
  session->Generate(&greedy);
  return {session->Tokens(), session->Logits()};
}

// Runs body(0) … body(count - 1) on threads that all begin at once.
template <typename Body>
void Together(size_t count, const Body& body) {
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class ParallelSessionsTest : public ::testing::TestWithParam<std::string> {
 protected:
  plm::Model Load(int32_t threads) const {
    plm_model_options options = plm_model_options_default();
    options.num_threads = threads;
    return plm::Model::Load(TinyModelPath(GetParam(), "hf"), &options);
  }
};

INSTANTIATE_TEST_SUITE_P(Models, ParallelSessionsTest, ::testing::ValuesIn(TinyModelNames()),
                         [](const auto& suite) { return suite.param; });

// Prompts of unlike lengths, read in unlike chunks, whose steps fall between each other's.
TEST_P(ParallelSessionsTest, BatD1AloneAndTogether) {
  const std::vector<int32_t> pool = TinyGolden(GetParam()).prompts().back();
  const std::vector<size_t> lengths = {2, 17, 40};
  const std::vector<uint32_t> chunks = {128, 5, 16};
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto first = pool.begin() + static_cast<std::ptrdiff_t>(10 * i);
    prompts.emplace_back(first, first + static_cast<std::ptrdiff_t>(lengths[i]));
  }
  std::vector<Answer> alone;
  for (const std::vector<int32_t>& prompt : prompts) {
    plm::Session session = SessionOf(Load(1), 128);
    session.SetTokens(prompt);
    alone.push_back(Continue(&session));
    EXPECT_EQ(alone.back().ids.size(), prompt.size() + 16);
  }
  const plm::Model shared = Load(2);
  std::vector<Answer> together(prompts.size());
  Together(prompts.size(), [&](size_t i) {
    for (int round = 0; round < 3; ++round) {
      plm::Session session = SessionOf(shared, chunks[i]);
      session.SetTokens(prompts[i]);
      together[i] = Continue(&session);
    }
  });
  for (size_t i = 0; i < prompts.size(); ++i)
    EXPECT_TRUE(together[i] == alone[i]) << "prompt of " << lengths[i];
}

TEST_P(ParallelSessionsTest, BatD2SixteenRequestsKeepTheirAnswers) {
  const plm::Model model = Load(2);
  const auto ask = [&model](size_t i) {
    plm::Session session = SessionOf(model, 16);
    session.SetText("repeat the word zebra-" + std::to_string(10 + i));
    return Continue(&session);
  };
  std::vector<Answer> alone, together(16);
  std::set<std::vector<float>> distinct;
  for (size_t i = 0; i < together.size(); ++i) {
    alone.push_back(ask(i));
    distinct.insert(alone.back().logits);
  }
  EXPECT_EQ(distinct.size(), 16u);  // else a mix-up could not show
  Together(together.size(), [&](size_t i) { together[i] = ask(i); });
  for (size_t i = 0; i < together.size(); ++i) EXPECT_TRUE(together[i] == alone[i]) << i;
}

}  // namespace
}  // namespace pocketlm::testing
