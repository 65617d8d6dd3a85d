#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "test_models.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const char* const kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", use_regex}};
}

// A small Qwen-like file: a b c ab, one merge, two added tokens.
Json QwenLike() {
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kQwenPattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 4}, {"content", "<|end|>"}, {"special", true}, {"normalized", false}},
            {{"id", 5},
             {"content", "<think>"},
             {"special", false},
             {"normalized", false},
             {"lstrip", true}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, ByteLevel(false)}}}},
          {"decoder", ByteLevel(false)},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}}},
            {"merges", {"a b"}}}}};
}

std::string Error(const std::string& text) {
  const auto spec = ParseTokenizerJson(text, "");
  return spec.ok() ? "ok" : spec.status().message();
}

template <typename Change>
std::string ErrorOf(Change change) {
  Json json = QwenLike();
  change(&json);
  return Error(json.dump());
}

TEST(TokenizerJson, ReadsAByteLevelFile) {
  const auto spec = ParseTokenizerJson(QwenLike().dump(), "");
  ASSERT_OK(spec);
  EXPECT_EQ(spec->kind, TokenizerKind::kByteLevelBpe);
  EXPECT_EQ(spec->splitter, Splitter::kQwen2);
  EXPECT_TRUE(spec->nfc);
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "c", "ab", "<|end|>", "<think>"));
  EXPECT_THAT(spec->merges, ElementsAre("a b"));
  EXPECT_EQ(spec->types[4], TokenType::kControl);
  EXPECT_EQ(spec->types[5], TokenType::kUserDefined);
  ASSERT_EQ(spec->added_flags.size(), 2u);
  EXPECT_TRUE(spec->added_flags[1].lstrip);
  EXPECT_FALSE(spec->added_flags[1].in_model);
  const auto t = Tokenizer::Create(*spec);
  ASSERT_OK(t);
  EXPECT_THAT((*t)->Encode("abc <think>"), ElementsAre(3, 2, 5));
}

TEST(TokenizerJson, ConfigNamesSpecialTokens) {
  const auto spec = ParseTokenizerJson(
      QwenLike().dump(),
      R"({"eos_token": "<|end|>", "pad_token": {"content": "c"}, "bos_token": null,
                             "add_bos_token": false, "chat_template": "{{ x }}", "added_tokens_decoder": {"4": {}}})");
  ASSERT_OK(spec);
  EXPECT_EQ(spec->eos_id, 4);
  EXPECT_EQ(spec->pad_id, 2);
  EXPECT_EQ(spec->bos_id, -1);
  EXPECT_FALSE(spec->add_bos);
}

TEST(TokenizerFieldCases, TOK_D4_TemplateProcessingSetsAddBos) {
  Json json = QwenLike();
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single",
                             {{{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}},
                              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}};
  auto spec = ParseTokenizerJson(json.dump(), "");
  ASSERT_OK(spec);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_FALSE(spec->add_eos);
  EXPECT_EQ(spec->bos_id, 4);
  spec = ParseTokenizerJson(json.dump(), R"({"add_bos_token": false})");
  ASSERT_OK(spec);
  EXPECT_FALSE(spec->add_bos);
}

TEST(TokenizerFieldCases, FS_D3_CrlfBomAndNoLastNewline) {
  std::string text = QwenLike().dump(1);
  std::string crlf = "\xEF\xBB\xBF";
  for (const char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const auto spec =
      ParseTokenizerJson(crlf + "\r\n", "\xEF\xBB\xBF{\r\n\"eos_token\": \"<|end|>\"\r\n}\r\n");
  ASSERT_OK(spec);
  EXPECT_EQ(spec->eos_id, 4);
  EXPECT_EQ(spec->tokens, ParseTokenizerJson(text, "")->tokens);
}

TEST(TokenizerJson, PairsAsMerges) {
  Json json = QwenLike();
  json["model"]["merges"] = Json::array({Json::array({"a", "b"})});
  const auto spec = ParseTokenizerJson(json.dump(), "");
  ASSERT_OK(spec);
  EXPECT_THAT(spec->merges, ElementsAre("a b"));
  json["model"]["merges"][0].push_back("c");
  EXPECT_THAT(Error(json.dump()), HasSubstr("expected pairs"));
}

TEST(TokenizerFieldCases, TOK_D2_UnknownSplitPatternIsNamed) {
  const std::string error = ErrorOf(
      [](Json* j) { (*j)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+"; });
  EXPECT_THAT(error, HasSubstr("unknown split pattern \"[a-z]+\""));
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(ErrorOf([](Json* j) {
                (*j)["normalizer"] = {{"type", "Lowercase"}};
              }),
              HasSubstr("Lowercase"));
  EXPECT_THAT(ErrorOf([](Json* j) {
                (*j)["pre_tokenizer"] = {{"type", "Whitespace"}};
              }),
              HasSubstr("Whitespace"));
  EXPECT_THAT(ErrorOf([](Json* j) {
                (*j)["decoder"] = {{"type", "WordPiece"}};
              }),
              HasSubstr("WordPiece"));
  EXPECT_THAT(ErrorOf([](Json* j) {
                (*j)["post_processor"] = {{"type", "BertProcessing"}};
              }),
              HasSubstr("BertProcessing"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["type"] = "WordPiece"; }),
              HasSubstr("expected BPE"));
  EXPECT_THAT(
      ErrorOf([](Json* j) {
        (*j)["model"] = {{"type", "Unigram"}, {"vocab", Json::array({Json::array({"a", 0.5})})}};
      }),
      HasSubstr("Unigram"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["continuing_subword_prefix"] = "##"; }),
              HasSubstr("##"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["dropout"] = 0.1; }), HasSubstr("dropout"));
}

