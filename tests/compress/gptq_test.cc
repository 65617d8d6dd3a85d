// Rounding for texts: the decomposition, the rounding itself against plain sums, and what is measured of real models
// against Transformers.
#include "compress/gptq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/file.h"
#include "compress/calibration.h"
#include "compress/convert.h"
#include "compress/new_model.h"
#include "gmock/gmock.h"
#include "model/model_source.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDir;
using testing::TinyModelPath;

constexpr PackedLayout kZero4{PackedType::kU4, OffsetType::kZero4, 32};

// Inputs with a few directions in common, as activations have: [rows, cols].
std::vector<float> CorrelatedInputs(size_t rows, size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const size_t directions = cols / 8 + 1;
  std::vector<float> basis(directions * cols), x(rows * cols);
  for (float& value : basis) value = normal(random);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t d = 0; d < directions; ++d) {
      const float amount = normal(random);
      for (size_t c = 0; c < cols; ++c) x[r * cols + c] += amount * basis[d * cols + c];
    }
    for (size_t c = 0; c < cols; ++c) x[r * cols + c] += 0.3f * normal(random);
  }
  return x;
}

InputMoments EmptyMoments(size_t cols) {
  InputMoments moments;
  moments.cols = cols;
  moments.sum.assign(cols * cols, 0.0f);
  return moments;
}

std::unique_ptr<Backend> MakeBackend(int threads, size_t rows) {
  BackendOptions options;
  options.num_threads = threads;
  auto backend = CreateCpuBackend(options);
  EXPECT_OK(backend);
  BackendLimits limits;
  limits.rows = kCalibrationWindow;
  limits.cols = rows;
  EXPECT_OK((*backend)->Reserve(limits));
  return std::move(*backend);
}

InputMoments MomentsOf(const std::vector<float>& x, size_t cols, int threads = 1) {
  InputMoments moments = EmptyMoments(cols);
  const size_t rows = x.size() / cols;
  moments.Add(x.data(), rows, MakeBackend(threads, rows).get());
  return moments;
}

double At(const InputMoments& moments, size_t i, size_t j) {
  return static_cast<double>(moments.sum[std::max(i, j) * moments.cols + std::min(i, j)]);
}

TEST(InputMoments, AreSumsOfProducts) {
  // One block, several blocks, a last one that is not full.
  for (const size_t cols : {1u, 37u, 256u, 600u}) {
    const size_t rows = 19;
    const std::vector<float> x = CorrelatedInputs(rows, cols, 5);
    InputMoments moments = EmptyMoments(cols);
    const auto backend = MakeBackend(2, rows);
    moments.Add(x.data(), 12, backend.get());
    moments.Add(x.data() + 12 * cols, rows - 12, backend.get());
    EXPECT_EQ(moments.tokens, rows);
    double worst = 0.0, largest = 0.0;
    for (size_t i = 0; i < cols; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = 0.0;
        for (size_t r = 0; r < rows; ++r)
          sum += static_cast<double>(x[r * cols + i]) * static_cast<double>(x[r * cols + j]);
        worst = std::max(worst, std::abs(sum - At(moments, i, j)));
        largest = std::max(largest, std::abs(sum));
      }
    }
    EXPECT_LT(worst, 1e-5 * largest) << cols;
  }
}

TEST(InputMoments, DependOnNoNumberOfThreads) {
  const std::vector<float> x = CorrelatedInputs(50, 300, 6);
  EXPECT_TRUE(MomentsOf(x, 300, 1).sum == MomentsOf(x, 300, 3).sum);
}

TEST(ErrorFeedback, IsTheDecompositionOfTheMoments) {
  const size_t n = 96;
  const InputMoments moments = MomentsOf(CorrelatedInputs(200, n, 7), n);
  ThreadPool pool(2);
  const auto feedback = ErrorFeedback::Create(moments, &pool);
  ASSERT_OK(feedback);
  ASSERT_EQ(feedback->cols(), n);
  const auto order = feedback->order();
  std::vector<uint32_t> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end());
  double trace = 0.0;
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(sorted[i], i);
    if (i > 0) {
      EXPECT_GE(At(moments, order[i - 1], order[i - 1]), At(moments, order[i], order[i]));
    }
    trace += At(moments, i, i);
  }
  const double mean = trace / static_cast<double>(n);
  // H = V D Vᵀ with V = I + U, in that order.
  const auto v = [&](size_t i, size_t k) {
    return i == k ? 1.0 : i < k ? static_cast<double>(feedback->after(i)[k - i - 1]) : 0.0;
  };
  for (size_t i = 0; i < n; ++i) {
    EXPECT_GE(feedback->importance()[i], 0.0099 * mean);
    for (size_t j = 0; j <= i; ++j) {
      double sum = i == j ? -0.01 * mean : 0.0;
      for (size_t k = i; k < n; ++k)
        sum += v(i, k) * static_cast<double>(feedback->importance()[order[k]]) * v(j, k);
      EXPECT_NEAR(sum, At(moments, order[i], order[j]), 1e-4 * mean);
    }
  }
}

