// Types within a size: the choice itself against all that are possible, and what is measured of models.
#include "compress/size_budget.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "compress/calibration.h"
#include "compress/convert.h"
#include "compress/new_model.h"
#include "compress/sensitivity.h"
#include "gmock/gmock.h"
#include "model/model_source.h"
#include "support/test_support.h"
#include "support/tiny_models.h"

namespace pocketlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchDir;
using testing::TinyModelPath;
using Lists = std::vector<std::vector<SizeChoice>>;

TEST(ChooseWithinBudget, TakesTheStepsThatSaveMost) {
  const Lists lists = {{{10, 8.0}, {20, 2.0}, {40, 0.0}}, {{10, 3.0}, {20, 1.0}}};
  const auto at = [&](uint64_t budget) {
    auto chosen = ChooseWithinBudget(lists, budget);
    EXPECT_OK(chosen);
    return chosen.ok() ? *chosen : std::vector<size_t>{};
  };
  EXPECT_THAT(at(20), ElementsAre(0, 0));
  EXPECT_THAT(at(29), ElementsAre(0, 0));
  EXPECT_THAT(at(30), ElementsAre(1, 0));
  EXPECT_THAT(at(40), ElementsAre(1, 1));
  EXPECT_THAT(at(60), ElementsAre(2, 1));
  EXPECT_THAT(at(std::numeric_limits<uint64_t>::max()), ElementsAre(2, 1));
}

TEST(ChooseWithinBudget, PassesOverWhatIsLargerAndNoBetter) {
  const Lists lists = {{{30, 1.0}, {10, 1.0}, {10, 5.0}, {20, 4.0}, {25, 0.5}}};
  const auto chosen = ChooseWithinBudget(lists, 24);
  ASSERT_OK(chosen);
  EXPECT_THAT(*chosen, ElementsAre(1));
}

TEST(ChooseWithinBudget, SaysWhatTheLeastIs) {
  const auto chosen = ChooseWithinBudget(Lists{{{30, 1.0}, {10, 2.0}}, {{7, 0.0}}}, 16);
  EXPECT_EQ(chosen.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(chosen.status().message(), HasSubstr("at least 17 bytes"));
}

// Against all combinations: never over the budget, and no worse than the best one of a budget that lacks the largest step.
TEST(ChooseWithinBudget, IsNearTheBestOfAll) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Lists lists(2 + random() % 4);
    uint64_t largest = 0;
    for (auto& list : lists) {
      for (size_t i = 0; i < 1 + random() % 4; ++i)
        list.push_back({1 + random() % 50, static_cast<double>(random() % 100)});
      for (const SizeChoice& choice : list) largest = std::max(largest, choice.bytes);
    }
    const uint64_t budget = 40 + random() % 150;
    double best = std::numeric_limits<double>::infinity(), best_of_less = best;
    uint64_t least = std::numeric_limits<uint64_t>::max();
    std::vector<size_t> at(lists.size(), 0);
    for (bool more = true; more;) {
      uint64_t bytes = 0;
      double loss = 0.0;
      for (size_t i = 0; i < at.size(); ++i) {
        bytes += lists[i][at[i]].bytes;
        loss += lists[i][at[i]].loss;
      }
      least = std::min(least, bytes);
      if (bytes <= budget) best = std::min(best, loss);
      if (bytes + largest <= budget) best_of_less = std::min(best_of_less, loss);
      more = false;
      for (size_t i = 0; i < at.size() && !more; ++i) {
        more = ++at[i] < lists[i].size();
        if (!more) at[i] = 0;
      }
    }
    const auto chosen = ChooseWithinBudget(lists, budget);
    ASSERT_EQ(chosen.ok(), least <= budget);
    if (!chosen.ok()) continue;
    uint64_t bytes = 0;
    double loss = 0.0;
    for (size_t i = 0; i < lists.size(); ++i) {
      bytes += lists[i][(*chosen)[i]].bytes;
      loss += lists[i][(*chosen)[i]].loss;
    }
    EXPECT_LE(bytes, budget);
    EXPECT_GE(loss, best);
    EXPECT_LE(loss, best_of_less);
  }
}

