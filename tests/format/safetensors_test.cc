#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/half.h"
#include "support/byte_builder.h"
#include "support/safetensors_writer.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using testing::AlignedBytes;
using testing::ByteBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBytes;
using testing::SafetensorsWriter;

template <typename T>
std::vector<T> Values(const TensorView& tensor) {
  std::vector<T> out(tensor.data.size() / sizeof(T));
  std::memcpy(out.data(), tensor.data.data(), out.size() * sizeof(T));
  return out;
}

#define EXPECT_REFUSED(file, text)                              \
  do {                                                          \
    const AlignedBytes bytes_(file);                            \
    auto result_ = SafetensorsFile::Parse(bytes_.span());       \
    ASSERT_FALSE(result_.ok());                                 \
    EXPECT_EQ(result_.status().code(), StatusCode::kDataError); \
    EXPECT_THAT(result_.status().message(), HasSubstr(text));   \
  } while (false)

TEST(SafetensorsTest, GoldenOfThePythonPackage) {
  auto file =
      SafetensorsFile::Open(testing::SourceDir() + "/tests/format/goldens/types.safetensors");
  ASSERT_OK(file);
  ASSERT_EQ(file->tensors().size(), 5u);
  const TensorView* half = file->FindTensor("half");
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(half->type, DType::kF16);
  EXPECT_THAT(half->shape, ElementsAre(2, 3));
  EXPECT_EQ(HalfToFloat(Values<uint16_t>(*half)[5]), 1.25f);
  const TensorView* brain = file->FindTensor("brain");
  ASSERT_NE(brain, nullptr);
  EXPECT_EQ(brain->type, DType::kBF16);
  EXPECT_THAT(Values<uint16_t>(*brain), ElementsAre(0x3F80, 0xC020, 0x4049, 0x7149));
  const TensorView* full = file->FindTensor("full");
  ASSERT_NE(full, nullptr);
  EXPECT_EQ(full->type, DType::kF32);
  EXPECT_THAT(full->shape, ElementsAre(2, 2, 2));
  EXPECT_EQ(Values<float>(*full)[0], -1.0f);
  EXPECT_EQ(Values<float>(*full)[7], 1.0f);
  EXPECT_TRUE(file->FindTensor("scalar")->shape.empty());
  EXPECT_THAT(Values<float>(*file->FindTensor("scalar")), ElementsAre(7.5f));
  EXPECT_THAT(file->FindTensor("empty")->shape, ElementsAre(0, 4));
  EXPECT_TRUE(file->FindTensor("empty")->data.empty());
  ASSERT_EQ(file->metadata().size(), 2u);
  for (const auto& [key, value] : file->metadata()) {
    EXPECT_EQ(value, key == "note" ? "Grüße, 世界" : "np");
  }
}

TEST(SafetensorsTest, OtherTypesFailOnlyWhenAskedFor) {
  auto file =
      SafetensorsFile::Open(testing::SourceDir() + "/tests/format/goldens/types.safetensors");
  ASSERT_OK(file);
  ASSERT_EQ(file->unsupported().size(), 1u);
  EXPECT_EQ(file->unsupported()[0].dtype, "I64");
  EXPECT_EQ(file->FindTensor("ids"), nullptr);
  const Status status = file->GetTensor("ids").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            "safetensors: tensor 'ids': type 'I64'; F32, F16 and BF16 can be read");
  EXPECT_EQ(file->GetTensor("nope").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*file->GetTensor("full"), file->FindTensor("full"));
}

TEST(SafetensorsTest, UnknownTypeOfALaterVersionIsListed) {
  const AlignedBytes bytes(
      SafetensorsWriter().Add("x", "F5_NEW", {3}, "ab").AddFloats("y", {1}, {2}).Build());
  auto file = SafetensorsFile::Parse(bytes.span());
  ASSERT_OK(file);
  EXPECT_EQ(file->GetTensor("x").status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(Values<float>(*file->FindTensor("y")), ElementsAre(2.0f));
}

TEST(SafetensorsTest, FILE_D5_HeaderLength) {
  const std::string body = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const auto with_length = [&](uint64_t length) {
    return ByteBuilder().U64(length).Raw(body).Raw("abcd").bytes();
  };
  EXPECT_OK(SafetensorsFile::Parse(AlignedBytes(with_length(body.size())).span()));
  EXPECT_REFUSED(with_length(UINT64_MAX), "header length 18446744073709551615");
  EXPECT_REFUSED(with_length(8 + body.size() + 4 + 1), "header length");
  EXPECT_REFUSED(with_length(body.size() + 5), "header length");
  EXPECT_REFUSED(with_length(0), "does not begin with '{'");
  EXPECT_REFUSED(with_length(body.size() - 1), "JSON");
  EXPECT_REFUSED("", "expected at least 8 bytes, got 0");
  EXPECT_REFUSED("1234567", "got 7");
  EXPECT_REFUSED(ByteBuilder().U64(100'000'001).bytes(), "header length");
}

TEST(SafetensorsTest, HeaderMustBeTheFormatsJson) {
  const std::string data = "abcd";
  EXPECT_OK(SafetensorsFile::Parse(AlignedBytes(SafetensorsBytes("{}   ", "")).span()));
  EXPECT_REFUSED(SafetensorsBytes("[]", ""), "begin");
  EXPECT_REFUSED(SafetensorsBytes("{} x", ""), "malformed JSON at line 1, column 4");
  EXPECT_REFUSED(SafetensorsBytes("{\"a\":", ""), "malformed JSON");
  EXPECT_REFUSED(SafetensorsBytes("{\"\xFF\":1}", ""), "malformed JSON");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":1})", ""), "'a': unexpected: a number");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":[]})", ""), "an array");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":null})", ""), "null");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{}})", ""), "expected the fields");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"b":{}}})", ""), "unknown field 'b'");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"dtype":{}}})", ""), "an object");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"shape":[[1]]}})", ""), "an array");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"shape":[-1]}})", ""), "negative");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"shape":[1.5]}})", ""), "integer");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"shape":[99999999999999999999]}})", ""), "64-bit");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"shape":[1,1,1,1,1,1,1,1,1]}})", ""), "8 dimensions");
  EXPECT_REFUSED(SafetensorsBytes(R"({"a":{"dtype":"F32","dtype":"F16"}})", ""),
                 "'dtype' occurs twice");
  EXPECT_REFUSED(SafetensorsBytes(R"({"__metadata__":{"a":1}})", ""), "a number");
  EXPECT_REFUSED(SafetensorsBytes(R"({"__metadata__":{"a":{}}})", ""), "an object");
  EXPECT_REFUSED(SafetensorsBytes(R"({"__metadata__":[]})", ""), "an array");
  EXPECT_REFUSED(SafetensorsBytes(R"({"__metadata__":{"a":"b","a":"c"}})", ""), "'a' occurs twice");
  EXPECT_REFUSED(SafetensorsBytes(R"({"__metadata__":{},"__metadata__":{}})", ""), "occurs twice");
  EXPECT_REFUSED(SafetensorsBytes("{\"a\":" + std::string(100000, '{'), ""), "JSON");
  EXPECT_REFUSED(SafetensorsBytes("{\"a\":" + std::string(100000, '['), ""), "an array");
}

