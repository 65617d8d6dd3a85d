// The C API's conventions: null handles, option sizes, error texts, ownership, and the reports in JSON.
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "support/api_support.h"

namespace pocketlm::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class ContractTest : public ::testing::Test {
 protected:
  ContractTest() {
    scripted_.file.Script('x', {"one", " two"}, scripted_.eos);
    scripted_.file.set_chat_template(kChatMl);
    path_ = scripted_.file.WriteGguf();
  }

  ScriptedModel scripted_;
  std::string path_;
};

TEST_F(ContractTest, NamesAndVersion) {
  const std::vector<std::pair<plm_status, std::string>> names = {
      {PLM_OK, "ok"},
      {PLM_INVALID_ARGUMENT, "invalid_argument"},
      {PLM_NOT_FOUND, "not_found"},
      {PLM_DATA_ERROR, "data_error"},
      {PLM_UNSUPPORTED, "unsupported"},
      {PLM_CONTEXT_FULL, "context_full"},
      {PLM_CANCELLED, "cancelled"},
      {PLM_OUT_OF_MEMORY, "out_of_memory"},
      {PLM_IO_ERROR, "io_error"},
      {PLM_BUSY, "busy"},
      {PLM_INTERNAL, "internal"}};
  for (const auto& [status, name] : names) EXPECT_EQ(plm_status_name(status), name);
  EXPECT_NE(plm_status_name(static_cast<plm_status>(999)), nullptr);
  EXPECT_STREQ(plm_version(), "0.1.0");
}

TEST_F(ContractTest, FreeingNullIsAllowed) {
  plm_string_free(nullptr);
  plm_tokenizer_free(nullptr);
  plm_model_free(nullptr);
  plm_session_free(nullptr);
  plm_session_cancel(nullptr);
}

