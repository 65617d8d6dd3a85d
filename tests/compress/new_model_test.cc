// Random models: generator, vocabulary, shapes.
#include "compress/new_model.h"

#include <cmath>
#include <random>
#include <set>

#include "compress/synthetic_tokenizer.h"
#include "gmock/gmock.h"
#include "model/model_source.h"
#include "support/test_support.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchDir;

std::vector<float> RowOf(const RowSource& rows, size_t row) {
  std::vector<float> out(rows.cols());
  rows.Values(row, out.data());
  return out;
}

TEST(RandomRows, ValuesArePinned) {
  // Computed apart, in Python, from the description of splitmix64 and of the sum of four 16-bit numbers.
  const auto a = RowOf(*MakeRandomRows(0, 0, 4, 8, 1.0f), 0);
  EXPECT_EQ(a[0], 0x1.5a4d4ap-2f);
  EXPECT_EQ(a[1], -0x1.9cc6bp+0f);
  EXPECT_EQ(a[2], -0x1.f9458ep-2f);
  EXPECT_EQ(a[3], -0x1.a02fa4p+0f);
  const auto b = RowOf(*MakeRandomRows(7, 3, 4, 8, 0.5f), 2);
  EXPECT_EQ(b[0], 0x1.9359fp-5f);
  EXPECT_EQ(b[1], -0x1.09d0dp-1f);
  EXPECT_EQ(b[2], -0x1.47dbb8p-1f);
  EXPECT_EQ(b[3], -0x1.54e02ep-2f);
}

TEST(RandomRows, LookNormal) {
  const auto rows = MakeRandomRows(1, 2, 200, 1000, 0.02f);
  double sum = 0, squares = 0, cubes = 0, largest = 0, neighbours = 0;
  size_t within = 0;
  for (size_t r = 0; r < 200; ++r) {
    const std::vector<float> x = RowOf(*rows, r);
    for (size_t i = 0; i < x.size(); ++i) {
      const double value = static_cast<double>(x[i]) / 0.02;
      sum += value;
      squares += value * value;
      cubes += value * value * value;
      if (i > 0) neighbours += value * static_cast<double>(x[i - 1]) / 0.02;
      within += std::abs(value) < 1.0;
      largest = std::max(largest, std::abs(value));
    }
  }
  const double n = 200 * 1000;
  EXPECT_NEAR(sum / n, 0.0, 0.01);
  EXPECT_NEAR(squares / n, 1.0, 0.01);
  EXPECT_NEAR(cubes / n, 0.0, 0.03);
  EXPECT_NEAR(neighbours / n, 0.0, 0.01);
  EXPECT_NEAR(static_cast<double>(within) / n, 0.683, 0.02);
  EXPECT_GT(largest, 3.0);
  EXPECT_LT(largest, 3.47);
}

