// Several threads, one or more sessions, and cancelling (field case BIND-D2).
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

using ::testing::AnyOf;

// Alternates 'x' and 'y' for ever; "p" answers "one two".
ScriptedModel LoopingModel() {
  ScriptedModel scripted;
  scripted.file.set_context_length(100000);
  scripted.file.SetSuccessor('x', 'y');
  scripted.file.SetSuccessor('y', 'x');
  scripted.file.Script('p', {"one", " two"}, scripted.eos);
  return scripted;
}

// Calls plm_session_cancel again and again until destroyed: a cancel before the call begins does nothing.
class Canceller {
 public:
  explicit Canceller(plm::Session* session) {
    thread_ = std::thread([this, session] {
      while (!done_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        session->Cancel();
      }
    });
  }
  ~Canceller() {
    done_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> done_{false};
  std::thread thread_;
};

TEST(BusyTest, BindD2ASecondCallIsBusy) {
  plm::Model model = LoopingModel().Load();
  plm::Session session(model);
  session.SetTokens({'p'});
  std::promise<void> entered, leave;
  std::future<plm::Generation> answer = std::async(std::launch::async, [&] {
    bool first = true;
    const plm_generate_options options = Greedy();
    return session.Generate(&options, [&](std::string_view) {
      if (first) {
        entered.set_value();
        leave.get_future().wait();
        first = false;
      }
      return true;
    });
  });
  entered.get_future().wait();
  EXPECT_EQ(Try([&] { session.Generate(); }).status, PLM_BUSY);
  EXPECT_EQ(Try([&] { session.SetTokens({'x'}); }).status, PLM_BUSY);
  EXPECT_EQ(Try([&] { session.SetText("x"); }).status, PLM_BUSY);
  EXPECT_EQ(Try([&] { session.Logits(); }).status, PLM_BUSY);
  EXPECT_EQ(Try([&] { session.Tokens(); }).status, PLM_BUSY);
  EXPECT_EQ(Try([&] { session.Reset(); }).status, PLM_BUSY);
  EXPECT_FALSE(std::string(plm_last_error()).empty());
  // Other sessions of the model stay free to be made and to hold a prompt.
  plm::Session other(model);
  other.SetTokens({'p'});
  leave.set_value();
  EXPECT_EQ(answer.get().text, "one two");
  EXPECT_EQ(other.Generate().text, "one two");
}

TEST(BusyTest, BindD2TwoThreadsHammerOneSession) {
  plm::Session session(LoopingModel().Load());
  std::atomic<int> answered{0}, busy{0}, wrong{0};
  const auto hammer = [&] {
    for (int i = 0; i < 200; ++i) {
      const plm_generate_options options = Greedy(3);
      const Outcome outcome = Try([&] {
        session.SetTokens({'p'});
        session.Generate(&options);
      });
      if (outcome.status == PLM_OK)
        ++answered;
      else if (outcome.status == PLM_BUSY)
        ++busy;
      else
        ++wrong;
    }
  };
  std::thread first(hammer), second(hammer);
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(answered + busy, 400);
  EXPECT_GT(answered, 0);
  session.SetTokens({'p'});
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST(BusyTest, BindD2SessionsOfOneModelAnswerAtTheSameTime) {
  plm::Model model = LoopingModel().Load();
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(std::async(std::launch::async, [model, i] {
      plm::Session session(model);
      std::string out;
      for (int round = 0; round < 10; ++round) {
        session.SetTokens({i % 2 == 0 ? 'p' : 'x'});
        const plm_generate_options options = Greedy(4);
        out += session.Generate(&options).text + ";";
      }
      return out;
    }));
  }
  const auto repeated = [](const std::string& text) {
    std::string out;
    for (int round = 0; round < 10; ++round) out += text + ";";
    return out;
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i].get(), repeated(i % 2 == 0 ? "one two" : "yxyx"));
  }
}

TEST(TokenizerThreadsTest, AModelsTokenizerServesManyThreads) {
  plm::Model model = LoopingModel().Load();
  std::vector<std::future<bool>> done;
  for (int i = 0; i < 4; ++i) {
    done.push_back(std::async(std::launch::async, [&, i] {
      const std::string text = "thread " + std::to_string(i) + " 木🦙";
      for (int round = 0; round < 200; ++round) {
        if (model.tokenizer().Decode(model.tokenizer().Encode(text)) != text) return false;
      }
      return true;
    }));
  }
  for (auto& result : done) EXPECT_TRUE(result.get());
}

TEST(CancelTest, FromTheCallbackDuringDecode) {
  plm::Session session(LoopingModel().Load());
  session.SetTokens({'x'});
  const plm_generate_options options = Greedy();
  int pieces = 0;
  const plm::Generation answer = session.Generate(&options, [&](std::string_view) {
    if (++pieces == 5) session.Cancel();
    return true;
  });
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_CANCELLED);
  EXPECT_THAT(answer.text, AnyOf("yxyxy", "yxyxyx"));
  EXPECT_EQ(session.Tokens().size(), 1u + answer.text.size());
  session.SetTokens({'p'});
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST(CancelTest, FromAnotherThreadDuringDecode) {
  plm::Model model = LoopingModel().Load();
  const plm_session_options context = ContextOf(50000);
  plm::Session session(model, &context);
  session.SetTokens({'x'});
  {
    Canceller canceller(&session);
    EXPECT_EQ(session.Generate().result.finish_reason, PLM_FINISH_CANCELLED);
  }
  session.SetTokens({'p'});
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST(CancelTest, FromAnotherThreadDuringPrefill) {
  plm::Model model = LoopingModel().Load();
  plm_session_options context = ContextOf(50000);
  context.prefill_chunk = 16;
  plm::Session session(model, &context);
  const std::vector<int32_t> prompt(49990, 'x');
  session.SetTokens(prompt);
  {
    Canceller canceller(&session);
    const plm::Generation answer = session.Generate();
    EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_CANCELLED);
    EXPECT_EQ(answer.result.tokens_out, 0u);
    EXPECT_EQ(answer.text, "");
  }
  EXPECT_EQ(session.Tokens(), prompt);
  {
    Canceller canceller(&session);
    EXPECT_EQ(Try([&] { session.Logits(); }).status, PLM_CANCELLED);
  }
  session.SetTokens({'p'});
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST(CancelTest, WithoutARunningCallItDoesNothing) {
  plm::Session session(LoopingModel().Load());
  session.Cancel();
  session.SetTokens({'p'});
  session.Cancel();
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST(CancelTest, PerplexityFromItsCallback) {
  plm::Model model = LoopingModel().Load();
  const plm_session_options context = ContextOf(64);
  plm::Session session(model, &context);
  const std::string text(1000, 'x');
  EXPECT_EQ(Try([&] { session.Perplexity(text, nullptr, [](double) { return false; }); }).status,
            PLM_CANCELLED);
  EXPECT_EQ(session.Perplexity(text).tokens, 15u * 31u);
}

}  // namespace
}  // namespace pocketlm::testing
