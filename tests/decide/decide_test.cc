// Decisions against scores computed token by token, their symmetries, and requests that are wrong.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "decide/decider.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm::testing {
namespace {

using ::testing::HasSubstr;

class DecideTest : public ::testing::TestWithParam<std::string> {
 protected:
  static std::shared_ptr<Model> Load() {
    auto model = Model::Load(TinyModelPath(GetParam(), "hf"), {.num_threads = 2});
    EXPECT_OK(model);
    return std::move(*model);
  }

  std::unique_ptr<Session> NewSession(uint32_t context = 0) {
    SessionOptions options;
    options.context_length = context;
    auto session = Session::Create(model_, options);
    EXPECT_OK(session);
    return std::move(*session);
  }

  // What the model gives a whole token sequence after its first `known` tokens, one token at a time.
  double LogProbability(Session* session, const std::vector<int32_t>& ids, size_t known) {
    std::vector<float> logits(static_cast<size_t>(model_->tokenizer().vocab_size()));
    double sum = 0.0;
    for (size_t i = known; i < ids.size(); ++i) {
      EXPECT_OK(session->SetTokens(std::span(ids).first(i)));
      EXPECT_OK(session->CopyLogits(logits));
      double all = 0.0;
      for (const float logit : logits) all += std::exp(static_cast<double>(logit));
      sum += static_cast<double>(logits[static_cast<size_t>(ids[i])]) - std::log(all);
    }
    return sum;
  }

  std::vector<int32_t> Encode(const std::string& text) {
    std::vector<int32_t> ids = model_->tokenizer().Encode(text);
    if (model_->tokenizer().add_bos()) ids.insert(ids.begin(), model_->tokenizer().bos_id());
    return ids;
  }

  std::shared_ptr<Model> model_ = Load();
};

DecisionRequest RequestFor(const std::string& text, const std::vector<std::string>& labels) {
  DecisionRequest request;
  request.text = text;
  DecisionQuestion question;
  question.question = "Which one?";
  for (const std::string& label : labels) question.options.push_back({label, label});
  request.questions.push_back(question);
  return request;
}

const std::vector<std::string> kLabels = {"car", "carpet", "carpenter", "a much longer option",
                                          "No",  "NoYes"};

TEST_P(DecideTest, IsTheSoftmaxOfWholeOptions) {
  const auto session = NewSession(), alone = NewSession();
  Decider decider(session.get());
  DecisionRequest request = RequestFor("Who makes wooden doors?", kLabels);
  request.raw = true;
  const auto with_text = [&](const std::string& text) {
    std::vector<double> scores;
    const std::string prompt = "Text: " + text + "\nQuestion: Which one?\nAnswer:";
    std::vector<std::vector<int32_t>> all;
    for (const std::string& label : kLabels) all.push_back(Encode(prompt + " " + label + "\n"));
    size_t common = 0;
    while (std::all_of(all.begin(), all.end(), [&](const auto& ids) {
      return common + 1 < ids.size() && ids[common] == all[0][common];
    }))
      ++common;
    for (const auto& ids : all) scores.push_back(LogProbability(alone.get(), ids, common));
    return scores;
  };
  const std::vector<double> scores = with_text(request.text), prior = with_text("N/A");
  for (const bool correct : {false, true}) {
    request.correct_prior = correct;
    const auto result = decider.Decide(request);
    ASSERT_OK(result);
    const DecisionAnswer& answer = result->answers.at(0);
    double sum = 0.0, mass = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) {
      sum += std::exp(scores[i] - (correct ? prior[i] : 0.0));
      mass += std::exp(scores[i]);
    }
    double likeliest = 0.0, total = 0.0;
    for (size_t i = 0; i < kLabels.size(); ++i) {
      const double expected = std::exp(scores[i] - (correct ? prior[i] : 0.0)) / sum;
      EXPECT_EQ(answer.probabilities[i].first, kLabels[i]);
      EXPECT_NEAR(answer.probabilities[i].second, expected, 1e-5 + 1e-4 * expected);
      likeliest = std::max(likeliest, answer.probabilities[i].second);
      total += answer.probabilities[i].second;
      if (answer.probabilities[i].first == answer.choice) {
        EXPECT_NEAR(answer.probabilities[i].second, likeliest, 0.0);
      }
    }
    EXPECT_NEAR(total, 1.0, 1e-12);
    EXPECT_NEAR(answer.mass, mass, 1e-4 * mass);
    EXPECT_GE(answer.margin, 0.0);
  }
}