TEST(TensorUnits, ArePairsAndSingles) {
  const auto source = OpenModelSource(TinyModelPath("tiny_llama_untied", "hf"));
  ASSERT_OK(source);
  const auto tensors = TensorsOf(*source);
  ASSERT_OK(tensors);
  std::vector<std::string> first;
  size_t matrices = 0;
  const TensorUnits units = UnitsOf(*tensors);
  for (const auto& unit : units) {
    matrices += unit.size();
    for (const size_t i : unit) {
      EXPECT_NE((*tensors)[i].role, TensorRole::kVector);
      if ((*tensors)[i].hf_name.starts_with("layers.0.") || (*tensors)[i].role != TensorRole::kBody)
        first.push_back((i == unit[0] ? "" : "+") + (*tensors)[i].hf_name);
    }
  }
  EXPECT_THAT(first,
              ElementsAre("embed_tokens.weight", "layers.0.self_attn.q_proj.weight",
                          "+layers.0.self_attn.k_proj.weight", "layers.0.self_attn.v_proj.weight",
                          "layers.0.self_attn.o_proj.weight", "layers.0.mlp.gate_proj.weight",
                          "+layers.0.mlp.up_proj.weight", "layers.0.mlp.down_proj.weight",
                          "lm_head.weight"));
  EXPECT_EQ(matrices, 2 + 7 * source->config.num_hidden_layers);
}

std::string SmallModel(const std::string& directory, bool tied) {
  NewModelOptions shape;
  shape.config = JoinPath(directory, "config.json");
  testing::WriteFileOrDie(
      shape.config,
      std::string(
          R"({"model_type": "qwen3", "head_dim": 32, "hidden_size": 128, "intermediate_size": 256,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 512, "vocab_size": 301, "tie_word_embeddings": )") +
          (tied ? "true}" : "false}"));
  shape.encoding.type = "f16";
  const std::string path = JoinPath(directory, "source.plm");
  EXPECT_OK(WriteNewModel(path, shape, {}));
  return path;
}

std::string SomeText() {
  std::mt19937 random(13);
  const char* const some[] = {"the", " model", " reads", " what", "\n", " 12", " and", " writes"};
  std::string out;
  for (size_t i = 0; i < 4000; ++i) out += some[random() % std::size(some)];
  return out;
}

TEST(Sensitivity, IsWhatACoarserTypeCosts) {
  for (const bool tied : {true, false}) {
    const auto source = OpenModelSource(SmallModel(ScratchDir(), tied));
    ASSERT_OK(source);
    const auto tensors = TensorsOf(*source);
    ASSERT_OK(tensors);
    std::mt19937 random(4);
    std::vector<std::vector<int32_t>> windows(9, std::vector<int32_t>(200));
    for (auto& window : windows) {
      for (int32_t& id : window) id = static_cast<int32_t>(random() % 256);
    }
    const TensorUnits units = UnitsOf(*tensors);
    ThreadPool pool(2);
    const auto measure = [&](const PackedLayout& layout) {
      const std::vector<TensorTarget> targets(tensors->size(), {layout});
      auto measured = MeasureSensitivity(source->config, *tensors, units, targets, windows, &pool,
                                         [](double) { return true; });
      EXPECT_OK(measured);
      return measured.ok() ? *measured : std::vector<double>(units.size(), 0.0);
    };
    const auto coarse = measure({PackedType::kU4, OffsetType::kZero4, 128});
    const auto fine = measure({PackedType::kU4, OffsetType::kMinF16, 32});
    const auto same = measure({PackedType::kI8, OffsetType::kNone, 32});
    for (size_t u = 0; u < units.size(); ++u) {
      const std::string& name = (*tensors)[units[u][0]].hf_name;
      EXPECT_GT(coarse[u], 1e-6) << name;
      EXPECT_LT(fine[u], coarse[u]) << name;
      EXPECT_EQ(same[u], 0.0) << name;  // what it is measured against
    }
    const std::vector<TensorTarget> targets(
        tensors->size(), {PackedLayout{PackedType::kU4, OffsetType::kZero4, 64}});
    const auto cancelled = MeasureSensitivity(source->config, *tensors, units, targets, windows,
                                              &pool, [](double done) { return done < 0.5; });
    EXPECT_EQ(cancelled.status().code(), StatusCode::kCancelled);
  }
}

