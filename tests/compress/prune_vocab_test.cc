// Models with a smaller vocabulary: rows, ids, reports, errors, what is left behind.
#include "compress/prune_vocab.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/half.h"
#include "compress/model_tensors.h"
#include "compress/new_model.h"
#include "compress/token_use.h"
#include "gmock/gmock.h"
#include "model/model_source.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchDir;
using testing::TinyModelPath;

constexpr char kCorpus[] = "The quick brown fox jumps over the lazy dog.\nthe fox, the dog.\n";

PruneVocabOptions Options(size_t size, std::string_view corpus = kCorpus) {
  PruneVocabOptions options;
  options.size = size;
  options.corpus = {{"corpus.txt", corpus, "corpus"}};
  options.encoding.type = "f16";
  options.encoding.num_threads = 2;
  return options;
}

std::vector<float> RowsOf(const ModelSource& source, TensorRole role) {
  std::vector<float> out;
  const auto tensors = TensorsOf(source);
  EXPECT_OK(tensors);
  for (const ModelTensor& tensor : *tensors) {
    if (tensor.role != role) continue;
    const size_t cols = tensor.rows->cols(), begin = out.size();
    out.resize(begin + tensor.rows->rows() * cols);
    for (size_t r = 0; r < tensor.rows->rows(); ++r)
      tensor.rows->Values(r, out.data() + begin + r * cols);
  }
  return out;
}

class PruneTinyModels : public ::testing::TestWithParam<std::string> {};

// Every kept token has its own row in the table and the head; all else is as it was.
TEST_P(PruneTinyModels, CarryTheirRows) {
  const std::string input = TinyModelPath(GetParam(), "model.gguf");
  const auto before = OpenModelSource(input);
  ASSERT_OK(before);
  const auto old_tokenizer = Tokenizer::Create(before->tokenizer);
  ASSERT_OK(old_tokenizer);
  const std::string output = JoinPath(ScratchDir(), "small.plm");
  const auto size = static_cast<size_t>((*old_tokenizer)->vocab_size()) - 7;
  const auto report = PruneVocab(input, output, Options(size), {});
  ASSERT_OK(report);
  const auto after = OpenModelSource(output);
  ASSERT_OK(after);
  EXPECT_EQ((*report)["tokens"]["before"], before->tokenizer.tokens.size());
  EXPECT_EQ((*report)["tokens"]["after"], after->tokenizer.tokens.size());
  EXPECT_LE(after->tokenizer.tokens.size(), size);  // rows that no text needs go first
  EXPECT_EQ(after->config.vocab_size % 64, 0u);
  EXPECT_EQ(after->chat_template, before->chat_template);
  const auto new_tokenizer = Tokenizer::Create(after->tokenizer);
  ASSERT_OK(new_tokenizer);
  ASSERT_EQ(after->end_tokens.size(), before->end_tokens.size());
  for (size_t i = 0; i < after->end_tokens.size(); ++i) {
    EXPECT_EQ((*new_tokenizer)->Piece(after->end_tokens[i]),
              (*old_tokenizer)->Piece(before->end_tokens[i]));
  }
  const size_t cols = before->config.hidden_size;
  for (const TensorRole role : {TensorRole::kEmbedding, TensorRole::kHead}) {
    const std::vector<float> old_rows = RowsOf(*before, role), new_rows = RowsOf(*after, role);
    ASSERT_EQ(old_rows.empty(), new_rows.empty());
    if (old_rows.empty()) continue;
    ASSERT_EQ(new_rows.size(), after->config.vocab_size * cols);
    for (int32_t id = 0; id < (*new_tokenizer)->vocab_size(); ++id) {
      const auto old_id = (*old_tokenizer)->FindToken((*new_tokenizer)->Piece(id));
      ASSERT_TRUE(old_id.has_value());
      for (size_t c = 0; c < cols; ++c) {
        const auto rounded = static_cast<float>(
            HalfToFloat(FloatToHalf(old_rows[static_cast<size_t>(*old_id) * cols + c])));
        ASSERT_EQ(new_rows[static_cast<size_t>(id) * cols + c], rounded) << id;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PruneTinyModels,
                         ::testing::Values("tiny_qwen3", "tiny_llama", "tiny_llama_untied",
                                           "tiny_llama3", "tiny_gemma3"),
                         [](const auto& model) { return model.param; });

class PruneVocabTest : public ::testing::Test {
 protected:
  void SetUp() override { output_ = JoinPath(folder_, "out.plm"); }
  void ExpectNothingLeft() const { EXPECT_TRUE(fs::is_empty(folder_)); }

  std::string input_ = TinyModelPath("tiny_qwen3", "model.gguf");
  std::string folder_ = ScratchDir();
  std::string output_;
};

TEST_F(PruneVocabTest, JudgesSetsAndLanguages) {
  PruneVocabOptions options = Options(300);
  options.evaluation = {
      {"a.jsonl", "{\"id\": \"not counted\", \"text\": \"the fox\", \"more\": [\"dog\"]}\n\n",
       "en"},
      {"b.txt", "\xE4\xBD\xA0\xE5\xA5\xBD\n12 34\n", "mixed"}};
  const auto report = PruneVocab(input_, output_, options, {});
  ASSERT_OK(report);
  EXPECT_EQ((*report)["judged_on"], "evaluation");
  ASSERT_EQ((*report)["sets"].size(), 2u);
  EXPECT_EQ((*report)["sets"][0]["set"], "en");
  EXPECT_EQ((*report)["sets"][0]["bytes"], std::string("the fox\ndog").size());
  EXPECT_EQ((*report)["sets"][1]["passages"], 2);
  EXPECT_EQ((*report)["sets"][1]["characters"], 9);
  ASSERT_EQ((*report)["languages"].size(), 3u);
  EXPECT_EQ((*report)["languages"][0]["language"], "zh");
  for (const ordered_json& set : (*report)["sets"]) {
    const double before = set["tokens_before"], after = set["tokens_after"];
    EXPECT_DOUBLE_EQ(set["increase"], after / before - 1.0);
  }
}

TEST_F(PruneVocabTest, ATokenizerAloneIsWrittenToo) {
  const std::string json = JoinPath(folder_, "tokenizer.json");
  const auto report =
      PruneVocab(TinyModelPath("tiny_qwen3", "hf/tokenizer.json"), json, Options(300), {});
  ASSERT_OK(report);
  EXPECT_FALSE(report->contains("parameters"));
  const auto spec = OpenTokenizerSpec(json);
  ASSERT_OK(spec);
  EXPECT_EQ(spec->tokens.size(), (*report)["tokens"]["after"]);
}

TEST_F(PruneVocabTest, BadTextsAreErrorsThatLeaveNothing) {
  PruneVocabOptions options = Options(300);
  options.corpus = {{"c.jsonl", "{\"a\": \"b\"}\n{\"a\": \n", "c"}};
  auto report = PruneVocab(input_, output_, options, {});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kDataError);
  EXPECT_THAT(report.status().message(), HasSubstr("c.jsonl: line 2"));
  report = PruneVocab(input_, output_, Options(300, ""), {});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("corpus: expected text, got none"));
  ExpectNothingLeft();
}

TEST_F(PruneVocabTest, SizesThatCannotBeAreErrors) {
  for (const size_t size : {size_t{1}, size_t{1} << 20}) {
    const auto report = PruneVocab(input_, output_, Options(size), {});
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(report.status().message(), HasSubstr("size"));
  }
  ExpectNothingLeft();
}

TEST_F(PruneVocabTest, ACancelLeavesNothing) {
  for (const double when : {0.0, 0.45, 0.7}) {
    const auto report = PruneVocab(input_, output_, Options(300),
                                   [when](double fraction) { return fraction < when; });
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
    ExpectNothingLeft();
  }
}

TEST_F(PruneVocabTest, TheInputIsNotOverwritten) {
  const std::string copy = JoinPath(folder_, "m.gguf");
  fs::copy_file(input_, copy);
  const auto report = PruneVocab(copy, copy, Options(300), {});
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.status().message(), HasSubstr("expected another file"));
}