TEST_P(DecideTest, DoesNotDependOnTheOrder) {
  const auto session = NewSession();
  Decider decider(session.get());
  std::vector<std::string> labels = {"delivery", "del", "refund", "other"};
  std::sort(labels.begin(), labels.end());
  std::map<std::string, double> first;
  std::string choice;
  do {
    const auto result = decider.Decide(RequestFor("The parcel came broken.", labels));
    ASSERT_OK(result);
    const DecisionAnswer& answer = result->answers[0];
    if (first.empty()) {
      first.insert(answer.probabilities.begin(), answer.probabilities.end());
      choice = answer.choice;
    }
    EXPECT_EQ(answer.choice, choice);
    for (const auto& [label, probability] : answer.probabilities)
      EXPECT_NEAR(probability, first[label], 1e-12) << label;
  } while (std::next_permutation(labels.begin(), labels.end()));
}

// A text that says nothing tells nothing: the correction leaves equal chances, and of those the first label wins.
TEST_P(DecideTest, WithoutContentEveryOptionIsAsLikely) {
  const auto session = NewSession();
  Decider decider(session.get());
  const auto result = decider.Decide(RequestFor("N/A", {"carpenter", "car", "a longer one"}));
  ASSERT_OK(result);
  for (const auto& [label, probability] : result->answers[0].probabilities)
    EXPECT_NEAR(probability, 1.0 / 3.0, 1e-9) << label;
}

TEST_P(DecideTest, QuestionsShareTheTextAndAreWhatTheyAreAlone) {
  const auto session = NewSession(), alone = NewSession();
  const auto request = ParseDecisionRequest(
      R"({"text": "Great phone, works well.", "abstain_below": 0.9, "questions": [
      {"choices": ["good", {"label": "bad", "text": "not good"}]},
      {"type": "boolean", "question": "Is it praise?"},
      {"type": "score", "question": "How happy?", "min": -1, "max": 3}]})");
  ASSERT_OK(request);
  const auto together = Decider(session.get()).Decide(*request);
  ASSERT_OK(together);
  ASSERT_EQ(together->answers.size(), 3u);
  uint64_t tokens = 0;
  for (size_t i = 0; i < 3; ++i) {
    DecisionRequest one = *request;
    one.questions = {request->questions[i]};
    ASSERT_OK(alone->Reset());
    const auto result = Decider(alone.get()).Decide(one);
    ASSERT_OK(result);
    tokens += result->tokens_in;
    const DecisionAnswer &a = together->answers[i], &b = result->answers[0];
    EXPECT_EQ(a.probabilities, b.probabilities);
    EXPECT_EQ(a.choice, b.choice);
    double largest = 0.0;
    for (const auto& [label, probability] : a.probabilities)
      largest = std::max(largest, probability);
    EXPECT_EQ(a.abstained, largest < 0.9);
  }
  EXPECT_LT(together->tokens_in, tokens);
  EXPECT_EQ(together->answers[0].probabilities[1].first, "bad");
  EXPECT_EQ(together->answers[1].probabilities[0].first, "true");
  const DecisionAnswer& scale = together->answers[2];
  double mean = 0.0;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(scale.probabilities[i].first, std::to_string(static_cast<int>(i) - 1));
    mean += (static_cast<double>(i) - 1.0) * scale.probabilities[i].second;
  }
  ASSERT_TRUE(scale.score);
  EXPECT_NEAR(*scale.score, mean, 1e-12);
}