TEST(ErrorFeedback, StandsInputsThatSayNothing) {
  ThreadPool pool(1);
  // All zero, and one that is the same in all columns: no rank to speak of.
  for (const float value : {0.0f, 1.0f}) {
    const auto feedback =
        ErrorFeedback::Create(MomentsOf(std::vector<float>(64, value), 64), &pool);
    ASSERT_OK(feedback);
    for (size_t i = 0; i < 64; ++i) {
      for (const float factor : feedback->after(i)) EXPECT_TRUE(std::isfinite(factor));
    }
  }
}

TEST(ErrorFeedback, RefusesWhatIsNotFinite) {
  ThreadPool pool(1);
  InputMoments moments = EmptyMoments(32);
  moments.sum[5 * 32 + 5] = std::numeric_limits<float>::infinity();
  const auto feedback = ErrorFeedback::Create(moments, &pool);
  EXPECT_EQ(feedback.status().code(), StatusCode::kDataError);
  EXPECT_THAT(feedback.status().message(), HasSubstr("finite"));
}

struct Rounded {
  std::vector<RowCodes> rows;
  std::vector<float> values;
};

Rounded RoundFor(const std::vector<float>& w, const InputMoments& moments,
                 const PackedLayout& layout) {
  ThreadPool pool(1);
  const auto feedback = ErrorFeedback::Create(moments, &pool);
  EXPECT_OK(feedback);
  Rounded out;
  out.rows.resize(w.size() / moments.cols);
  std::vector<float> carried;
  size_t fault_row = 0;
  EXPECT_EQ(QuantizeWithFeedback(w, *feedback, layout, out.rows, &carried, &fault_row),
            QuantizeFault::kNone);
  out.values.resize(w.size());
  for (size_t r = 0; r < out.rows.size(); ++r)
    DecodeCodes(out.rows[r], out.values.data() + r * moments.cols);
  return out;
}

std::vector<float> RandomWeights(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> w(count);
  for (float& value : w) value = normal(random);
  return w;
}

TEST(QuantizeWithFeedback, IsNearestRoundingWhereInputsAreIndependent) {
  const size_t cols = 128;
  InputMoments moments = EmptyMoments(cols);
  for (size_t i = 0; i < cols; ++i) moments.sum[i * cols + i] = 1.0f + static_cast<float>(i);
  const std::vector<float> w = RandomWeights(5 * cols, 8);
  ThreadPool pool(1);
  const auto feedback = ErrorFeedback::Create(moments, &pool);
  ASSERT_OK(feedback);
  for (size_t i = 0; i < cols; ++i)
    EXPECT_FLOAT_EQ(feedback->importance()[i], 1.0f + static_cast<float>(i) + 0.645f);
  for (const PackedLayout& layout : {kZero4, PackedLayout{PackedType::kU4, OffsetType::kNone, 64},
                                     PackedLayout{PackedType::kU4, OffsetType::kMinF16, 128},
                                     PackedLayout{PackedType::kI8, OffsetType::kNone, 64}}) {
    const Rounded rounded = RoundFor(w, moments, layout);
    for (size_t r = 0; r < 5; ++r) {
      RowCodes nearest;
      nearest.Resize(layout, cols);
      for (size_t g = 0; g < nearest.groups(); ++g) {
        const size_t first = g * layout.group_size;
        ASSERT_EQ(QuantizeGroup({w.data() + r * cols + first, layout.group_size}, g, &nearest,
                                feedback->importance().subspan(first, layout.group_size)),
                  QuantizeFault::kNone);
      }
      EXPECT_TRUE(rounded.rows[r].codes == nearest.codes) << LayoutName(layout) << " row " << r;
      EXPECT_TRUE(rounded.rows[r].scales == nearest.scales);
    }
  }
}

