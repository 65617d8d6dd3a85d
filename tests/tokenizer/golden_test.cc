// Ids of the Qwen3 tokenizer against those that the `tokenizers` package computed (shared data, golden).
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/utf8.h"
#include "test_models.h"
#include "tokenizer/detokenizer.h"

namespace pocketlm {
namespace {

using Json = nlohmann::json;
const Tokenizer::EncodeOptions kSpecial = {.parse_special = true};

// The Qwen3 tokenizer, made once; nullptr without shared data.
const Tokenizer* Qwen3() {
  static const std::unique_ptr<Tokenizer> tokenizer = [] {
    const auto path = testing::DataPath("tokenizer/qwen3/tokenizer.json.gz");
    if (!path) return std::unique_ptr<Tokenizer>();
    auto spec = ParseTokenizerJson(testing::ReadGzipOrDie(*path), "");
    POCKETLM_CHECK(spec.ok());
    return testing::CreateOrDie(std::move(spec).value());
  }();
  return tokenizer.get();
}

std::vector<Json> Lines(const std::string& text) {
  std::vector<Json> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) out.push_back(Json::parse(line));
  }
  return out;
}

std::string FromBase64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::string_view alphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t value = alphabet.find(c);
    if (value == std::string_view::npos) continue;
    bits = bits << 6 | static_cast<uint32_t>(value);
    if ((count += 6) >= 8) out.push_back(static_cast<char>(bits >> (count -= 8)));
  }
  return out;
}

std::string ReadOrDie(const std::string& path) {
  auto text = ReadFile(path);
  POCKETLM_CHECK(text.ok());
  return std::move(text).value();
}

TEST(TokenizerGolden, Text) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/golden/text.jsonl.gz");
  const auto rows = Lines(testing::ReadGzipOrDie(path));
  ASSERT_GT(rows.size(), 1000u);
  for (const Json& row : rows) {
    const std::string text = row["text"];
    const auto ids = Qwen3()->Encode(text, kSpecial);
    ASSERT_EQ(ids, row["ids"].get<std::vector<int32_t>>()) << text;
    ASSERT_EQ(Qwen3()->Decode(ids, false), row.value("decoded", text));
  }
}

TEST(TokenizerGolden, Chat) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/golden/chat.jsonl");
  const auto rows = Lines(ReadOrDie(path));
  ASSERT_GT(rows.size(), 50u);
  for (const Json& row : rows) {
    const std::string rendered = row["rendered"];
    const auto expected = row["ids"].get<std::vector<int32_t>>();
    ASSERT_EQ(Qwen3()->Encode(rendered, kSpecial), expected) << row["id"];
    ASSERT_EQ(Qwen3()->EncodePrompt(rendered, {}), expected) << row["id"];
  }
}

TEST(TokenizerGolden, Files) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/golden/files.jsonl");
  for (const Json& row : Lines(ReadOrDie(path))) {
    POCKETLM_REQUIRE_DATA_PATH(file, row["file"].get<std::string>());
    const auto ids = Qwen3()->Encode(ReadOrDie(file));
    ASSERT_EQ(ids.size(), row["tokens"].get<size_t>()) << file;
    const auto first = row["first"].get<std::vector<int32_t>>(),
               last = row["last"].get<std::vector<int32_t>>();
    EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.begin() + 16), first) << file;
    EXPECT_EQ(std::vector<int32_t>(ids.end() - 16, ids.end()), last) << file;
  }
}

TEST(TokenizerGolden, TOK_D3_InvalidUtf8) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/utf8/invalid.jsonl");
  POCKETLM_REQUIRE_DATA_PATH(model, "tokenizer/qwen3/tokenizer.json.gz");
  const auto rows = Lines(ReadOrDie(path));
  ASSERT_GE(rows.size(), 20u);
  for (const Json& row : rows) {
    const std::string bytes = FromBase64(row["base64"]);
    const auto ids = Qwen3()->Encode(bytes);
    EXPECT_EQ(Qwen3()->DecodeBytes(ids, false), bytes) << row["name"];
    EXPECT_EQ(Qwen3()->Decode(ids, false), row["replaced"].get<std::string>()) << row["name"];
  }
}

TEST(TokenizerGolden, STR_D1_Stream) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/utf8/stream.jsonl");
  POCKETLM_REQUIRE_DATA_PATH(model, "tokenizer/qwen3/tokenizer.json.gz");
  for (const Json& row : Lines(ReadOrDie(path))) {
    IncrementalDetokenizer stream(Qwen3());
    std::string joined;
    const auto ids = row["token_ids"].get<std::vector<int32_t>>();
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(Qwen3()->TokenBytes(ids[i]), FromBase64(row["bytes_per_token"][i]));
      const std::string delta = stream.Push(ids[i]);
      EXPECT_EQ(delta.find("\xEF\xBF\xBD"), std::string::npos);
      joined += delta;
    }
    EXPECT_EQ(joined + stream.Flush(), row["text"].get<std::string>());
  }
}

TEST(TokenizerGolden, SpecialTokensOfQwen3) {
  POCKETLM_REQUIRE_DATA_PATH(config, "tokenizer/qwen3/tokenizer_config.json");
  POCKETLM_REQUIRE_DATA_PATH(model, "tokenizer/qwen3/tokenizer.json.gz");
  const auto spec = ParseTokenizerJson(testing::ReadGzipOrDie(model), ReadOrDie(config));
  ASSERT_OK(spec);
  const auto t = testing::CreateOrDie(*spec);
  EXPECT_EQ(t->vocab_size(), 151669);
  EXPECT_EQ(t->eos_id(), 151645);
  EXPECT_EQ(t->pad_id(), 151643);
  EXPECT_EQ(t->bos_id(), -1);
  EXPECT_FALSE(t->add_bos());
  EXPECT_EQ(t->FindToken("<|im_start|>"), 151644);
  EXPECT_TRUE(t->IsControl(151644));
  EXPECT_FALSE(t->IsControl(*t->FindToken("<think>")));
}

}  // namespace
}  // namespace pocketlm