TEST(TokenizerJson, BadFiles) {
  EXPECT_EQ(ErrorOf([](Json*) {}), "ok");
  for (const char* text :
       {"", "[]", "7", "null", "\"x\"", "{", "{}", "{\"model\": 3}", "{\"model\": {\"vocab\": {}}}",
        "{\"model\": {\"vocab\": {\"a\": [0]}}}", "{\"model\": {\"merges\": [3]}}", "\xFF"}) {
    EXPECT_NE(Error(text), "ok") << text;
  }
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["vocab"]["d"] = 1; }),
              HasSubstr("id 1 is given to"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["vocab"]["d"] = -1; }),
              HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["vocab"]["d"] = 1.5; }),
              HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["vocab"]["d"] = 1'000'000'000'000; }),
              HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["vocab"]["d"] = 1'000'000; }),
              HasSubstr("too wide holes"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["added_tokens"][0]["id"] = 2; }),
              HasSubstr("id 2 of '<|end|>' is that of 'c'"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["added_tokens"][0].erase("content"); }),
              HasSubstr("expected content and id"));
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"]["unk_token"] = "<unk>"; }), HasSubstr("<unk>"));
}

// A member of the wrong type is an error, as in the reference: taken for absent, it would give other ids.
TEST(TokenizerJson, WrongTypesAreErrors) {
  for (const char* name : {"ignore_merges", "byte_fallback", "fuse_unk", "unk_token", "type",
                           "dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    for (const Json& wrong : {Json(5), Json::array(), Json::object()}) {
      EXPECT_THAT(ErrorOf([&](Json* j) { (*j)["model"][name] = wrong; }),
                  HasSubstr("tokenizer.json: "))
          << name << " = " << wrong;
    }
  }
  EXPECT_THAT(ErrorOf([](Json* j) { (*j)["model"].erase("merges"); }),
              HasSubstr("no list of merges"));
  for (const Json& wrong : {Json(nullptr), Json(5), Json("a b"), Json::object(), Json(true)}) {
    EXPECT_THAT(ErrorOf([&](Json* j) { (*j)["model"]["merges"] = wrong; }),
                HasSubstr("no list of merges"))
        << wrong;
    EXPECT_THAT(ErrorOf([&](Json* j) { (*j)["added_tokens"] = wrong; }),
                HasSubstr("added_tokens: expected a list"))
        << wrong;
  }
  for (const char* name : {"lstrip", "rstrip", "single_word", "normalized", "special"}) {
    for (const Json& wrong : {Json(nullptr), Json(1), Json("true"), Json::object()}) {
      EXPECT_THAT(ErrorOf([&](Json* j) { (*j)["added_tokens"][0][name] = wrong; }),
                  HasSubstr(std::string(name) + ": expected true or false"))
          << wrong;
    }
  }
}

TEST(TokenizerJson, AddedTokenThatTheVocabularyHasElsewhereIsRefused) {
  Json json = QwenLike();
  json["added_tokens"][0]["content"] = "ab";
  const auto spec = ParseTokenizerJson(json.dump(), "");
  ASSERT_OK(spec);
  const auto t = Tokenizer::Create(*spec);
  ASSERT_FALSE(t.ok());
  EXPECT_THAT(t.status().message(), HasSubstr("tokens 3 and 4 are both 'ab'"));
}

TEST(TokenizerJson, DeepNestingIsAnError) {
  for (const char* key : {"normalizer", "other", "model"}) {
    for (const char* bracket : {"[", "{\"x\":"}) {
      std::string text = std::string("{\"") + key + "\":";
      for (int i = 0; i < 200'000; ++i) text += bracket;
      EXPECT_NE(Error(text), "ok");
    }
  }
  std::string text = "{\"normalizer\":" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_THAT(Error(text), HasSubstr("nested deeper than 64"));
}

TEST(TokenizerJson, LargeSectionsAreAnError) {
  std::string text = "{\"decoder\":[";
  for (int i = 0; i < 100'000; ++i) text += "{},";
  EXPECT_THAT(Error(text + "{}]}"), HasSubstr("'decoder' is too large"));
}

TEST(TokenizerJson, ReadsAGemmaLikeFile) {
  const std::string space = "\xE2\x96\x81";
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}};
  const Json json = {
      {"added_tokens",
       {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
        {{"id", 4}, {"content", "\n"}, {"special", false}}}},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}}},
      {"pre_tokenizer",
       {{"type", "Split"},
        {"pattern", {{"String", " "}}},
        {"behavior", "MergedWithPrevious"},
        {"invert", false}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders", {replace, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", {{"<unk>", 0}, {space, 1}, {"a", 2}, {space + "a", 3}, {"\n", 4}, {"<0xC3>", 5}}},
        {"merges", Json::array({Json::array({space, "a"})})}}}};
  const auto spec = ParseTokenizerJson(json.dump(), "");
  ASSERT_OK(spec);
  EXPECT_EQ(spec->kind, TokenizerKind::kSentencePieceBpe);
  EXPECT_EQ(spec->types[5], TokenType::kByte);
  const auto t = Tokenizer::Create(*spec);
  ASSERT_OK(t);
  EXPECT_THAT((*t)->Encode(" a a\na\xC3 \xC2\xC2"), ElementsAre(3, 3, 4, 2, 5, 1, 0));
}

}  // namespace
}  // namespace pocketlm