TEST(QuantizeGroup, WeighsErrorsByImportance) {
  const size_t size = 64;
  std::mt19937 random(14);
  std::vector<float> importance(size);
  for (float& value : importance) value = std::exp2(static_cast<float>(random() % 12));
  for (const OffsetType offset : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16}) {
    double with = 0.0, without = 0.0;
    for (unsigned seed = 0; seed < 50; ++seed) {
      const std::vector<float> x = RandomWeights(size, seed);
      for (const bool weighted : {false, true}) {
        RowCodes row;
        row.Resize({PackedType::kU4, offset, 64}, size);
        const std::span<const float> factors = importance;
        ASSERT_EQ(QuantizeGroup(x, 0, &row, weighted ? factors : factors.first(0)),
                  QuantizeFault::kNone);
        std::vector<float> stored(size);
        DecodeCodes(row, stored.data());
        for (size_t i = 0; i < size; ++i) {
          const double error = static_cast<double>(x[i] - stored[i]);
          (weighted ? with : without) += static_cast<double>(importance[i]) * error * error;
        }
      }
    }
    EXPECT_LT(with, 0.95 * without) << OffsetTypeName(offset);
  }
}

// What counts: the error of outputs over the inputs.
double OutputError(const std::vector<float>& w, const std::vector<float>& rounded,
                   const std::vector<float>& x, size_t cols) {
  double sum = 0.0;
  for (size_t r = 0; r < w.size() / cols; ++r) {
    for (size_t t = 0; t < x.size() / cols; ++t) {
      double dot = 0.0;
      for (size_t c = 0; c < cols; ++c)
        dot += static_cast<double>(w[r * cols + c] - rounded[r * cols + c]) *
               static_cast<double>(x[t * cols + c]);
      sum += dot * dot;
    }
  }
  return sum;
}

TEST(QuantizeWithFeedback, ErrsLessOnInputsThanNearestRounding) {
  const size_t cols = 256, rows = 24;
  const std::vector<float> all = CorrelatedInputs(1200, cols, 9);
  const std::vector<float> shown(all.begin(), all.begin() + 1000 * cols),
      fresh(all.begin() + 1000 * cols, all.end());
  InputMoments moments = EmptyMoments(cols);
  const auto backend = MakeBackend(1, 200);
  for (size_t t = 0; t < 1000; t += 200) moments.Add(shown.data() + t * cols, 200, backend.get());
  const std::vector<float> w = RandomWeights(rows * cols, 10);
  for (const PackedLayout& layout :
       {kZero4, PackedLayout{PackedType::kU4, OffsetType::kMinF16, 64}}) {
    const Rounded rounded = RoundFor(w, moments, layout);
    std::vector<float> nearest(w.size());
    for (size_t r = 0; r < rows; ++r) {
      RowCodes codes;
      ASSERT_EQ(QuantizeWeights({w.data() + r * cols, cols}, layout, &codes), QuantizeFault::kNone);
      DecodeCodes(codes, nearest.data() + r * cols);
    }
    // The inputs have a ninth of the dimensions: most of the error can be put where they do not go.
    EXPECT_LT(OutputError(w, rounded.values, shown, cols),
              0.3 * OutputError(w, nearest, shown, cols));
    EXPECT_LT(OutputError(w, rounded.values, fresh, cols),
              0.3 * OutputError(w, nearest, fresh, cols));
  }
}

TEST(QuantizeWithFeedback, NamesTheRowThatCannotBe) {
  const size_t cols = 64;
  ThreadPool pool(1);
  const auto feedback =
      ErrorFeedback::Create(MomentsOf(CorrelatedInputs(9, cols, 11), cols), &pool);
  ASSERT_OK(feedback);
  std::vector<float> w = RandomWeights(3 * cols, 12);
  w[2 * cols + 40] = std::numeric_limits<float>::quiet_NaN();
  std::vector<RowCodes> rows(3);
  std::vector<float> carried;
  size_t fault_row = 0;
  EXPECT_EQ(QuantizeWithFeedback(w, *feedback, kZero4, rows, &carried, &fault_row),
            QuantizeFault::kNotFinite);
  EXPECT_EQ(fault_row, 2u);
}

std::string SomeText(size_t words) {
  std::mt19937 random(13);
  const char* const some[] = {"the",   " model", " reads", " what", "\n",
                              " 天气", "很好。", " 12",    " and",  " writes"};
  std::string out;
  for (size_t i = 0; i < words; ++i) out += some[random() % std::size(some)];
  return out;
}