TEST(RandomRows, SeedsAndTensorsDiffer) {
  std::set<std::vector<float>> seen;
  for (const uint64_t seed : {0u, 1u, 2u}) {
    for (const uint64_t tensor : {0u, 1u, 2u}) {
      for (const size_t row : {0u, 1u})
        seen.insert(RowOf(*MakeRandomRows(seed, tensor, 2, 16, 1.0f), row));
    }
  }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(SyntheticTokenizer, EveryTextComesBack) {
  std::mt19937 random(1);
  for (const uint32_t size : {259u, 260u, 281u, 282u, 300u, 1000u, 32000u, 65536u, 151936u}) {
    SCOPED_TRACE(size);
    const auto tokenizer = Tokenizer::Create(MakeSyntheticTokenizer(size, std::nullopt));
    ASSERT_OK(tokenizer);
    EXPECT_EQ(static_cast<uint32_t>((*tokenizer)->vocab_size()), size);
    for (int trial = 0; trial < 50; ++trial) {
      std::string text(random() % 200, '\0');
      for (char& c : text) {
        c = static_cast<char>(trial % 2 == 0 ? random() % 256 : "the and of\n"[random() % 11]);
      }
      EXPECT_EQ((*tokenizer)->DecodeBytes((*tokenizer)->Encode(text), false), text);
    }
    const std::string decomposed = "cafe\xCC\x81";  // no normalization
    EXPECT_EQ((*tokenizer)->DecodeBytes((*tokenizer)->Encode(decomposed), false), decomposed);
  }
}

TEST(SyntheticTokenizer, PocketShape) {
  TokenizerSpec spec = MakeSyntheticTokenizer(65536, 65510);
  EXPECT_EQ(spec.tokens.size(), 65536u);
  EXPECT_EQ(spec.pad_id, 65510);
  EXPECT_EQ(spec.eos_id, 65512);
  EXPECT_EQ(spec.bos_id, -1);
  EXPECT_EQ(spec.tokens[65510], "<|endoftext|>");
  EXPECT_EQ(spec.tokens[65511], "<|im_start|>");
  EXPECT_EQ(spec.tokens[65512], "<|im_end|>");
  EXPECT_EQ(spec.tokens[65535], "</think>");
  EXPECT_EQ(spec.merges.size(), 65510u - 256u);
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  ASSERT_OK(tokenizer);
  // The merges work on text: fewer tokens than bytes.
  const std::string text = "the rain in the town is on the other side of the street";
  EXPECT_LT((*tokenizer)->Encode(text).size(), text.size() * 2 / 3);
}

TEST(SyntheticTokenizer, PlaceOfTheControlTokens) {
  EXPECT_EQ(MakeSyntheticTokenizer(300, 297).tokens.size(), 300u);   // three markers fit
  EXPECT_EQ(MakeSyntheticTokenizer(300, 298).eos_id, 300 - 26 + 2);  // they do not: the last ids
  EXPECT_EQ(MakeSyntheticTokenizer(300, 100).eos_id, 300 - 26 + 2);  // among the bytes
  EXPECT_EQ(MakeSyntheticTokenizer(151936, 151643).eos_id, 151645);
  EXPECT_EQ(MakeSyntheticTokenizer(151936, 151643).tokens.size(), 151669u);
  EXPECT_EQ(MakeSyntheticTokenizer(259, std::nullopt).eos_id, 258);
}

NewModelOptions SmallOptions(const std::string& directory, const std::string& changes = "") {
  NewModelOptions options;
  options.config = JoinPath(directory, "config.json");
  testing::WriteFileOrDie(
      options.config,
      R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "head_dim": 32,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 400,
          "tie_word_embeddings": true)" +
          changes + "}");
  return options;
}

TEST(NewModel, TheSeedMakesTheWeights) {
  const std::string directory = ScratchDir();
  NewModelOptions options = SmallOptions(directory);
  const auto write = [&](uint64_t seed) {
    options.seed = seed;
    const std::string path = JoinPath(directory, "out.plm");
    EXPECT_OK(WriteNewModel(path, options, {}));
    auto bytes = ReadFile(path);
    EXPECT_OK(bytes);
    return bytes.ok() ? *bytes : "";
  };
  const std::string first = write(0);
  EXPECT_EQ(first, write(0));
  EXPECT_NE(first, write(1));
}

