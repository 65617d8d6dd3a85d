#include "format/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "support/safetensors_writer.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::HasSubstr;
using testing::SafetensorsWriter;
using testing::WriteFileOrDie;

class HfFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::ScratchDir();
    Write("config.json", R"({"model_type": "llama", "rope_theta": 1e4, "eos_token_id": [1, 106]})");
  }

  void Write(const std::string& name, const std::string& text) {
    WriteFileOrDie(JoinPath(folder_, name), text);
  }
  void WriteWeights() {
    Write("model.safetensors",
          SafetensorsWriter().AddFloats("a", {2}, {1, 2}).Add("n", "I64", {1}, "12345678").Build());
  }
  void WriteIndex(const std::string& weight_map) {
    Write("model.safetensors.index.json", R"({"metadata": {}, "weight_map": )" + weight_map + "}");
  }
  void WriteShards() {
    Write("s1.safetensors",
          SafetensorsWriter().AddFloats("a", {1}, {1}).AddFloats("c", {1}, {3}).Build());
    Write("s2.safetensors",
          SafetensorsWriter().AddFloats("b", {1}, {2}).Add("n", "U8", {1}, "x").Build());
  }
  Status OpenError() {
    auto folder = HfFolder::Open(folder_);
    EXPECT_FALSE(folder.ok());
    return folder.ok() ? OkStatus() : folder.status();
  }

  std::string folder_;
};

float FirstValue(const HfFolder& folder, const std::string& name) {
  const TensorView* tensor = folder.FindTensor(name);
  float value = -1;
  if (tensor != nullptr) std::memcpy(&value, tensor->data.data(), sizeof(value));
  return value;
}

TEST_F(HfFolderTest, SingleFile) {
  WriteWeights();
  auto folder = HfFolder::Open(folder_);
  ASSERT_OK(folder);
  EXPECT_EQ(folder->config()["model_type"], "llama");
  EXPECT_EQ(folder->config()["eos_token_id"][1], 106);
  EXPECT_TRUE(folder->generation_config().is_null());
  EXPECT_TRUE(folder->tokenizer_config().is_null());
  EXPECT_EQ(folder->chat_template(), std::nullopt);
  EXPECT_EQ(folder->ReadTokenizerJson().status().code(), StatusCode::kNotFound);
  EXPECT_EQ(folder->tensors().size(), 1u);
  EXPECT_EQ(FirstValue(*folder, "a"), 1.0f);
  EXPECT_EQ(folder->GetTensor("n").status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(folder->GetTensor("zz").status().code(), StatusCode::kNotFound);
}

TEST_F(HfFolderTest, Shards) {
  WriteShards();
  WriteIndex(
      R"({"a": "s1.safetensors", "b": "s2.safetensors", "c": "s1.safetensors", "n": "s2.safetensors"})");
  auto opened = HfFolder::Open(folder_);
  ASSERT_OK(opened);
  const HfFolder folder = std::move(*opened);
  EXPECT_EQ(folder.shards().size(), 2u);
  EXPECT_EQ(folder.tensors().size(), 3u);
  EXPECT_EQ(FirstValue(folder, "a"), 1.0f);
  EXPECT_EQ(FirstValue(folder, "b"), 2.0f);
  EXPECT_EQ(FirstValue(folder, "c"), 3.0f);
  EXPECT_THAT(folder.GetTensor("n").status().message(), HasSubstr("'U8'"));
}

TEST_F(HfFolderTest, MissingShardIsNamed) {
  WriteShards();
  WriteIndex(R"({"a": "s1.safetensors", "b": "model-00002-of-00002.safetensors"})");
  const Status status = OpenError();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("shard 'model-00002-of-00002.safetensors' is missing"));
}

TEST_F(HfFolderTest, ShardNamesStayInTheFolder) {
  WriteShards();
  for (const char* name :
       {"../s1.safetensors", "/etc/passwd", "a/b", "a\\\\b", "..", ".", "", "c:x", "a\\u0000b"}) {
    WriteIndex("{\"a\": \"" + std::string(name) + "\"}");
    const Status status = OpenError();
    EXPECT_EQ(status.code(), StatusCode::kDataError) << name;
    EXPECT_THAT(status.message(), HasSubstr("expected the name of a file in the folder")) << name;
  }
}