TEST(CalibrationWindows, AreWholeAndSpreadOverTheTexts) {
  const auto source = OpenModelSource(TinyModelPath("tiny_gemma3", "hf"));
  ASSERT_OK(source);
  const auto tokenizer = Tokenizer::Create(source->tokenizer);
  ASSERT_OK(tokenizer);
  const std::string two = SomeText(60000), one = SomeText(9000);
  const auto windows = CalibrationWindows(**tokenizer, {{"one", one, "one"}, {"two", two, "two"}});
  ASSERT_OK(windows);
  EXPECT_GT(windows->size(), kCalibrationTokens / kCalibrationWindow / 2);
  EXPECT_LE(windows->size(), kCalibrationTokens / kCalibrationWindow);
  for (const auto& window : *windows) {
    EXPECT_EQ(window.size(), kCalibrationWindow);
    EXPECT_EQ(window[0], (*tokenizer)->bos_id());
  }
  const std::vector<int32_t> ids = (*tokenizer)->Encode(two);
  const std::vector<int32_t>& last = windows->back();
  const auto at = std::search(ids.begin(), ids.end(), last.begin() + 1, last.end());
  ASSERT_NE(at, ids.end());
  EXPECT_GT(at - ids.begin(), static_cast<ptrdiff_t>(ids.size() * 8 / 10));
}

TEST(CalibrationWindows, AskForMoreText) {
  const auto source = OpenModelSource(TinyModelPath("tiny_qwen3", "hf"));
  ASSERT_OK(source);
  const auto tokenizer = Tokenizer::Create(source->tokenizer);
  ASSERT_OK(tokenizer);
  const auto little = CalibrationWindows(**tokenizer, {{"a", "too short", "a"}, {"b", "", "b"}});
  EXPECT_EQ(little.status().code(), StatusCode::kDataError);
  EXPECT_THAT(little.status().message(), HasSubstr("at least 256 tokens"));
  const auto broken = CalibrationWindows(**tokenizer, {{"a.jsonl", "{\"text\": ", "a"}});
  EXPECT_EQ(broken.status().code(), StatusCode::kDataError);
  EXPECT_THAT(broken.status().message(), HasSubstr("a.jsonl"));
}

class CalibrateTinyModels : public ::testing::TestWithParam<std::string> {};

