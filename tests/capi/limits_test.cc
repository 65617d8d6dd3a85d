// Context limit, vocabulary and end tokens (field cases CTX-D*, VOC-D*, KV-D1 on a script).
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Lt;
using ::testing::Not;

std::string Messages(const std::vector<std::pair<std::string, std::string>>& turns) {
  json out = json::array();
  for (const auto& [role, content] : turns) out.push_back({{"role", role}, {"content", content}});
  return out.dump();
}

// 'x' and 'y' follow each other for ever.
ScriptedModel EndlessModel() {
  ScriptedModel scripted;
  scripted.file.SetSuccessor('x', 'y');
  scripted.file.SetSuccessor('y', 'x');
  scripted.file.set_chat_template(kChatMl);
  return scripted;
}

// Options that ask for truncation and leave `reserve_tokens` for the answer.
plm_chat_options Truncating(uint32_t reserve_tokens) {
  plm_chat_options chat = plm_chat_options_default();
  chat.truncate = true;
  chat.reserve_tokens = reserve_tokens;
  return chat;
}

std::vector<int32_t> PromptOf(size_t tokens) { return std::vector<int32_t>(tokens, 'x'); }

TEST(ContextTest, CtxD1OverlongChatIsAnErrorThatNamesBothNumbers) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(256);
  plm::Session session(model, &options);
  const std::string messages =
      Messages({{"system", "Answer only in Latin."}, {"user", std::string(400, 'q')}});
  plm_encode_options special = plm_encode_options_default();
  special.parse_special = true;
  const size_t prompt_tokens =
      model.tokenizer().Encode(model.RenderChat(messages), &special).size();
  session.SetTokens({'x'});
  const Outcome outcome = Try([&] { session.SetChat(messages); });
  EXPECT_EQ(outcome.status, PLM_CONTEXT_FULL);
  EXPECT_THAT(outcome.message, HasSubstr(std::to_string(prompt_tokens)));
  EXPECT_THAT(outcome.message, HasSubstr("256"));
  EXPECT_EQ(session.Tokens(), PromptOf(1)) << "a refused prompt changes nothing";
}

TEST(ContextTest, CtxD1TruncationKeepsTheSystemMessageAndSaysSo) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(256);
  plm::Session session(model, &options);
  const plm_chat_options chat = Truncating(32);
  const std::string user = std::string(400, 'q') + " the end";
  EXPECT_TRUE(
      session.SetChat(Messages({{"system", "Answer only in Latin."}, {"user", user}}), &chat));
  const std::vector<int32_t> tokens = session.Tokens();
  EXPECT_LE(tokens.size(), 256u - 32u);
  const std::string prompt = model.tokenizer().Decode(tokens);
  EXPECT_THAT(prompt, HasSubstr("Answer only in Latin."));
  EXPECT_THAT(prompt, HasSubstr("qqqq the end<|im_end|>"));
  EXPECT_FALSE(
      session.SetChat(Messages({{"system", "Answer only in Latin."}, {"user", "Salve"}}), &chat));
}

TEST(ContextTest, CtxD1TruncationDropsTheOldestTurnsFirst) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(256);
  plm::Session session(model, &options);
  const plm_chat_options chat = Truncating(16);
  EXPECT_TRUE(session.SetChat(Messages({{"system", "S-message"},
                                        {"user", "first" + std::string(100, 'a')},
                                        {"assistant", "second" + std::string(60, 'b')},
                                        {"user", "third" + std::string(20, 'c')},
                                        {"assistant", "fourth"},
                                        {"user", "fifth"}}),
                              &chat));
  const std::string prompt = model.tokenizer().Decode(session.Tokens());
  EXPECT_THAT(prompt, HasSubstr("S-message"));
  EXPECT_THAT(prompt, HasSubstr("fifth"));
  EXPECT_THAT(prompt, HasSubstr("third"));
  EXPECT_THAT(prompt, Not(HasSubstr("first")));
  EXPECT_THAT(prompt, Not(HasSubstr("second"))) << "an answer goes with its question";
}

// As many turns stay as fit, and finding them does not render the conversation once for every turn.
TEST(ContextTest, CtxD1TruncationOfALongConversationKeepsWhatFits) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(256);
  plm::Session session(model, &options);
  const plm_chat_options chat = Truncating(16);
  constexpr int kTurns = 3000;
  json messages = json::array();
  for (int i = 0; i < kTurns; ++i) {
    messages.push_back({{"role", "user"}, {"content", "q" + std::to_string(i)}});
    messages.push_back({{"role", "assistant"}, {"content", "a" + std::to_string(i)}});
  }
  messages.push_back({{"role", "user"}, {"content", "last"}});
  EXPECT_TRUE(session.SetChat(messages.dump(), &chat));
  const size_t kept_tokens = session.Tokens().size();
  EXPECT_LE(kept_tokens, 240u);
  const std::string prompt = model.tokenizer().Decode(session.Tokens());
  EXPECT_THAT(prompt, HasSubstr("last"));
  EXPECT_EQ(prompt.rfind("<|im_start|>userq", 0), 0u) << prompt;
  plm_encode_options special = plm_encode_options_default();
  special.parse_special = true;
  const std::string turn =
      "<|im_start|>userq2992<|im_end|>\n<|im_start|>assistanta2992<|im_end|>\n";
  EXPECT_GT(kept_tokens + model.tokenizer().Encode(turn, &special).size(), 240u);
}