TEST_F(ContractTest, NullArgumentsAreInvalid) {
  plm_model* model = nullptr;
  plm_tokenizer* tokenizer = nullptr;
  plm_session* session = nullptr;
  char* text = nullptr;
  size_t count = 0;
  float logit = 0;
  EXPECT_EQ(plm_model_load(nullptr, nullptr, &model), PLM_INVALID_ARGUMENT);
  EXPECT_STRNE(plm_last_error(), "");
  EXPECT_EQ(plm_model_load(path_.c_str(), nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_load(nullptr, &tokenizer), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_load(path_.c_str(), nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_encode(nullptr, "a", 1, nullptr, nullptr, 0, &count),
            PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_decode(nullptr, nullptr, 0, &text, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_create(nullptr, nullptr, &session), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_model_describe(nullptr, &text), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_model_render_chat(nullptr, "[]", nullptr, &text, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_inspect(nullptr, nullptr, &text), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_inspect(path_.c_str(), nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_verify(nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_reset(nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_text(nullptr, "a", 1, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_chat(nullptr, "[]", nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_tokens(nullptr, nullptr, 0), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_tokens(nullptr, nullptr, 0, &count), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_logits(nullptr, &logit, 1), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_generate(nullptr, nullptr, nullptr, nullptr, &text, nullptr),
            PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_perplexity(nullptr, "a", 1, nullptr, nullptr, nullptr, nullptr),
            PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_vocab_size(nullptr), 0);
  EXPECT_EQ(plm_tokenizer_piece(nullptr, 0, &count), nullptr);
  EXPECT_EQ(plm_model_tokenizer(nullptr), nullptr);
  EXPECT_FALSE(plm_model_has_chat_template(nullptr));
  EXPECT_EQ(plm_session_context_length(nullptr), 0u);
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(tokenizer, nullptr);
  EXPECT_EQ(session, nullptr);
  EXPECT_EQ(text, nullptr);
}

TEST_F(ContractTest, NullDataOfAValidSessionIsInvalid) {
  plm::Session session(plm::Model::Load(path_));
  plm_generate_options options = Greedy(1);
  options.stop_count = 1;
  session.SetTokens({'x'});
  EXPECT_EQ(Try([&] { session.Generate(&options); }).status, PLM_INVALID_ARGUMENT);
  options = Greedy(1);
  options.logit_bias_count = 1;
  EXPECT_EQ(Try([&] { session.Generate(&options); }).status, PLM_INVALID_ARGUMENT);
  options = Greedy(1);
  const char* stops[] = {nullptr};
  options.stop = stops;
  options.stop_count = 1;
  EXPECT_EQ(Try([&] { session.Generate(&options); }).status, PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_text(session.get(), nullptr, 3, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_chat(session.get(), nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_set_tokens(session.get(), nullptr, 3), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_session_logits(session.get(), nullptr, 100000), PLM_INVALID_ARGUMENT);
  std::vector<float> logits(3);
  EXPECT_EQ(plm_session_logits(session.get(), logits.data(), logits.size()), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(session.Tokens(), std::vector<int32_t>{'x'});
  EXPECT_EQ(session.Generate().text, "one two");
}

TEST_F(ContractTest, OptionsOfAnotherSizeAreAccepted) {
  plm::Session session(plm::Model::Load(path_));
  // An older program: it knows max_tokens and nothing after it.
  plm_generate_options older = plm_generate_options_default();
  std::memset(reinterpret_cast<char*>(&older) + offsetof(plm_generate_options, temperature), 0xFF,
              sizeof(older) - offsetof(plm_generate_options, temperature));
  older.size_bytes = offsetof(plm_generate_options, temperature);
  older.max_tokens = 1;
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate(&older).text, "one");
  // A newer program: fields that this library does not know.
  struct {
    plm_generate_options known = plm_generate_options_default();
    char more[64] = {};
  } newer;
  newer.known.size_bytes = sizeof(newer);
  newer.known.max_tokens = 1;
  session.SetTokens({'x'});
  EXPECT_EQ(session.Generate(&newer.known).text, "one");
}

TEST_F(ContractTest, OptionsWithoutASizeAreRefused) {
  plm::Model model = plm::Model::Load(path_);
  plm_model_options model_options = plm_model_options_default();
  model_options.size_bytes = 0;
  EXPECT_EQ(Try([&] { plm::Model::Load(path_, &model_options); }).status, PLM_INVALID_ARGUMENT);
  plm_session_options session_options = plm_session_options_default();
  session_options.size_bytes = 0;
  EXPECT_EQ(Try([&] { plm::Session session(model, &session_options); }).status,
            PLM_INVALID_ARGUMENT);
  plm::Session session(model);
  session.SetTokens({'x'});
  plm_generate_options generate = plm_generate_options_default();
  generate.size_bytes = 0;
  EXPECT_EQ(Try([&] { session.Generate(&generate); }).status, PLM_INVALID_ARGUMENT);
  plm_encode_options encode = plm_encode_options_default();
  encode.size_bytes = 1;
  EXPECT_EQ(Try([&] { model.tokenizer().Encode("x", &encode); }).status, PLM_INVALID_ARGUMENT);
  plm_chat_options chat = plm_chat_options_default();
  chat.size_bytes = 0;
  EXPECT_EQ(Try([&] { session.SetChat("[]", &chat); }).status, PLM_INVALID_ARGUMENT);
}

TEST_F(ContractTest, NegativeThreadCountIsRefused) {
  plm_model_options options = plm_model_options_default();
  for (const int32_t threads : {-1, INT32_MIN, INT32_MAX}) {
    options.num_threads = threads;
    EXPECT_EQ(Try([&] { plm::Model::Load(path_, &options); }).status, PLM_INVALID_ARGUMENT)
        << threads;
  }
}

TEST_F(ContractTest, LastErrorIsOfThisThreadAndNamesThePath) {
  plm_model* model = nullptr;
  EXPECT_EQ(plm_model_load("no/such/model.gguf", nullptr, &model), PLM_NOT_FOUND);
  EXPECT_THAT(plm_last_error(), HasSubstr("no/such/model.gguf"));
  EXPECT_THAT(plm_last_error(), ::testing::Not(HasSubstr("\n")));
  std::string other = "unset";
  std::thread([&] { other = plm_last_error(); }).join();
  EXPECT_EQ(other, "");
}

TEST_F(ContractTest, TokenizerCallsWithSmallBuffersAndAnyBytes) {
  const plm::Tokenizer tokenizer = plm::Tokenizer::Load(path_);
  EXPECT_EQ(tokenizer.vocab_size(), scripted_.file.num_tokens());
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  bytes += "\xE6\xAD" + std::string("a\xFF") + "\xC3";
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(bytes)), bytes);

  plm_tokenizer* handle = nullptr;
  ASSERT_EQ(plm_tokenizer_load(path_.c_str(), &handle), PLM_OK);
  int32_t ids[4] = {-7, -7, -7, -7};
  size_t count = 0;
  EXPECT_EQ(plm_tokenizer_encode(handle, "abc", 3, nullptr, ids, 2, &count), PLM_OK);
  EXPECT_EQ(count, 3u);
  EXPECT_THAT(ids, ::testing::ElementsAre('a', 'b', -7, -7));
  EXPECT_EQ(plm_tokenizer_encode(handle, "abc", 3, nullptr, nullptr, 2, &count),
            PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_tokenizer_encode(handle, nullptr, 0, nullptr, nullptr, 0, &count), PLM_OK);
  EXPECT_EQ(count, 0u);
  char* text = nullptr;
  size_t text_bytes = 99;
  const int32_t bad = tokenizer.vocab_size();
  EXPECT_EQ(plm_tokenizer_decode(handle, &bad, 1, &text, &text_bytes), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(plm_tokenizer_decode(handle, nullptr, 0, &text, &text_bytes), PLM_OK);
  EXPECT_STREQ(text, "");
  EXPECT_EQ(text_bytes, 0u);
  plm_string_free(text);
  EXPECT_EQ(plm_tokenizer_piece(handle, -1, &count), nullptr);
  EXPECT_EQ(plm_tokenizer_piece(handle, bad, &count), nullptr);
  EXPECT_EQ(tokenizer.Piece(' '), "Ġ");
  EXPECT_EQ(tokenizer.Piece(scripted_.im_end), "<|im_end|>");
  plm_tokenizer_free(handle);
}

TEST_F(ContractTest, DescribeAndInspectReport) {
  plm_model_options options = plm_model_options_default();
  options.num_threads = 2;
  const plm::Model model = plm::Model::Load(path_, &options);
  const json description = json::parse(model.Describe());
  EXPECT_EQ(description.at("architecture"), "llama");
  EXPECT_EQ(description.at("context_length"), 256);
  EXPECT_EQ(description.at("num_threads"), 2);
  EXPECT_EQ(description.at("has_chat_template"), true);
  for (const char* key : {"parameters", "config", "cpu_variant", "end_tokens"})
    EXPECT_TRUE(description.contains(key)) << key;

  char* text = nullptr;
  ASSERT_EQ(plm_inspect(path_.c_str(), nullptr, &text), PLM_OK) << plm_last_error();
  const json report = json::parse(text);
  plm_string_free(text);
  EXPECT_EQ(report.at("architecture"), "llama");
  EXPECT_EQ(report.at("parameters"), description.at("parameters"));
  ASSERT_EQ(report.at("tensors").size(), 12u);
  for (const json& tensor : report.at("tensors")) {
    for (const char* key : {"name", "type", "shape", "bytes"})
      EXPECT_TRUE(tensor.contains(key)) << key;
  }
  EXPECT_TRUE(report.at("metadata").is_object());
  const json& plan = report.at("memory_plan");
  EXPECT_EQ(plan.at("total_bytes").get<uint64_t>(), plan.at("weights_bytes").get<uint64_t>() +
                                                        plan.at("kv_bytes").get<uint64_t>() +
                                                        plan.at("arena_bytes").get<uint64_t>());
}

TEST_F(ContractTest, KvBytesOfThePlanFollowTheOptions) {
  const auto kv_bytes = [&](plm_kv_type k, plm_kv_type v, uint32_t context) {
    plm_session_options options = ContextOf(context);
    options.kv_k_type = k;
    options.kv_v_type = v;
    char* text = nullptr;
    EXPECT_EQ(plm_inspect(path_.c_str(), &options, &text), PLM_OK);
    const json report = json::parse(text);
    plm_string_free(text);
    return report.at("memory_plan").at("kv_bytes").get<uint64_t>();
  };
  const uint64_t f16 = kv_bytes(PLM_KV_F16, PLM_KV_F16, 256);
  EXPECT_GE(f16, 256u * 2u * 2u * 2u);  // positions × (K and V) × head_dim × 2 bytes
  EXPECT_EQ(kv_bytes(PLM_KV_F32, PLM_KV_F32, 256), 2 * f16);
  EXPECT_EQ(kv_bytes(PLM_KV_F16, PLM_KV_F16, 128), f16 / 2);
  plm_session_options bad = plm_session_options_default();
  bad.kv_k_type = static_cast<plm_kv_type>(77);
  plm::Model model = plm::Model::Load(path_);
  EXPECT_EQ(Try([&] { plm::Session session(model, &bad); }).status, PLM_INVALID_ARGUMENT);
}

TEST_F(ContractTest, LogCallbackCanBeSetAndRemoved) {
  std::string lines;
  plm_set_log_callback([](plm_log_level, const char* message,
                          void* user) { *static_cast<std::string*>(user) += message; },
                       &lines);
  plm::Model::Load(path_);
  plm_set_log_callback(nullptr, nullptr);
  const std::string before = lines;
  plm::Model::Load(path_);
  EXPECT_EQ(lines, before);
}

TEST_F(ContractTest, CppObjectsShareTheModel) {
  std::unique_ptr<plm::Session> session;
  std::unique_ptr<plm::Tokenizer> tokenizer;
  {
    const plm::Model model = plm::Model::Load(path_);
    session = std::make_unique<plm::Session>(model);
    tokenizer = std::make_unique<plm::Tokenizer>(model.tokenizer());
  }
  session->SetTokens({'x'});
  EXPECT_EQ(session->Generate().text, "one two");
  EXPECT_EQ(tokenizer->Encode("x"), std::vector<int32_t>{'x'});
}

TEST_F(ContractTest, PerplexityRefusesTextsThatAreTooShort) {
  const plm_session_options context = ContextOf(64);
  plm::Session session(plm::Model::Load(path_), &context);
  EXPECT_EQ(Try([&] { session.Perplexity(std::string(63, 'x')); }).status, PLM_INVALID_ARGUMENT);
  plm_perplexity_options all = plm_perplexity_options_default();
  all.score_all = true;
  EXPECT_EQ(Try([&] { session.Perplexity("", &all); }).status, PLM_INVALID_ARGUMENT);
  const plm_perplexity_result result = session.Perplexity("xy", &all);
  EXPECT_EQ(result.tokens, 2u);
  EXPECT_EQ(result.bytes, 2u);
  EXPECT_TRUE(session.Tokens().empty());

  const plm_session_options narrow = ContextOf(3);
  plm::Session tiny(plm::Model::Load(path_), &narrow);
  const Outcome outcome = Try([&] { tiny.Perplexity(std::string(63, 'x')); });
  EXPECT_EQ(outcome.status, PLM_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("context of at least 4 tokens, got 3"));
}

}  // namespace
}  // namespace pocketlm::testing
