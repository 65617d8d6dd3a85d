// GgufFileWriter against the reader, and what it refuses.
#include "format/gguf_writer.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScratchDir;

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

TEST(GgufFileWriter, WhatWasWrittenComesBack) {
  const std::string path = JoinPath(ScratchDir(), "x.gguf");
  auto writer = GgufFileWriter::Create(path);
  ASSERT_OK(writer);
  const std::string strings[] = {"", "Ġthe", std::string("a\0b", 3)};
  writer->AddString("general.architecture", "llama");
  writer->AddUint32("u", 4000000000u);
  writer->AddFloat32("f", -0.1f);
  writer->AddBool("b", true);
  writer->AddStrings("strings", strings);
  writer->AddInt32s("ints", std::vector<int32_t>{-1, 2});
  writer->AddFloat32s("floats", std::vector<float>{0.5f});
  writer->AddBools("bools", {true, false, true});
  // Sizes that need padding and some that do not, of every type.
  std::vector<std::vector<std::byte>> data;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const uint64_t cols = GetDTypeInfo(type).block_values * 3;
    ASSERT_OK(writer->DeclareTensor("t" + std::to_string(i), type, {5, cols}));
    data.push_back(Pattern(5 * *RowBytes(type, cols)));
  }
  ASSERT_OK(writer->DeclareTensor("vector", DType::kF32, {3}));
  data.push_back(Pattern(12));
  ASSERT_OK(writer->DeclareTensor("four", DType::kF16, {2, 3, 1, 4}));
  data.push_back(Pattern(48));
  for (const auto& bytes : data) ASSERT_OK(writer->Append(bytes));
  EXPECT_FALSE(FileExists(path));
  ASSERT_OK(writer->Finish());

  auto file = GgufFile::Open(path);
  ASSERT_OK(file);
  EXPECT_EQ(file->num_keys(), 8u);
  EXPECT_EQ(*file->GetUint("u"), 4000000000u);
  EXPECT_EQ(*file->GetFloat("f"), static_cast<double>(-0.1f));
  EXPECT_TRUE(*file->GetBool("b"));
  std::vector<std::string> read;
  for (const std::string_view text : file->GetArray("strings")->strings()) read.emplace_back(text);
  EXPECT_THAT(read, ElementsAre(strings[0], strings[1], strings[2]));
  EXPECT_EQ(file->GetArray("ints")->Int(0), -1);
  EXPECT_EQ(file->GetArray("floats")->Float(0), 0.5);
  EXPECT_EQ(file->GetArray("bools")->Bool(1), false);
  ASSERT_EQ(file->tensors().size(), data.size());
  for (size_t i = 0; i < data.size(); ++i) {
    const TensorView& tensor = file->tensors()[i];
    EXPECT_TRUE(std::ranges::equal(tensor.data, data[i])) << tensor.name;
  }
  EXPECT_EQ(file->FindTensor("t3")->type, static_cast<DType>(3));
  EXPECT_THAT(file->FindTensor("four")->shape, ElementsAre(2, 3, 1, 4));
}

TEST(GgufFileWriter, WrongUseIsRefused) {
  const std::string directory = ScratchDir();
  const std::string path = JoinPath(directory, "x.gguf");
  {
    auto writer = GgufFileWriter::Create(path);
    ASSERT_OK(writer);
    const auto refused = [&](std::string_view name, DType type, const std::vector<uint64_t>& shape,
                             const char* text) {
      const Status status = writer->DeclareTensor(name, type, shape);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(text));
    };
    refused("", DType::kF32, {1}, "1 to 63 bytes");
    refused(std::string(64, 'x'), DType::kF32, {1}, "1 to 63 bytes");
    refused("a", DType::kF32, {}, "1 to 4 dimensions");
    refused("b", DType::kF32, {1, 1, 1, 1, 1}, "1 to 4 dimensions");
    refused("c", DType::kQ4_1, {4, 33}, "whole Q4_1 blocks");
    refused("d", DType::kF32, {4, 0}, "whole F32 blocks");
    refused("e", DType::kF32, {uint64_t{1} << 62, 16}, "whole F32 blocks");
    ASSERT_OK(writer->DeclareTensor("x", DType::kF32, {4}));
    refused("x", DType::kF32, {4}, "the name is taken");
    EXPECT_THAT(writer->Append(Pattern(15)).message(), HasSubstr("expected 16 bytes, got 15"));
    EXPECT_THAT(writer->Finish().message(), HasSubstr("was declared, but not appended"));
    ASSERT_OK(writer->Append(Pattern(16)));
    EXPECT_THAT(writer->Append(Pattern(16)).message(), HasSubstr("more tensors"));
  }
  // No Finish: nothing is left.
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  EXPECT_EQ(GgufFileWriter::Create(JoinPath(directory, "none/x.gguf")).status().code(),
            StatusCode::kNotFound);
}

TEST(GgufFileWriter, AFileWithoutTensors) {
  const std::string path = JoinPath(ScratchDir(), "x.gguf");
  auto writer = GgufFileWriter::Create(path);
  ASSERT_OK(writer);
  writer->AddString("general.architecture", "llama");
  ASSERT_OK(writer->Finish());
  EXPECT_OK(GgufFile::Open(path));
}

}  // namespace
}  // namespace pocketlm