TEST(TokenWeights, UnseenTokensAreWorthWhatTheirLikesAre) {
  const auto spec = OpenTokenizerSpec(TinyModelPath("tiny_qwen3", "hf/tokenizer.json"));
  ASSERT_OK(spec);
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_OK(tokenizer);
  std::vector<uint64_t> counts(static_cast<size_t>((*tokenizer)->vocab_size()), 0);
  const auto a = static_cast<size_t>((*tokenizer)->Encode("a").front());
  const auto b = static_cast<size_t>((*tokenizer)->Encode("b").front());
  EXPECT_EQ(TokenWeights(**tokenizer, counts)[b], 0.0);  // nothing is known to occur once
  counts[a] = 1;
  const std::vector<double> weights = TokenWeights(**tokenizer, counts);
  EXPECT_GT(weights[b], 0.0);
  EXPECT_GT(weights[a], weights[b]);
}

TEST(TokenUse, NamesScriptsThatACorpusLacks) {
  POCKETLM_REQUIRE_MODEL(gemma, "gemma3-270m");
  const auto spec = OpenTokenizerSpec(gemma);
  ASSERT_OK(spec);
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_OK(tokenizer);
  ThreadPool pool(2);
  const std::string text = "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82, hello";
  const auto counts =
      CountTokens(**tokenizer, {{"t.txt", text, "t"}}, &pool, [](size_t) { return true; });
  ASSERT_OK(counts);
  EXPECT_THAT(ScriptsWithoutUse(**tokenizer, *counts), Contains("Han"));
  EXPECT_THAT(ScriptsWithoutUse(**tokenizer, *counts), Contains("Arabic"));
}

TEST(LanguageOf, LooksForHanAndLatin) {
  EXPECT_EQ(LanguageOf("a \xE4\xBD\xA0"), PassageLanguage::kChinese);
  EXPECT_EQ(LanguageOf("12 caf\xC3\xA9"), PassageLanguage::kEnglish);
  EXPECT_EQ(LanguageOf("12 \xD0\x9F"), PassageLanguage::kOther);
  EXPECT_EQ(LanguageOf("\xFF"), PassageLanguage::kOther);
}

}  // namespace
}  // namespace pocketlm
