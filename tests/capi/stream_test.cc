// Streaming text and stop texts (field cases STR-D*), through the C++ layer over the C API.
#include <gmock/gmock.h>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReplacement[] = "\xEF\xBF\xBD";

plm_generate_options WithStops(const std::vector<const char*>& stops) {
  plm_generate_options options = Greedy();
  options.stop = stops.data();
  options.stop_count = stops.size();
  return options;
}

class StreamVocabularyTest : public ::testing::TestWithParam<BigramModel::Vocabulary> {};

INSTANTIATE_TEST_SUITE_P(Vocabularies, StreamVocabularyTest,
                         ::testing::Values(BigramModel::Vocabulary::kByteLevel,
                                           BigramModel::Vocabulary::kSentencePiece));

TEST_P(StreamVocabularyTest, StrD1SplitCharactersArriveWhole) {
  ScriptedModel scripted(GetParam());
  const std::string text = "🦙歪é";
  scripted.file.ScriptBytes('x', text, scripted.eos);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  session.SetTokens({'x'});
  const Streamed streamed = Stream(&session, Greedy());
  EXPECT_EQ(streamed.answer.text, text);
  EXPECT_THAT(streamed.joined, Not(HasSubstr(kReplacement)));
  EXPECT_THAT(streamed.pieces, ElementsAre("🦙", "歪", "é"));

  std::vector<int32_t> ids = session.Tokens();
  ids.erase(ids.begin());
  if (!ids.empty() && ids.back() == scripted.eos) ids.pop_back();
  EXPECT_EQ(model.tokenizer().Decode(ids), text);

  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, text);
}

TEST_P(StreamVocabularyTest, StrD1AnswerCutInsideACharacterIsValidUtf8) {
  ScriptedModel scripted(GetParam());
  scripted.file.ScriptBytes('x', "a🦙", scripted.eos);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  for (int32_t max_tokens = 1; max_tokens <= 5; ++max_tokens) {
    session.SetTokens({'x'});
    const Streamed streamed = Stream(&session, Greedy(max_tokens));
    EXPECT_TRUE(IsValidUtf8(streamed.answer.text)) << max_tokens;
    EXPECT_EQ(streamed.answer.text.substr(0, 1), "a");
    EXPECT_EQ(streamed.answer.result.finish_reason, PLM_FINISH_LENGTH);
    EXPECT_EQ(streamed.answer.result.tokens_out, static_cast<uint32_t>(max_tokens));
  }
}

TEST_P(StreamVocabularyTest, StrD3MalformedBytesBecomeOneReplacementCharacter) {
  ScriptedModel scripted(GetParam());
  scripted.file.ScriptBytes('x', "\xC3(", scripted.eos);
  scripted.file.ScriptBytes('y', "\xE6\xAD", scripted.eos);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  session.SetTokens({'x'});
  EXPECT_EQ(Stream(&session, Greedy()).answer.text, std::string(kReplacement) + "(");
  session.SetTokens({'y'});
  EXPECT_EQ(Stream(&session, Greedy()).answer.text, kReplacement);
}

class StopTextTest : public ::testing::Test {
 protected:
  // The answer to "x" of a model that says `pieces`, one token each.
  static Streamed Answer(const std::vector<std::string>& pieces,
                         const std::vector<const char*>& stops) {
    ScriptedModel scripted;
    scripted.file.Script('x', pieces, scripted.eos);
    plm::Model model = scripted.Load();
    plm::Session session(model);
    session.SetTokens({'x'});
    const plm_generate_options options = WithStops(stops);
    Streamed streamed = Stream(&session, options);
    EXPECT_EQ(streamed.answer.result.finish_reason, PLM_FINISH_STOP);
    session.SetTokens({'x'});
    EXPECT_EQ(session.Generate(&options).text, streamed.answer.text)
        << "streamed and buffered answers differ";
    return streamed;
  }
};

TEST_F(StopTextTest, StrD2StopTextOverSeveralTokens) {
  const Streamed streamed = Answer({"red", "gre", "en", " blu", "e", " x"}, {"green blue"});
  EXPECT_EQ(streamed.answer.text, "red");
  EXPECT_THAT(streamed.pieces, ElementsAre("red"));
  EXPECT_EQ(streamed.answer.result.tokens_out, 5u);
}

TEST_F(StopTextTest, StrD2StopTextInsideOneToken) {
  EXPECT_EQ(Answer({"one", " hello", " two"}, {"ll"}).answer.text, "one he");
}

TEST_F(StopTextTest, StrD2BeginningOfAStopTextIsReleasedWhenItEndsOtherwise) {
  EXPECT_EQ(Answer({"red", "gre", "en", " blu", "b"}, {"green blue"}).answer.text, "redgreen blub");
  EXPECT_EQ(Answer({"red", "gre"}, {"green blue"}).answer.text, "redgre");
}

TEST_F(StopTextTest, StrD2StopTextThatOverlapsItself) {
  EXPECT_EQ(Answer({"a", "aa", "b", "c"}, {"aab"}).answer.text, "a");
  EXPECT_EQ(Answer({"ab", "aba", "c", "d"}, {"abac"}).answer.text, "ab");
}

TEST_F(StopTextTest, StrD2EarliestOfSeveralStopTextsCounts) {
  EXPECT_EQ(Answer({"one", " two", " three"}, {"three", "wo", "zzz"}).answer.text, "one t");
  EXPECT_EQ(Answer({"abcdef", "g"}, {"def", "bcdefg", "ef"}).answer.text, "abc");
}

TEST_F(StopTextTest, StrD2StopTextOfSplitCharacters) {
  EXPECT_EQ(Answer({"a", "\xF0", "\x9F", "\xA6", "\x99", "b"}, {"🦙"}).answer.text, "a");
}

TEST(StreamTest, CallbackThatSaysNoCancels) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one", " two", " three"}, scripted.eos);
  plm::Session session(scripted.Load());
  session.SetTokens({'x'});
  const plm_generate_options options = Greedy();
  const plm::Generation answer = session.Generate(&options, [](std::string_view) { return false; });
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_CANCELLED);
  EXPECT_EQ(answer.text, "one");
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, "one two three");
}

TEST(StreamTest, AnswersWithoutTextAndResultAreAllowed) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one"}, scripted.eos);
  plm::Session session(scripted.Load());
  session.SetTokens({'x'});
  EXPECT_EQ(plm_session_generate(session.get(), nullptr, nullptr, nullptr, nullptr, nullptr),
            PLM_OK);
  EXPECT_THAT(session.Tokens(), ::testing::Contains(scripted.file.Id("one")));
}

TEST(StreamTest, ResultCountsTokens) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one", " two"}, scripted.eos);
  plm::Session session(scripted.Load());
  session.SetTokens({'a', 'b', 'x'});
  const plm_generate_result first = session.Generate().result;
  EXPECT_EQ(first.tokens_in, 3u);
  EXPECT_EQ(first.tokens_cached, 0u);
  EXPECT_EQ(first.tokens_out, 3u);  // one, two, end
  EXPECT_GE(first.first_token_ms, 0.0);
  session.SetTokens({'a', 'b', 'c', 'x'});
  const plm_generate_result second = session.Generate().result;
  EXPECT_EQ(second.tokens_in, 4u);
  EXPECT_EQ(second.tokens_cached, 2u);
}

}  // namespace
}  // namespace pocketlm::testing
