#include "chat/message.h"

#include "chat_test_support.h"

namespace pocketlm::testing {
namespace {

std::string Normalized(const char* json) {
  auto out = NormalizeMessages(Json::parse(json));
  return out.ok() ? out->dump() : ErrorText(out);
}

TEST(NormalizeMessages, ContentBecomesText) {
  EXPECT_EQ(Normalized(R"([{"role":"user","content":null}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(Normalized(R"([{"role":"user"}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(Normalized(R"([{"content":null,"role":"a","tool_calls":null,"x":null,"y":1}])"),
            R"([{"content":"","role":"a","y":1}])");
}

TEST(NormalizeMessages, ArgumentsBecomeObjects) {
  EXPECT_EQ(
      Normalized(
          R"([{"role":"a","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\"b\":1,\"a\":[]}"}}]}])"),
      R"([{"role":"a","content":"","tool_calls":[{"function":{"name":"f","arguments":{"b":1,"a":[]}}}]}])");
  // Only an object is decoded; other strings are left to the template.
  EXPECT_EQ(
      Normalized(
          R"([{"role":"a","content":"","tool_calls":[{"name":"f","arguments":"[1]"},{"arguments":"{bad"},{"arguments":"{}"}]}])"),
      R"([{"role":"a","content":"","tool_calls":[{"name":"f","arguments":"[1]"},{"arguments":"{bad"},{"arguments":{}}]}])");
  const std::string deep(100000, '[');
  const Json message = {{"role", "a"}, {"tool_calls", {{{"arguments", "{\"a\":" + deep}}}}};
  EXPECT_OK(NormalizeMessages(Json::array({message})));
}

TEST(NormalizeMessages, ErrorsNameThePlace) {
  EXPECT_EQ(Normalized("{}"), "invalid_argument: messages: expected an array, got object");
  EXPECT_EQ(Normalized("[1]"), "invalid_argument: messages[0]: expected an object, got number");
  EXPECT_EQ(Normalized(R"([{"role":"user"},{"content":"x"}])"),
            "invalid_argument: messages[1].role: missing");
  EXPECT_EQ(Normalized(R"([{"role":""}])"), "invalid_argument: messages[0].role: empty");
  EXPECT_EQ(Normalized(R"([{"role":3}])"),
            "invalid_argument: messages[0].role: expected a string, got number");
  EXPECT_EQ(Normalized(R"([{"role":"u","content":3}])"),
            "invalid_argument: messages[0].content: expected a string, an array of parts or null, "
            "got number");
  EXPECT_EQ(Normalized(R"([{"role":"u","content":[{"text":"x"}]}])"),
            "invalid_argument: messages[0].content[0].type: missing");
  EXPECT_EQ(Normalized(R"([{"role":"u","content":[{"type":"text"}]}])"),
            "invalid_argument: messages[0].content[0].text: missing");
  EXPECT_EQ(Normalized(R"([{"role":"u","tool_calls":{}}])"),
            "invalid_argument: messages[0].tool_calls: expected an array, got object");
  EXPECT_EQ(Normalized(R"([{"role":"u","tool_calls":[{"function":1}]}])"),
            "invalid_argument: messages[0].tool_calls[0].function: expected an object, got number");
}

TEST(NormalizeMessages, PartsStay) {
  const char* const parts =
      R"([{"role":"u","content":[{"type":"text","text":"a"},{"type":"image"}]}])";
  EXPECT_EQ(Normalized(parts), parts);
}

TEST(FlattenText, JoinsTextParts) {
  Json messages = Json::parse(
      R"([{"role":"u","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                                  {"role":"u","content":[{"type":"image"}]},{"role":"u","content":"c"}])");
  FlattenText(&messages);
  EXPECT_EQ(messages[0]["content"], "a\nb");
  EXPECT_TRUE(messages[1]["content"].is_array());
  EXPECT_EQ(messages[2]["content"], "c");
}

}  // namespace
}  // namespace pocketlm::testing