// What enters q_proj of every layer is the normalized residual stream, which Transformers has computed.
TEST_P(CalibrateTinyModels, SeesWhatTransformersComputes) {
  const auto source = OpenModelSource(TinyModelPath(GetParam(), "hf"));
  ASSERT_OK(source);
  const auto tensors = TensorsOf(*source);
  ASSERT_OK(tensors);
  const testing::TinyGolden golden(GetParam());
  const size_t hidden = source->config.hidden_size;
  // A prompt of which every layer's states are known.
  const auto prompts = golden.prompts();
  size_t prompt = prompts.size();
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].size() <= kCalibrationWindow && !golden.Array("hidden.1", i).empty()) prompt = i;
  }
  ASSERT_LT(prompt, prompts.size());
  ThreadPool pool(2);
  const auto calibration = Calibration::Create(source->config, *tensors, {prompts[prompt]}, &pool);
  ASSERT_OK(calibration);
  std::vector<float> norm;
  size_t checked = 0;
  for (size_t i = 0; i < tensors->size(); ++i) {
    const ModelTensor& tensor = (*tensors)[i];
    if (tensor.hf_name.ends_with(".input_layernorm.weight")) {
      norm.resize(hidden);
      tensor.rows->Values(0, norm.data());
    }
    if (!tensor.hf_name.ends_with(".q_proj.weight")) continue;
    std::vector<float> states = golden.Array("hidden." + tensor.hf_name.substr(7, 1), prompt);
    if (states.empty()) continue;
    const size_t rows = states.size() / hidden;
    for (size_t r = 0; r < rows; ++r) {
      float* x = states.data() + r * hidden;
      const double squares = std::inner_product(x, x + hidden, x, 0.0);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(hidden) +
                                            static_cast<double>(source->config.rms_norm_eps));
      for (size_t c = 0; c < hidden; ++c) x[c] = static_cast<float>(x[c] * factor) * norm[c];
    }
    const auto moments = (*calibration)->InputsOf(i);
    ASSERT_OK(moments);
    EXPECT_EQ((*moments)->tokens, rows);
    const InputMoments expected = MomentsOf(states, hidden);
    double difference = 0.0, all = 0.0;
    for (size_t a = 0; a < hidden; ++a) {
      for (size_t b = 0; b <= a; ++b) {
        difference += std::pow(At(**moments, a, b) - At(expected, a, b), 2);
        all += std::pow(At(expected, a, b), 2);
      }
    }
    EXPECT_LT(std::sqrt(difference / all), 0.03) << tensor.hf_name;  // weights of 8 bits
    ++checked;
  }
  EXPECT_GE(checked, 2u);
}
// What enters the head gives the logits that Transformers has computed: wᵀ H w is the sum of their squares.
TEST_P(CalibrateTinyModels, SeesWhatEntersTheHead) {
  const auto source = OpenModelSource(TinyModelPath(GetParam(), "hf"));
  ASSERT_OK(source);
  const auto tensors = TensorsOf(*source);
  ASSERT_OK(tensors);
  const testing::TinyGolden golden(GetParam());
  const size_t prompt = 2, vocab = source->config.vocab_size;
  const std::vector<float> logits = golden.Array("all_logits", prompt);
  ThreadPool pool(2);
  const auto calibration =
      Calibration::Create(source->config, *tensors, {golden.prompts()[prompt]}, &pool);
  ASSERT_OK(calibration);
  const bool tied = source->config.tie_word_embeddings;
  for (size_t i = 0; i < tensors->size(); ++i) {
    const ModelTensor& tensor = (*tensors)[i];
    if (tensor.role != (tied ? TensorRole::kEmbedding : TensorRole::kHead)) continue;
    const auto moments = (*calibration)->InputsOf(i);
    ASSERT_OK(moments);
    EXPECT_EQ((*moments)->tokens, logits.size() / vocab);
    double difference = 0.0, all = 0.0;
    std::vector<float> w(tensor.rows->cols());
    for (size_t v = 0; v < vocab; ++v) {
      tensor.rows->Values(v, w.data());
      double sum = 0.0, expected = 0.0;
      for (size_t a = 0; a < w.size(); ++a) {
        for (size_t b = 0; b < w.size(); ++b)
          sum += static_cast<double>(w[a]) * static_cast<double>(w[b]) * At(**moments, a, b);
      }
      for (size_t at = v; at < logits.size(); at += vocab)
        expected += std::pow(static_cast<double>(logits[at]), 2);
      difference += std::pow(sum - expected, 2);
      all += std::pow(expected, 2);
    }
    EXPECT_LT(std::sqrt(difference / all), 0.05);  // weights of 8 bits
    // The layers are measured as if that had not been.
    size_t first = 0;
    while ((*tensors)[first].role != TensorRole::kBody) ++first;
    if (!tied) continue;
    const auto fresh =
        Calibration::Create(source->config, *tensors, {golden.prompts()[prompt]}, &pool);
    ASSERT_OK(fresh);
    const auto with = (*calibration)->InputsOf(first), without = (*fresh)->InputsOf(first);
    ASSERT_OK(with);
    ASSERT_OK(without);
    EXPECT_TRUE((*with)->sum == (*without)->sum);
  }
}
INSTANTIATE_TEST_SUITE_P(All, CalibrateTinyModels, ::testing::ValuesIn(testing::TinyModelNames()));

// The same file whatever the threads, in both formats; other codes than nearest rounding's.
TEST(ConvertForTexts, IsOtherThanNearestAndDependsOnNoNumberOfThreads) {
  const std::string directory = ScratchDir();
  NewModelOptions shape;
  shape.config = JoinPath(directory, "config.json");
  testing::WriteFileOrDie(
      shape.config,
      R"({"model_type": "qwen3", "head_dim": 32, "hidden_size": 128, "intermediate_size": 256,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 512, "vocab_size": 301, "tie_word_embeddings": true})");
  shape.encoding.type = "f16";
  const std::string input = JoinPath(directory, "source.plm");
  ASSERT_OK(WriteNewModel(input, shape, {}));
  const std::string text = SomeText(3000);
  for (const std::string name : {"a.plm", "a.gguf"}) {
    const std::string output = JoinPath(directory, name);
    ConvertOptions options;
    options.num_threads = 1;
    const auto nearest_report = ConvertModel(input, output, options, {});
    ASSERT_OK(nearest_report);
    EXPECT_EQ((*nearest_report)["method"], "rtn");
    const auto nearest = ReadFile(output);
    options.calibration = {{"text", text, "text"}};
    const auto report = ConvertModel(input, output, options, {});
    ASSERT_OK(report);
    EXPECT_EQ((*report)["method"], "gptq");
    EXPECT_EQ((*report)["verified"], true);
    const auto one = ReadFile(output);
    options.num_threads = 3;
    ASSERT_OK(ConvertModel(input, output, options, {}));
    const auto three = ReadFile(output);
    ASSERT_OK(one);
    ASSERT_OK(three);
    EXPECT_TRUE(*one == *three) << name;
    EXPECT_FALSE(*one == *nearest) << name;
  }
}

}  // namespace
}  // namespace pocketlm
