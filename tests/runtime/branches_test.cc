// Scores of branches against each branch alone, against logits computed token by token, and against Transformers.
#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "runtime/session.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using ::testing::HasSubstr;
using Branches = std::vector<std::vector<int32_t>>;

std::shared_ptr<Model> LoadTiny(const std::string& name) {
  auto model = Model::Load(TinyModelPath(name, "hf"), {.num_threads = 2});
  EXPECT_OK(model);
  return std::move(*model);
}

std::unique_ptr<Session> SessionOn(const std::shared_ptr<Model>& model,
                                   const SessionOptions& options) {
  auto session = Session::Create(model, options);
  EXPECT_OK(session);
  return std::move(*session);
}

class BranchesTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<int32_t> RandomIds(size_t count, unsigned range) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) {
      do {
        id = static_cast<int32_t>(random_() % range);
      } while (!model_->tokenizer().IsValid(id));
    }
    return ids;
  }

  // Few distinct tokens, so that many branches begin alike; some are equal, some begin others.
  Branches RandomBranches(size_t count) {
    Branches branches;
    for (size_t i = 0; i < count; ++i) branches.push_back(RandomIds(1 + random_() % 7, 40));
    for (size_t i = 0; i < count / 2; ++i) {
      const std::vector<int32_t>& one = branches[random_() % branches.size()];
      const size_t size = 1 + random_() % one.size();
      std::vector<int32_t> begin(one.begin(), one.begin() + static_cast<ptrdiff_t>(size));
      const std::vector<int32_t> end = RandomIds(random_() % 4, 40);
      begin.insert(begin.end(), end.begin(), end.end());
      branches.push_back(begin);
    }
    return branches;
  }

  std::shared_ptr<Model> model_ = LoadTiny(GetParam());
  std::mt19937 random_{7};
};

TEST_P(BranchesTest, EachIsWhatItIsAlone) {
  for (const KvType kv : {KvType::kF16, KvType::kI8}) {
    for (const uint32_t chunk : {1u, 3u, 128u}) {
      SessionOptions options;
      options.context_length = 100;
      options.prefill_chunk = chunk;
      options.kv_k_type = options.kv_v_type = kv;
      const auto session = SessionOn(model_, options), alone = SessionOn(model_, options);
      const std::vector<int32_t> text = RandomIds(1 + random_() % 60, 300);
      const Branches branches = RandomBranches(20);
      ASSERT_OK(session->SetTokens(text));
      const auto scores = session->ScoreBranches(branches);
      ASSERT_OK(scores);
      ASSERT_EQ(scores->size(), branches.size());
      for (size_t b = 0; b < branches.size(); ++b) {
        ASSERT_OK(alone->SetTokens(text));
        const auto score = alone->ScoreBranches(Branches{branches[b]});
        ASSERT_OK(score);
        EXPECT_EQ((*scores)[b], (*score)[0]) << "chunk " << chunk << " branch " << b;
        // Token by token.
        std::vector<int32_t> ids = text;
        std::vector<float> logits(static_cast<size_t>(model_->tokenizer().vocab_size()));
        for (size_t i = 0; i < branches[b].size(); ++i) {
          ASSERT_OK(alone->SetTokens(ids));
          ASSERT_OK(alone->CopyLogits(logits));
          double sum = 0.0;
          for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
          const double expected =
              static_cast<double>(logits[static_cast<size_t>(branches[b][i])]) - std::log(sum);
          EXPECT_NEAR(static_cast<double>((*scores)[b][i]), expected, 1e-5);
          ids.push_back(branches[b][i]);
        }
      }
      // The session goes on as if nothing had been asked.
      std::vector<float> before(static_cast<size_t>(model_->tokenizer().vocab_size())),
          after = before;
      ASSERT_OK(alone->SetTokens(text));
      ASSERT_OK(alone->CopyLogits(before));
      ASSERT_OK(session->CopyLogits(after));
      EXPECT_EQ(before, after);
      EXPECT_EQ(*session->Tokens(), text);
      std::vector<int32_t> more = text;
      more.push_back(branches[0][0]);
      ASSERT_OK(alone->SetTokens(more));
      ASSERT_OK(session->SetTokens(more));
      ASSERT_OK(alone->CopyLogits(before));
      ASSERT_OK(session->CopyLogits(after));
      EXPECT_EQ(before, after);
    }
  }
}

// A prompt's second part as one branch of its first: the logits of all positions are known.
TEST_P(BranchesTest, AreWhatTransformersComputes) {
  const TinyGolden golden(GetParam());
  const std::vector<int32_t> prompt = golden.prompts()[2];
  const std::vector<float> all = golden.Array("all_logits", 2);
  const size_t vocab = all.size() / prompt.size();
  SessionOptions options;
  options.kv_k_type = options.kv_v_type = KvType::kF32;
  const auto session = SessionOn(model_, options);
  for (const size_t cut : {1u, 17u, 39u}) {
    const auto at = prompt.begin() + static_cast<ptrdiff_t>(cut);
    ASSERT_OK(session->SetTokens(std::vector<int32_t>(prompt.begin(), at)));
    Branches branches = RandomBranches(5);
    branches.emplace_back(at, prompt.end());
    const auto scores = session->ScoreBranches(branches);
    ASSERT_OK(scores);
    for (size_t i = cut; i < prompt.size(); ++i) {
      const float* row = all.data() + (i - 1) * vocab;
      double sum = 0.0;
      for (size_t v = 0; v < vocab; ++v) {
        if (model_->tokenizer().IsValid(static_cast<int32_t>(v)))
          sum += std::exp(static_cast<double>(row[v]));
      }
      const double expected =
          static_cast<double>(row[static_cast<size_t>(prompt[i])]) - std::log(sum);
      EXPECT_NEAR(static_cast<double>(scores->back()[i - cut]), expected, 1e-4);
    }
  }
}

TEST_P(BranchesTest, RefusesWhatIsWrongAndChangesNothing) {
  SessionOptions options;
  options.context_length = 20;
  const auto session = SessionOn(model_, options);
  const auto message = [&](const Branches& branches, StatusCode code) {
    const auto scores = session->ScoreBranches(branches);
    EXPECT_EQ(scores.status().code(), code);
    return std::string(scores.status().message());
  };
  EXPECT_THAT(message({{1}}, StatusCode::kInvalidArgument), HasSubstr("no prompt"));
  const std::vector<int32_t> text = RandomIds(15, 300);
  ASSERT_OK(session->SetTokens(text));
  const int32_t id = text[0];
  EXPECT_THAT(message({{id}, {}}, StatusCode::kInvalidArgument),
              HasSubstr("branch 1: expected at least one token"));
  EXPECT_THAT(message({{id, -1}}, StatusCode::kInvalidArgument), HasSubstr("got -1"));
  EXPECT_THAT(message({{1 << 30}}, StatusCode::kInvalidArgument), HasSubstr("got 1073741824"));
  EXPECT_THAT(message({std::vector<int32_t>(7, id)}, StatusCode::kContextFull),
              HasSubstr("context holds 20"));
  EXPECT_OK(session->ScoreBranches(Branches{std::vector<int32_t>(6, id)}));
  const auto none = session->ScoreBranches(Branches{});
  ASSERT_OK(none);
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(*session->Tokens(), text);
}

INSTANTIATE_TEST_SUITE_P(All, BranchesTest, ::testing::ValuesIn(TinyModelNames()));

}  // namespace
}  // namespace pocketlm::testing