TEST_F(HfFolderTest, IndexThatLies) {
  WriteShards();
  WriteIndex(R"({"zz": "s1.safetensors"})");
  EXPECT_THAT(OpenError().message(), HasSubstr("'zz' is missing"));
  WriteIndex(R"({"a": 1})");
  EXPECT_THAT(OpenError().message(), HasSubstr("got number"));
  WriteIndex("{}");
  EXPECT_THAT(OpenError().message(), HasSubstr("empty"));
  WriteIndex("[]");
  EXPECT_THAT(OpenError().message(), HasSubstr("weight_map"));
  Write("s2.safetensors", SafetensorsWriter().AddFloats("a", {1}, {2}).Build());
  WriteIndex(R"({"a": "s1.safetensors", "c": "s2.safetensors"})");
  EXPECT_THAT(OpenError().message(), HasSubstr("'c' is missing"));
  WriteIndex(R"({"c": "s1.safetensors", "a": "s2.safetensors"})");
  EXPECT_THAT(OpenError().message(), HasSubstr("'a' is in two shards"));
}

TEST_F(HfFolderTest, NoFolderNoConfigNoWeights) {
  EXPECT_THAT(OpenError().message(), HasSubstr("found neither"));
  EXPECT_EQ(HfFolder::Open(folder_ + "/nope").status().code(), StatusCode::kNotFound);
  std::filesystem::remove(folder_ + "/config.json");
  EXPECT_EQ(OpenError().code(), StatusCode::kNotFound);
  EXPECT_THAT(OpenError().message(), HasSubstr("config.json"));
}

TEST_F(HfFolderTest, BrokenConfigNamesFileAndPlace) {
  WriteWeights();
  Write("config.json", "{\n  \"a\": 1,\n  \"b\" 2\n}");
  EXPECT_THAT(OpenError().message(), HasSubstr("config.json: JSON: line 3, column 7"));
  Write("config.json", "[1]");
  EXPECT_THAT(OpenError().message(), HasSubstr("expected a JSON object, got array"));
  Write("config.json", std::string(100000, '['));
  EXPECT_THAT(OpenError().message(), HasSubstr("nested deeper than 64 levels"));
  Write("config.json", "");
  EXPECT_EQ(OpenError().code(), StatusCode::kDataError);
}

TEST_F(HfFolderTest, FS_D3_SideFilesWithCrLfAndByteOrderMark) {
  WriteWeights();
  const std::string mark = "\xEF\xBB\xBF";
  Write("config.json", mark + "{\r\n  \"model_type\": \"qwen3\"\r\n}");
  Write("generation_config.json", "{\r\n\"eos_token_id\": [1,\r\n 2]}\r\n");
  Write("tokenizer_config.json", mark + "{\"chat_template\": \"a\\r\\nb\"}\r\n\r\n");
  Write("tokenizer.json", mark + "{\r\n}");
  auto folder = HfFolder::Open(folder_);
  ASSERT_OK(folder);
  EXPECT_EQ(folder->config()["model_type"], "qwen3");
  EXPECT_EQ(folder->generation_config()["eos_token_id"].size(), 2u);
  EXPECT_EQ(folder->chat_template(), "a\r\nb");  // an escape inside JSON is content, not a line end
  EXPECT_EQ(*folder->ReadTokenizerJson(), "{\r\n}");
  Write("chat_template.jinja", mark + "{% if x %}\r\n  y\r{% endif %}");
  folder = HfFolder::Open(folder_);
  ASSERT_OK(folder);
  EXPECT_EQ(folder->chat_template(), "{% if x %}\n  y\n{% endif %}");
}

TEST_F(HfFolderTest, ChatTemplateList) {
  WriteWeights();
  Write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(HfFolder::Open(folder_)->chat_template(), "D");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "R"}]})");
  EXPECT_EQ(HfFolder::Open(folder_)->chat_template(), std::nullopt);
  Write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(HfFolder::Open(folder_)->chat_template(), std::nullopt);
  Write("tokenizer_config.json", R"({"chat_template": ["x"]})");
  EXPECT_THAT(OpenError().message(), HasSubstr("expected a list"));
  Write("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(OpenError().message(),
              HasSubstr("tokenizer_config.json: chat_template: expected a string"));
}

TEST_F(HfFolderTest, FS_D1_NonAsciiFolderName) {
  WriteWeights();
  const std::string renamed = testing::ScratchDir() + "/Modèle_試験_Ключ";
  std::filesystem::rename(folder_, renamed);
  auto folder = HfFolder::Open(renamed);
  ASSERT_OK(folder);
  EXPECT_EQ(FirstValue(*folder, "a"), 1.0f);
  EXPECT_OK(HfFolder::Open(renamed + "/"));
}

}  // namespace
}  // namespace pocketlm