// Every size from the smallest on is kept to, in both formats, and more bytes lose less.
TEST(ConvertToSize, FitsAndLosesLessTheMoreItMayTake) {
  const std::string directory = ScratchDir();
  const std::string input = SmallModel(directory, false), text = SomeText();
  for (const std::string name : {"a.plm", "a.gguf"}) {
    const std::string output = JoinPath(directory, name);
    ConvertOptions options;
    options.calibration = {{"text", text, "text"}};
    options.target_bytes = 1000;
    const auto none = ConvertModel(input, output, options, {});
    EXPECT_EQ(none.status().code(), StatusCode::kInvalidArgument);
    ASSERT_THAT(none.status().message(), HasSubstr("size: expected at least "));
    const uint64_t least =
        std::stoull(none.status().message().substr(none.status().message().find("least ") + 6));
    double before = std::numeric_limits<double>::infinity();
    for (const double factor : {1.0, 1.1, 1.4, 1.8, 5.0}) {
      options.target_bytes = static_cast<uint64_t>(std::ceil(factor * static_cast<double>(least)));
      const auto report = ConvertModel(input, output, options, {});
      ASSERT_OK(report);
      EXPECT_EQ((*report)["type"], "mixed");
      EXPECT_LE((*report)["bytes"], options.target_bytes) << name << " " << factor;
      if (factor < 2.0) {
        EXPECT_GT((*report)["bytes"], 0.8 * static_cast<double>(options.target_bytes)) << name;
      }
      double squares = 0.0;
      for (const auto& type : (*report)["types"]) {
        const double rms = type["relative_rms_error"];
        squares += rms * rms * type["parameters"].get<double>();
      }
      EXPECT_LT(squares, before) << name << " " << factor;
      before = squares;
    }
  }
}

TEST(ConvertToSize, AsksForTextsAndNothingBeside) {
  const std::string directory = ScratchDir();
  const std::string input = SmallModel(directory, true), output = JoinPath(directory, "out.plm");
  ConvertOptions options;
  options.target_bytes = 1000000;
  EXPECT_THAT(ConvertModel(input, output, options, {}).status().message(),
              HasSubstr("expected calibration texts"));
  const std::string text = SomeText();
  options.calibration = {{"text", text, "text"}};
  options.type = "int4";
  EXPECT_THAT(ConvertModel(input, output, options, {}).status().message(),
              HasSubstr("expected no type"));
}

// Codes that are on the target's grid are kept where that is the best use of the bytes.
TEST(ConvertToSize, KeepsCodes) {
  const std::string directory = ScratchDir();
  const std::string input = SmallModel(directory, true), text = SomeText();
  const std::string quantized = JoinPath(directory, "q.plm"),
                    output = JoinPath(directory, "out.plm");
  ASSERT_OK(ConvertModel(input, quantized, {}, {}));
  ConvertOptions options;
  options.calibration = {{"text", text, "text"}};
  options.target_bytes = 10000000;
  const auto report = ConvertModel(quantized, output, options, {});
  ASSERT_OK(report);
  EXPECT_LT((*report)["bytes"], 1.02 * static_cast<double>(std::filesystem::file_size(quantized)));
  for (const auto& type : (*report)["types"]) EXPECT_EQ(type["exact"], true);
}

}  // namespace
}  // namespace pocketlm