TEST(ContextTest, CtxD1SystemMessageThatAloneDoesNotFitIsAnError) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(64);
  plm::Session session(model, &options);
  const plm_chat_options chat = Truncating(8);
  const Outcome outcome = Try([&] {
    session.SetChat(Messages({{"system", std::string(100, 's')}, {"user", "u"}}), &chat);
  });
  EXPECT_EQ(outcome.status, PLM_CONTEXT_FULL);
}

TEST(ContextTest, CtxD2FullContextEndsWithLengthExactly) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(128);
  plm::Session session(model, &options);
  EXPECT_EQ(session.context_length(), 128u);
  session.SetTokens(PromptOf(100));
  plm_generate_options generate = Greedy(64);
  generate.ignore_end_tokens = true;
  plm::Generation answer = session.Generate(&generate);
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_LENGTH);
  EXPECT_EQ(answer.result.tokens_out, 28u);
  EXPECT_EQ(answer.text.size(), 28u);
  EXPECT_EQ(session.Tokens().size(), 128u);

  session.SetTokens(PromptOf(64));
  answer = session.Generate(&generate);
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_LENGTH);
  EXPECT_EQ(answer.result.tokens_out, 64u);
  EXPECT_EQ(session.Tokens().size(), 128u);
}

TEST(ContextTest, CtxD3PromptsAroundTheLimit) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(128);
  plm::Session session(model, &options);
  const plm_generate_options generate = Greedy(10);

  session.SetTokens(PromptOf(127));
  plm::Generation answer = session.Generate(&generate);
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_LENGTH);
  EXPECT_EQ(answer.result.tokens_out, 1u);

  session.SetTokens(PromptOf(128));
  EXPECT_EQ(session.Logits().size(), static_cast<size_t>(model.tokenizer().vocab_size()));
  const Outcome full = Try([&] { session.Generate(&generate); });
  EXPECT_EQ(full.status, PLM_CONTEXT_FULL);
  EXPECT_THAT(full.message, HasSubstr("128"));
  EXPECT_EQ(session.Tokens().size(), 128u);

  EXPECT_EQ(Try([&] { session.SetTokens(PromptOf(129)); }).status, PLM_CONTEXT_FULL);
  EXPECT_EQ(session.Tokens().size(), 128u);

  session.Reset();
  EXPECT_TRUE(session.Tokens().empty());
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate(&generate).text, "yxyxyxyxyx");
}

TEST(ContextTest, CtxD3GrowingChatEndsInAnErrorAndTheSessionGoesOn) {
  plm::Model model = EndlessModel().Load();
  const plm_session_options options = ContextOf(200);
  plm::Session session(model, &options);
  std::vector<std::pair<std::string, std::string>> turns;
  plm_status status = PLM_OK;
  for (int turn = 0; turn < 50 && status == PLM_OK; ++turn) {
    turns.emplace_back("user", "hello");
    status = Try([&] {
               session.SetChat(Messages(turns));
               const plm_generate_options generate = Greedy(7);
               turns.emplace_back("assistant", session.Generate(&generate).text);
             }).status;
  }
  EXPECT_EQ(status, PLM_CONTEXT_FULL);
  session.Reset();
  EXPECT_FALSE(session.SetChat(Messages({{"user", "hello"}})));
}

TEST(ContextTest, ContextLengthOptionIsChecked) {
  ScriptedModel scripted = EndlessModel();
  scripted.file.set_context_length(64);
  plm::Model model = scripted.Load();
  EXPECT_EQ(plm::Session(model).context_length(), 64u);
  for (const uint32_t chunk : {0u, 4097u, UINT32_MAX}) {
    plm_session_options options = plm_session_options_default();
    options.prefill_chunk = chunk;
    EXPECT_EQ(Try([&] { plm::Session session(model, &options); }).status, PLM_INVALID_ARGUMENT)
        << chunk;
  }
}