std::string OneTensor(const std::string& dtype, const std::string& shape,
                      const std::string& offsets, size_t data_bytes) {
  return SafetensorsBytes(R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape +
                              R"(,"data_offsets":)" + offsets + "}}",
                          std::string(data_bytes, '\0'));
}

TEST(SafetensorsTest, ShapeTypeAndOffsetsMustAgree) {
  EXPECT_OK(SafetensorsFile::Parse(AlignedBytes(OneTensor("F32", "[2,3]", "[0,24]", 24)).span()));
  EXPECT_REFUSED(OneTensor("F32", "[2,3]", "[0,20]", 20), "'w': data_offsets [0, 20] do not agree");
  EXPECT_REFUSED(OneTensor("BF16", "[2,3]", "[0,24]", 24),
                 "do not agree with type BF16 and shape [2, 3]");
  EXPECT_REFUSED(OneTensor("F32", "[6]", "[0,24]", 20), "is it complete?");
  EXPECT_REFUSED(OneTensor("F32", "[6]", "[24,0]", 24), "do not lie");
  EXPECT_REFUSED(OneTensor("F32", "[6]", "[18446744073709551592,18446744073709551615]", 24),
                 "do not lie");
  EXPECT_REFUSED(OneTensor("F32", "[6]", "[0]", 24), "got fewer");
  EXPECT_REFUSED(OneTensor("F32", "[6]", "[0,24,24]", 24), "got more");
  EXPECT_REFUSED(OneTensor("F32", "[4611686018427387904,4]", "[0,0]", 0), "do not agree");
  EXPECT_REFUSED(OneTensor("F32", "[4294967296,4294967296]", "[0,0]", 0), "do not agree");
  EXPECT_REFUSED(OneTensor("F4", "[3]", "[0,1]", 1), "do not agree");
}

TEST(SafetensorsTest, DataMustBeTiled) {
  const auto two = [](const std::string& a, const std::string& b, size_t data_bytes) {
    return SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + a +
                                R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + b + "}}",
                            std::string(data_bytes, '\0'));
  };
  EXPECT_OK(SafetensorsFile::Parse(AlignedBytes(two("[8,16]", "[0,8]", 16)).span()));
  EXPECT_REFUSED(two("[0,8]", "[4,12]", 12), "overlap at byte 4");
  EXPECT_REFUSED(two("[0,8]", "[0,8]", 8), "overlap");
  EXPECT_REFUSED(two("[0,8]", "[12,20]", 20), "hole between tensors at byte 8");
  EXPECT_REFUSED(two("[4,12]", "[12,20]", 20), "hole");
  EXPECT_REFUSED(two("[0,8]", "[8,16]", 20), "end at byte 16 of the data, but there are 20");
}

TEST(SafetensorsTest, NamesMustBeUnique) {
  EXPECT_REFUSED(SafetensorsWriter().AddFloats("x", {1}, {1}).AddFloats("x", {1}, {2}).Build(),
                 "'x' occurs twice");
  EXPECT_REFUSED(SafetensorsWriter().Add("x", "U8", {1}, "a").AddFloats("x", {1}, {2}).Build(),
                 "'x' occurs twice");
  EXPECT_REFUSED(SafetensorsWriter().Add("x", "U8", {1}, "a").Add("x", "I8", {1}, "a").Build(),
                 "'x' occurs twice");
}

TEST(SafetensorsTest, EveryTruncationIsRefused) {
  const std::string file =
      SafetensorsWriter().AddFloats("x", {2}, {1, 2}).Add("y", "BF16", {1}, "ab").Build();
  EXPECT_OK(SafetensorsFile::Parse(AlignedBytes(file).span()));
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> cut(reinterpret_cast<const std::byte*>(file.data()),
                                     reinterpret_cast<const std::byte*>(file.data()) + size);
    auto result = SafetensorsFile::Parse(cut);
    ASSERT_FALSE(result.ok()) << "cut to " << size;
  }
}

}  // namespace
}  // namespace pocketlm
