// plm_convert and plm_new_model: arguments, options, progress.
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "gmock/gmock.h"
#include "pocketlm/pocketlm.hpp"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDir;

class ConvertApi : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ScratchDir();
    config_ = JoinPath(directory_, "config.json");
    testing::WriteFileOrDie(config_,
                            R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 64,
            "head_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 1, "vocab_size": 300, "tie_word_embeddings": true})");
    model_ = JoinPath(directory_, "m.plm");
    out_ = JoinPath(directory_, "out.gguf");
    plm_new_model_options options = plm_new_model_options_default();
    options.config = config_.c_str();
    ASSERT_EQ(plm_new_model(model_.c_str(), &options, nullptr, nullptr, nullptr), PLM_OK)
        << plm_last_error();
  }

  std::string directory_, config_, model_, out_;
};

TEST_F(ConvertApi, ReportsAreJson) {
  const plm_convert_options options = plm_convert_options_default();
  const auto report = nlohmann::json::parse(plm::Convert(model_, out_, &options));
  EXPECT_EQ(report["input"], model_);
  EXPECT_EQ(report["output"], out_);
  EXPECT_EQ(report["type"], "q4_1");
  EXPECT_EQ(report["bytes"], ReadFile(out_).value().size());
  char* json = nullptr;
  EXPECT_EQ(plm_convert(model_.c_str(), out_.c_str(), nullptr, nullptr, nullptr, &json), PLM_OK);
  EXPECT_TRUE(nlohmann::json::accept(json));
  plm_string_free(json);
  EXPECT_EQ(plm_convert(model_.c_str(), out_.c_str(), nullptr, nullptr, nullptr, nullptr), PLM_OK);
}

TEST_F(ConvertApi, NewModelsTakeEveryOption) {
  plm_convert_options encoding = plm_convert_options_default();
  encoding.type = "int4";
  encoding.head_type = "f16";
  encoding.group_size = 32;
  encoding.offset = "min_f16";
  encoding.num_threads = 1;
  plm_new_model_options options = plm_new_model_options_default();
  options.config = config_.c_str();
  options.tokenizer = model_.c_str();
  options.seed = ~uint64_t{0};
  options.encoding = &encoding;
  const std::string path = JoinPath(directory_, "n.plm");
  const auto report = nlohmann::json::parse(plm::NewModel(path, &options));
  EXPECT_EQ(report["seed"], ~uint64_t{0});
  EXPECT_EQ(report["config"], config_);
  std::vector<std::string> types;
  for (const auto& type : report["types"]) types.push_back(type["type"]);
  EXPECT_THAT(types, ::testing::ElementsAre("F16", "F32", "u4 g32 min_f16"));
  EXPECT_NO_THROW(plm::Model::Load(path));
}

TEST_F(ConvertApi, WrongArguments) {
  const char* in = model_.c_str();
  const char* out = out_.c_str();
  EXPECT_EQ(plm_convert(nullptr, out, nullptr, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_convert(in, nullptr, nullptr, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_EQ(plm_new_model(nullptr, nullptr, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  plm_convert_options options = plm_convert_options_default();
  options.size_bytes = 0;
  EXPECT_EQ(plm_convert(in, out, &options, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  options = plm_convert_options_default();
  options.type = "q9";
  EXPECT_EQ(plm_convert(in, out, &options, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_THAT(plm_last_error(), HasSubstr("convert: type: expected q4_0, q4_1, q8_0, f16"));
  plm_new_model_options fresh = plm_new_model_options_default();
  fresh.config = config_.c_str();
  fresh.encoding = &options;
  EXPECT_EQ(plm_new_model(out, &fresh, nullptr, nullptr, nullptr), PLM_INVALID_ARGUMENT);
  EXPECT_THAT(plm_last_error(), HasSubstr("new: type: expected"));
  EXPECT_FALSE(FileExists(out_));
  EXPECT_THROW(plm::Convert(model_, model_), plm::Error);
}

TEST_F(ConvertApi, ProgressCancels) {
  int calls = 0;
  const plm_progress_callback stop = [](double fraction, void* user) {
    EXPECT_GE(fraction, 0.0);
    EXPECT_LE(fraction, 1.0);
    return ++*static_cast<int*>(user) < 5;
  };
  EXPECT_EQ(plm_convert(model_.c_str(), out_.c_str(), nullptr, stop, &calls, nullptr),
            PLM_CANCELLED);
  EXPECT_EQ(calls, 5);
  EXPECT_FALSE(FileExists(out_));
}

}  // namespace
}  // namespace pocketlm