TEST(VocabularyTest, VocD2PaddingRowsAreNeverSampled) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one", " two"}, scripted.eos);
  BigramModel::HuggingFaceOptions options;
  options.padding_rows = 100;
  plm::Model model = plm::Model::Load(scripted.file.WriteHuggingFace(options));
  EXPECT_EQ(model.tokenizer().vocab_size(), scripted.file.num_tokens());
  plm::Session session(model);
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, "one two");
  for (uint64_t seed = 0; seed < 20; ++seed) {
    session.SetTokens({'x'});
    plm_generate_options sampled = Greedy(40);
    sampled.temperature = 2.0f;
    sampled.seed = seed;
    sampled.ignore_end_tokens = true;
    session.Generate(&sampled);
    EXPECT_THAT(session.Tokens(), ::testing::Each(Lt(scripted.file.num_tokens())));
  }
}

// The end tokens that a model reports.
std::vector<int32_t> EndTokens(const plm::Model& model) {
  std::vector<int32_t> ids;
  const json description = json::parse(model.Describe());
  for (const json& item : description.at("end_tokens")) {
    ids.push_back(item.is_object() ? item.at("id").get<int32_t>() : item.get<int32_t>());
  }
  return ids;
}

TEST(VocabularyTest, VocD3GenerationConfigAddsEndTokens) {
  ScriptedModel scripted;
  const std::vector<int32_t> said = scripted.file.Script('x', {"one"}, scripted.im_end);
  scripted.file.Script(scripted.im_end, {" user:", " run on"}, scripted.eos);
  BigramModel::HuggingFaceOptions options;
  options.generation_eos = {scripted.eos, scripted.im_end};
  plm::Model model = plm::Model::Load(scripted.file.WriteHuggingFace(options));
  EXPECT_THAT(EndTokens(model), ::testing::IsSupersetOf({scripted.eos, scripted.im_end}));
  plm::Session session(model);
  session.SetTokens({'x'});
  plm::Generation answer = session.Generate();
  EXPECT_EQ(answer.text, "one");
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_STOP);
  EXPECT_EQ(answer.result.tokens_out, 2u);

  session.SetTokens({'x'});
  plm_generate_options go_on = Greedy(4);
  go_on.ignore_end_tokens = true;
  answer = session.Generate(&go_on);
  EXPECT_EQ(answer.result.tokens_out, 4u);
  EXPECT_THAT(answer.text, HasSubstr(" user: run on"));
}

TEST(VocabularyTest, VocD3GgufEndOfTurnCounts) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one"}, scripted.im_end);
  scripted.file.Script(scripted.im_end, {" run on"}, scripted.eos);
  scripted.file.set_eot(scripted.im_end);
  plm::Session session(scripted.Load());
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, "one");
}

TEST(VocabularyTest, VocD3EndMarkerOfTheTemplateCounts) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one"}, scripted.im_end);
  scripted.file.Script(scripted.im_end, {" run on"}, scripted.eos);
  scripted.file.set_chat_template(kChatMl);
  plm::Model model = scripted.Load();
  EXPECT_THAT(EndTokens(model), Contains(scripted.im_end));
  EXPECT_THAT(EndTokens(model), Not(Contains(scripted.im_start)));
  plm::Session session(model);
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate().text, "one");
}

TEST(SessionTest, KvD1GrowingPromptsGiveTheAnswersOfFreshOnes) {
  ScriptedModel scripted;
  scripted.file.Script('x', {"one", " two", " three"}, scripted.eos);
  plm::Model model = scripted.Load();
  plm::Session session(model);
  std::vector<int32_t> prompt;
  for (int round = 0; round < 5; ++round) {
    prompt.insert(prompt.end(), {'a', 'b', 'x'});
    session.SetTokens(prompt);
    plm::Session fresh(model);
    fresh.SetTokens(prompt);
    EXPECT_EQ(session.Logits(), fresh.Logits());
    EXPECT_EQ(session.Generate().text, "one two three");
    EXPECT_EQ(fresh.Generate().text, "one two three");
    EXPECT_EQ(session.Tokens(), fresh.Tokens());
  }
}

TEST(SessionTest, AnEmptySessionHasNoLogitsAndNoAnswer) {
  plm::Session session(EndlessModel().Load());
  EXPECT_EQ(Try([&] { session.Logits(); }).status, PLM_INVALID_ARGUMENT);
  EXPECT_EQ(Try([&] { session.Generate(); }).status, PLM_INVALID_ARGUMENT);
  session.SetTokens({'x'});
  const plm_generate_options none = Greedy(0);
  const plm::Generation answer = session.Generate(&none);
  EXPECT_EQ(answer.text, "");
  EXPECT_EQ(answer.result.tokens_out, 0u);
  EXPECT_EQ(answer.result.finish_reason, PLM_FINISH_LENGTH);
}

TEST(SessionTest, TokensOutsideTheVocabularyAreRefused) {
  plm::Model model = EndlessModel().Load();
  plm::Session session(model);
  for (const int32_t id : {-1, model.tokenizer().vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(Try([&] { session.SetTokens({'x', id}); }).status, PLM_INVALID_ARGUMENT) << id;
  }
  EXPECT_TRUE(session.Tokens().empty());
}

}  // namespace
}  // namespace pocketlm::testing
