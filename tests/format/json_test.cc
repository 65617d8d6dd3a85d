#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_support.h"

namespace pocketlm {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, const JsonLimits& limits = {}) {
  const auto result = ParseJson(text, limits);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kDataError);
  return result.status().message();
}

TEST(JsonTest, SameValuesAsThePlainParser) {
  for (const char* text :
       {R"({"a": [1, -2, 3.5, true, false, null, "x\u00e9\ud83e\udd99"], "b": {"c": {}, "d": []}})",
        R"([[[]], {"k": [{"z": 1}, 2]}, 18446744073709551615, -9223372036854775808, 1e400])",
        R"("text")", "7", "null", "\r\n {\"a\":\r\n1}\r\n", R"({"a": 1, "a": [2]})"}) {
    const auto expected = json::parse(text, nullptr, false);
    const auto result = ParseJson(text);
    if (expected.is_discarded()) {
      EXPECT_FALSE(result.ok()) << text;
    } else {
      ASSERT_OK(result);
      EXPECT_EQ(*result, expected) << text;
    }
  }
}

TEST(JsonTest, ByteOrderMark) {
  EXPECT_EQ(ParseJson("\xEF\xBB\xBF{\"a\": 1}")->at("a"), 1);
  EXPECT_FALSE(ParseJson("\xEF\xBB\xBF").ok());
}

TEST(JsonTest, ErrorsSayWhere) {
  EXPECT_THAT(ErrorOf("{\n\"a\": tru\n}"), HasSubstr("JSON: line 2, column"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("line 1, column 1"));
  EXPECT_THAT(ErrorOf("[1] 2"), HasSubstr("line 1, column 5"));
  EXPECT_THAT(ErrorOf("[NaN]"), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf("[\"\xFF\"]"), HasSubstr("UTF-8"));
  EXPECT_LT(ErrorOf("[\"" + std::string(100000, 'x')).size(), 400u);
}

TEST(JsonTest, Depth) {
  const auto nested = [](int n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_OK(ParseJson(nested(64)));
  EXPECT_THAT(ErrorOf(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("nested deeper"));
  JsonLimits limits;
  limits.max_depth = 1;
  EXPECT_OK(ParseJson(R"({"a": 1})", limits));
  EXPECT_THAT(ErrorOf(R"({"a": []})", limits), HasSubstr("nested deeper than 1 level"));
}

TEST(JsonTest, Length) {
  JsonLimits limits;
  limits.max_bytes = 4;
  EXPECT_OK(ParseJson("[12]", limits));
  EXPECT_THAT(ErrorOf("[123]", limits), HasSubstr("at most 4 bytes, got 5"));
}

TEST(JsonTest, TokenLength) {
  JsonLimits limits;
  limits.max_token_bytes = 6;
  EXPECT_OK(ParseJson(R"(["123456", "ab\"c", 123456, {"k": "", "\\": []}])", limits));
  EXPECT_THAT(ErrorOf(R"(["1234567"])", limits), HasSubstr("over 6 bytes"));
  EXPECT_THAT(ErrorOf("[1234567]", limits),
              HasSubstr("line 1, column 2: a string or number over 6"));
  EXPECT_THAT(ErrorOf("{\"a\": \"b\\\"}", limits), HasSubstr("a string without end"));
}

}  // namespace
}  // namespace pocketlm
