// SafetensorsFileWriter against the reader, and what it refuses. The package's own reader is asked in
// tests/python/test_cli_convert.py.
#include "format/safetensors_writer.h"

#include <algorithm>
#include <filesystem>

#include "format/safetensors.h"
#include "gmock/gmock.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchDir;

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 7 + 1);
  return out;
}

TEST(SafetensorsFileWriter, WhatWasWrittenComesBack) {
  const std::string path = JoinPath(ScratchDir(), "x.safetensors");
  auto writer = SafetensorsFileWriter::Create(path);
  ASSERT_OK(writer);
  ASSERT_OK(writer->DeclareTensor("b", DType::kF16, {3, 5}));
  ASSERT_OK(writer->DeclareTensor("a \"quoted\" 名", DType::kF32, {2}));
  ASSERT_OK(writer->DeclareTensor("c", DType::kBF16, {1, 1, 1}));
  ASSERT_OK(writer->DeclareTensor("scalar", DType::kF32, {}));
  ASSERT_OK(writer->DeclareTensor("nothing", DType::kF32, {0, 4}));
  for (const size_t size : {30, 8, 2, 4, 0}) ASSERT_OK(writer->Append(Pattern(size)));
  ASSERT_OK(writer->Finish());

  const auto file = SafetensorsFile::Open(path);
  ASSERT_OK(file);
  ASSERT_EQ(file->tensors().size(), 5u);
  const TensorView* b = file->FindTensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, DType::kF16);
  EXPECT_THAT(b->shape, ElementsAre(3, 5));
  EXPECT_TRUE(std::ranges::equal(b->data, Pattern(30)));
  EXPECT_TRUE(std::ranges::equal(file->FindTensor("a \"quoted\" 名")->data, Pattern(8)));
  EXPECT_EQ(file->FindTensor("c")->type, DType::kBF16);
  EXPECT_THAT(file->FindTensor("scalar")->shape, IsEmpty());
}

TEST(SafetensorsFileWriter, WrongUseIsRefused) {
  const std::string directory = ScratchDir();
  const std::string path = JoinPath(directory, "x.safetensors");
  {
    auto writer = SafetensorsFileWriter::Create(path);
    ASSERT_OK(writer);
    const auto refused = [&](std::string_view name, DType type, const std::vector<uint64_t>& shape,
                             const char* text) {
      const Status status = writer->DeclareTensor(name, type, shape);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(text));
    };
    refused("", DType::kF32, {1}, "valid UTF-8");
    refused("\xFF", DType::kF32, {1}, "valid UTF-8");
    refused("__metadata__", DType::kF32, {1}, "a name that is free");
    refused("a", DType::kQ4_1, {32}, "expected F32, F16 or BF16, got Q4_1");
    refused("a", DType::kF32, {uint64_t{1} << 40, uint64_t{1} << 40}, "less than 2^62 bytes");
    ASSERT_OK(writer->DeclareTensor("x", DType::kF32, {4}));
    refused("x", DType::kF32, {4}, "a name that is free");
    EXPECT_THAT(writer->Append(Pattern(15)).message(), HasSubstr("expected 16 bytes, got 15"));
    EXPECT_THAT(writer->Finish().message(), HasSubstr("expected 1 tensors, got 0"));
    ASSERT_OK(writer->Append(Pattern(16)));
    EXPECT_THAT(writer->Append(Pattern(16)).message(), HasSubstr("got more"));
  }
  // No Finish: nothing is left.
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  EXPECT_EQ(SafetensorsFileWriter::Create(JoinPath(directory, "none/x")).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace pocketlm