TEST(NewModel, WeightsHaveTheirDeviations) {
  const std::string directory = ScratchDir();
  NewModelOptions options = SmallOptions(directory);
  options.encoding.type = "f16";
  const std::string path = JoinPath(directory, "out.plm");
  const auto report = WriteNewModel(path, options, {});
  ASSERT_OK(report);
  EXPECT_EQ(report->at("architecture"), "qwen3");
  EXPECT_EQ(report->at("seed"), 0);
  auto source = OpenModelSource(path);
  ASSERT_OK(source);
  EXPECT_TRUE(source->chat_template);
  EXPECT_EQ(source->end_tokens, (std::vector<int32_t>{400 - 26 + 2}));
  auto tensors = TensorsOf(*source);
  ASSERT_OK(tensors);
  for (const ModelTensor& tensor : *tensors) {
    double squares = 0;
    for (size_t r = 0; r < tensor.rows->rows(); ++r) {
      for (const float value : RowOf(*tensor.rows, r))
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double count = static_cast<double>(tensor.rows->rows() * tensor.rows->cols());
    double expected = 1.0;
    if (tensor.role != TensorRole::kVector)
      expected = 1.0 / std::sqrt(static_cast<double>(tensor.rows->cols()));
    if (tensor.hf_name.ends_with("o_proj.weight") || tensor.hf_name.ends_with("down_proj.weight"))
      expected /= 2.0;  // sqrt(2 · layers)
    EXPECT_NEAR(std::sqrt(squares / count) / expected, 1.0, 0.03) << tensor.hf_name;
  }
}

TEST(NewModel, IdsOfTheConfigPlaceTheMarkers) {
  const std::string directory = ScratchDir();
  const std::string path = JoinPath(directory, "out.gguf");
  for (const char* changes : {R"(, "pad_token_id": 300)", R"(, "eos_token_id": 302)"}) {
    ASSERT_OK(WriteNewModel(path, SmallOptions(directory, changes), {}));
    auto source = OpenModelSource(path);
    ASSERT_OK(source);
    EXPECT_EQ(source->tokenizer.eos_id, 302);
    EXPECT_EQ(source->tokenizer.pad_id, 300);
    EXPECT_EQ(source->tokenizer.tokens.size(), 400u);  // padded for GGUF
    EXPECT_EQ(source->tokenizer.tokens[399], "[PAD399]");
    EXPECT_EQ(source->tokenizer.types[399], TokenType::kUnused);
  }
}

TEST(NewModel, ATokenizerFromAFile) {
  POCKETLM_REQUIRE_MODEL(model, "smollm2-135m");
  const std::string directory = ScratchDir();
  NewModelOptions options = SmallOptions(directory, R"(, "vocab_size": 49200)");
  options.tokenizer = model;
  const std::string path = JoinPath(directory, "out.plm");
  ASSERT_OK(WriteNewModel(path, options, {}));
  auto from = OpenTokenizerSpec(model), to = OpenTokenizerSpec(path);
  ASSERT_OK(from);
  ASSERT_OK(to);
  EXPECT_EQ(from->tokens, to->tokens);
  auto source = OpenModelSource(path);
  ASSERT_OK(source);
  EXPECT_TRUE(source->chat_template);
  options = SmallOptions(directory);
  options.tokenizer = model;
  const auto report = WriteNewModel(path, options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("expected at most 400 tokens"));
}

TEST(NewModel, WhatIsRefused) {
  const std::string directory = ScratchDir();
  const std::string path = JoinPath(directory, "out.plm");
  const auto fails = [&](const NewModelOptions& options, StatusCode code, const char* text) {
    const auto report = WriteNewModel(path, options, {});
    ASSERT_FALSE(report.ok()) << text;
    EXPECT_EQ(report.status().code(), code);
    EXPECT_THAT(report.status().message(), HasSubstr(text));
    EXPECT_FALSE(FileExists(path));
  };
  NewModelOptions options;
  options.config = "pocket-3b";
  fails(options, StatusCode::kInvalidArgument,
        "new: config: expected pocket-0.3b, qwen3-0.6b, or a config.json file, got 'pocket-3b'");
  fails(SmallOptions(directory, R"(, "vocab_size": 258)"), StatusCode::kInvalidArgument,
        "vocab_size: expected at least 259");
  fails(SmallOptions(directory, R"(, "num_key_value_heads": 3)"), StatusCode::kDataError,
        "num_attention_heads");
  fails(SmallOptions(directory, R"(, "model_type": "bert")"), StatusCode::kUnsupported, "bert");
  options = SmallOptions(directory);
  testing::WriteFileOrDie(options.config, "{\"model_type\": ");
  fails(options, StatusCode::kDataError, "config.json");
  options = SmallOptions(directory);
  options.tokenizer = JoinPath(directory, "none.json");
  fails(options, StatusCode::kNotFound, "none.json");
}

}  // namespace
}  // namespace pocketlm