TEST_P(DecideTest, SaysWhenTheContextIsTooSmall) {
  const auto session = NewSession(64);
  Decider decider(session.get());
  const auto text = decider.Decide(RequestFor(std::string(1000, 'x'), {"a", "b"}));
  EXPECT_EQ(text.status().code(), StatusCode::kContextFull);
  const auto option = decider.Decide(RequestFor("x", {"a", std::string(1000, 'y')}));
  EXPECT_EQ(option.status().code(), StatusCode::kContextFull);
}

TEST_P(DecideTest, ControlTokensInTextsAreText) {
  const auto session = NewSession();
  Decider decider(session.get());
  const auto result =
      decider.Decide(RequestFor("<|im_end|><eos></s>", {"<|im_end|>", "</s> \n", "是 的"}));
  ASSERT_OK(result);
  EXPECT_EQ(result->answers[0].probabilities.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(All, DecideTest, ::testing::ValuesIn(TinyModelNames()));

TEST(ParseDecisionRequest, RefusesWhatIsWrong) {
  std::string many = R"({"text": "t", "questions": [{"choices": [)";
  for (int i = 0; i < 10000; ++i) many += (i > 0 ? ",\"o" : "\"o") + std::to_string(i) + "\"";
  many += "]}]}";
  const auto with = [](const std::string& question) {
    return R"({"text": "t", "questions": [)" + question + "]}";
  };
  const std::pair<std::string, const char*> cases[] = {
      {"[]", "request: expected an object"},
      {R"({"questions": []})", "text: expected a text, got nothing"},
      {R"({"text": 3})", "text: expected a text"},
      {R"({"text": "t"})", "questions: expected a list of 1 to 64, got nothing"},
      {R"({"text": "t", "questions": []})", "questions: expected a list of 1 to 64, got 0"},
      {R"({"text": "t", "question": []})", "request: expected the members"},
      {with("3"), "questions[0]: expected an object"},
      {with(R"({"type": "guess"})"), "questions[0].type: expected choice, boolean or score"},
      {with("{}"), "questions[0].choices: expected a list of options, got nothing"},
      {with(R"({"choices": ["a"]})"), "expected 2 to 200 options, got 1"},
      {many, "expected 2 to 200 options, got 10000"},
      {with(R"({"choices": ["a", "a"]})"), "choices[1]: expected options that differ"},
      {with(R"({"choices": ["a", {"label": "b", "text": "a"}]})"), "options that differ"},
      {with(R"({"choices": ["a", " "]})"), "choices[1]: expected an option with a text"},
      {with(R"({"choices": ["a", ""]})"), "expected an option with a text"},
      {with(R"({"choices": ["a", {"label": "b", "txt": "a"}]})"),
       "expected the members label, text"},
      {with(R"({"type": "boolean"})"), "questions[0].question: expected a text"},
      {with(R"({"type": "score", "question": "q", "min": 1})"), "max: expected a whole number"},
      {with(R"({"type": "score", "question": "q", "min": 5, "max": 5})"), "a scale of 2 to 200"},
      {with(R"({"type": "score", "question": "q", "min": 0, "max": 9000000000000000000})"),
       "a scale of 2 to 200"},
      {R"({"text": "t", "questions": [{"choices": ["a", "b"]}], "abstain_below": 2})",
       "abstain_below: expected a probability"},
      {R"({"text": "t", "questions": [{"choices": ["a", "b"]}], "correct_prior": 1})",
       "correct_prior: expected true or false"},
  };
  for (const auto& [json, expected] : cases) {
    const auto request = ParseDecisionRequest(json);
    EXPECT_EQ(request.status().code(), StatusCode::kInvalidArgument) << json.substr(0, 100);
    EXPECT_THAT(request.status().message(), HasSubstr(expected)) << json.substr(0, 100);
  }
  EXPECT_EQ(ParseDecisionRequest("{").status().code(), StatusCode::kDataError);
}

}  // namespace
}  // namespace pocketlm::testing
