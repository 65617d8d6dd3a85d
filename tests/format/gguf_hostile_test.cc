// GGUF files that are wrong: each must be refused with a message that says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "format/gguf.h"
#include "support/byte_builder.h"
#include "support/gguf_writer.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using testing::AlignedBytes;
using testing::ByteBuilder;
using testing::GgufWriter;
using ::testing::HasSubstr;

// The status of a file that must be refused.
Status Refused(const std::string& file) {
  const AlignedBytes bytes(file);
  auto result = GgufFile::Parse(bytes.span());
  EXPECT_FALSE(result.ok());
  return result.ok() ? OkStatus() : result.status();
}

#define EXPECT_REFUSED(file, expected_code, text)                              \
  do {                                                                         \
    const Status status_ = Refused(file);                                      \
    EXPECT_EQ(status_.code(), StatusCode::expected_code) << status_.message(); \
    EXPECT_THAT(status_.message(), HasSubstr(text));                           \
  } while (false)

// A header that announces `tensors` and `keys`.
ByteBuilder Header(uint64_t tensors, uint64_t keys) {
  ByteBuilder out;
  out.Raw("GGUF").U32(3).U64(tensors).U64(keys);
  return out;
}

// One F32 tensor "t" whose table entry has these dimensions, and 1 KiB of data.
std::string OneTensor(uint32_t announced_rank, const std::vector<uint64_t>& dims, uint32_t type = 0,
                      uint64_t offset = 0) {
  ByteBuilder out = Header(1, 0);
  out.String("t").U32(announced_rank);
  for (uint64_t d : dims) out.U64(d);
  out.U32(type).U64(offset).PadTo(32).Raw(std::string(1024, '\0'));
  return out.bytes();
}

TEST(GgufHostileTest, FILE_D1_DimensionCount) {
  EXPECT_OK(GgufFile::Parse(AlignedBytes(OneTensor(4, {2, 2, 2, 2})).span()));
  EXPECT_REFUSED(OneTensor(5, {1, 1, 1, 1, 1}), kDataError, "expected at most 4 dimensions, got 5");
  EXPECT_REFUSED(OneTensor(9, std::vector<uint64_t>(9, 1)), kDataError, "got 9");
  EXPECT_REFUSED(OneTensor(0xFFFFFFFF, {1}), kDataError, "got 4294967295");
}

TEST(GgufHostileTest, FILE_D2_ProductOfDimensions) {
  const uint64_t two32 = uint64_t{1} << 32, two42 = uint64_t{1} << 42, two63 = uint64_t{1} << 63;
  EXPECT_REFUSED(OneTensor(2, {two63, 4}), kDataError, "overflow");
  EXPECT_REFUSED(OneTensor(2, {4, two63}), kDataError, "overflow");
  EXPECT_REFUSED(OneTensor(2, {two32, two32}), kDataError, "overflow");
  EXPECT_REFUSED(OneTensor(2, {two42 + 1, 896}), kDataError, "tensor data");
  EXPECT_REFUSED(OneTensor(4, {two32, two32, two32, two32}), kDataError, "overflow");
  EXPECT_REFUSED(OneTensor(2, {1, 0}), kDataError, "dimension is 0");
  // 256 values fit, 257 do not; an offset that wraps the sum does not help.
  EXPECT_OK(GgufFile::Parse(AlignedBytes(OneTensor(1, {256})).span()));
  EXPECT_REFUSED(OneTensor(1, {257}), kDataError, "1028 bytes at 0");
  EXPECT_REFUSED(OneTensor(1, {256}, 0, 32), kDataError, "is it complete?");
  EXPECT_REFUSED(OneTensor(1, {16}, 0, UINT64_MAX - 31), kDataError, "is it complete?");
  EXPECT_REFUSED(OneTensor(1, {16}, 0, 4), kDataError, "no multiple of the alignment");
}

TEST(GgufHostileTest, FILE_D3_Alignment) {
  for (uint32_t alignment : {0u, 3u, 4u, 48u, 1u << 17, 1u << 31}) {
    EXPECT_REFUSED(GgufWriter().Add("general.alignment", alignment).Build(), kDataError,
                   "power of two");
  }
  EXPECT_REFUSED(GgufWriter().AddString("general.alignment", "32").Build(), kDataError,
                 "of type string");
  EXPECT_REFUSED(GgufWriter().Add<int32_t>("general.alignment", -32).Build(), kDataError,
                 "positive integer");
  for (uint32_t alignment : {8u, 64u, 65536u}) {
    const AlignedBytes bytes(GgufWriter().Alignment(alignment).AddFloats("x", {1}, {2}).Build());
    auto file = GgufFile::Parse(bytes.span());
    ASSERT_OK(file);
    EXPECT_EQ(file->alignment(), alignment);
  }
}

TEST(GgufHostileTest, FILE_D4_LengthsBeyondTheFile) {
  const auto with_value = [](uint32_t type, const ByteBuilder& value) {
    return Header(0, 1)
        .String("k")
        .U32(type)
        .Raw(value.bytes())
        .Raw(std::string(100, '\0'))
        .bytes();
  };
  EXPECT_REFUSED(with_value(8, ByteBuilder().U64(1 << 30)), kDataError, "needs 1073741824 bytes");
  EXPECT_REFUSED(with_value(8, ByteBuilder().U64(UINT64_MAX)), kDataError, "needs");
  for (uint32_t element = 0; element < kNumGgufTypes; ++element) {
    if (element == 9) continue;
    EXPECT_REFUSED(with_value(9, ByteBuilder().U32(element).U64(uint64_t{1} << 40)), kDataError,
                   "more than the file can hold");
    EXPECT_REFUSED(with_value(9, ByteBuilder().U32(element).U64(UINT64_MAX)), kDataError,
                   "can hold");
  }
  EXPECT_REFUSED(with_value(9, ByteBuilder().U32(9).U64(1).U32(4).U64(1)), kDataError,
                 "array of arrays");
  EXPECT_REFUSED(with_value(9, ByteBuilder().U32(8).U64(3).String("a").U64(1 << 30)), kDataError,
                 "string 1");
  EXPECT_REFUSED(Header(0, 1).U64(uint64_t{1} << 40).Raw(std::string(100, 'k')).bytes(), kDataError,
                 "expected 1 to 65535 bytes");
  EXPECT_REFUSED(Header(0, uint64_t{1} << 40).Raw(std::string(100, '\0')).bytes(), kDataError,
                 "key count");
  EXPECT_REFUSED(Header(UINT64_MAX, 0).Raw(std::string(100, '\0')).bytes(), kDataError,
                 "tensor count");
}

TEST(GgufHostileTest, MagicAndVersion) {
  EXPECT_REFUSED("", kDataError, "magic");
  EXPECT_REFUSED("GGU", kDataError, "magic");
  EXPECT_REFUSED("GGML____", kDataError, "'GGML'");
  EXPECT_REFUSED(ByteBuilder().Raw("GGUF").U32(1).U64(0).U64(0).bytes(), kUnsupported, "version 1");
  EXPECT_REFUSED(ByteBuilder().Raw("GGUF").U32(4).U64(0).U64(0).bytes(), kUnsupported, "version 4");
  EXPECT_REFUSED(ByteBuilder().Raw("GGUF").U32(0x03000000).U64(0).U64(0).bytes(), kUnsupported,
                 "big-endian");
  EXPECT_OK(GgufFile::Parse(AlignedBytes(Header(0, 0).bytes()).span()));
}

TEST(GgufHostileTest, KeysAndValues) {
  EXPECT_REFUSED(GgufWriter().Add("a", 1).Add("b", 1).Add("a", 2).Build(), kDataError,
                 "'a' occurs twice");
  EXPECT_REFUSED(GgufWriter().Add("bad\xFF", 1).Build(), kDataError, "UTF-8");
  EXPECT_REFUSED(GgufWriter().Add("", 1).Build(), kDataError, "1 to 65535");
  EXPECT_REFUSED(GgufWriter().Add(std::string(65536, 'k'), 1).Build(), kDataError, "got 65536");
  EXPECT_REFUSED(GgufWriter().AddRaw("k", 13, "12345678").Build(), kDataError,
                 "unknown value type 13");
  EXPECT_REFUSED(GgufWriter().AddRaw("k", 7, "\x02").Build(), kDataError, "expected 0 or 1, got 2");
  EXPECT_REFUSED(
      GgufWriter().AddRaw("k", 9, ByteBuilder().U32(7).U64(2).U8(1).U8(255).bytes()).Build(),
      kDataError, "got 255");
}

TEST(GgufHostileTest, TensorTable) {
  const std::string row(1024, '\0');
  EXPECT_REFUSED(GgufWriter().AddFloats("t", {1}, {1}).AddFloats("t", {1}, {1}).Build(), kDataError,
                 "'t' occurs twice");
  EXPECT_REFUSED(GgufWriter().AddFloats("\xC0", {1}, {1}).Build(), kDataError, "UTF-8");
  EXPECT_REFUSED(GgufWriter().AddTensor("wq", 10, {256}, row).Build(), kUnsupported,
                 "'wq': type Q2_K");
  EXPECT_REFUSED(GgufWriter().AddTensor("wq", 39, {256}, row).Build(), kUnsupported, "MXFP4");
  EXPECT_REFUSED(GgufWriter().AddTensor("wq", 999, {256}, row).Build(), kDataError,
                 "'wq': unknown type 999");
  EXPECT_REFUSED(GgufWriter().AddTensor("wq", DType::kQ8_0, {4, 48}, row).Build(), kDataError,
                 "no whole blocks of 32");
  EXPECT_REFUSED(GgufWriter().AddTensor("wq", DType::kQ4_K, {128}, row).Build(), kDataError,
                 "blocks of 256");
  ByteBuilder overlap = Header(2, 0);
  overlap.String("a").U32(1).U64(16).U32(0).U64(0).String("b").U32(1).U64(16).U32(0).U64(32);
  EXPECT_REFUSED(overlap.PadTo(32).Raw(row).bytes(), kDataError, "'a' and 'b' overlap");
}

TEST(GgufHostileTest, ControlCharactersDoNotReachMessages) {
  const Status status =
      Refused(GgufWriter().AddTensor("a\x1B[2J\n" + std::string(5000, 'z'), 999, {1}, "").Build());
  EXPECT_EQ(status.message().find_first_of("\x1B\n"), std::string::npos);
  EXPECT_LT(status.message().size(), 300u);
}

TEST(GgufHostileTest, UnalignedBytesAreTheCallersMistake) {
  const AlignedBytes bytes("x" + GgufWriter().Build());
  EXPECT_EQ(GgufFile::Parse(bytes.span().subspan(1)).status().code(), StatusCode::kInvalidArgument);
}

// A file cut anywhere is refused and read nowhere behind its end (ASan sees that in the asan preset).
TEST(GgufHostileTest, EveryTruncationIsRefused) {
  const std::string file = GgufWriter()
                               .AddStrings("tokens", {"a", "bc", ""})
                               .AddArray<float>("scores", {1, 2})
                               .Add("flag", true)
                               .AddTensor("q", DType::kQ8_0, {2, 32}, std::string(68, '\1'))
                               .AddFloats("x", {3}, {1, 2, 3})
                               .Build();
  EXPECT_OK(GgufFile::Parse(AlignedBytes(file).span()));
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string cut = file.substr(0, size);
    const auto copy = std::make_unique<uint64_t[]>(size / 8 + 1);
    std::memcpy(copy.get(), cut.data(), size);
    auto result = GgufFile::Parse({reinterpret_cast<const std::byte*>(copy.get()), size});
    ASSERT_FALSE(result.ok()) << "cut to " << size;
    EXPECT_EQ(result.status().code(), StatusCode::kDataError);
  }
}

// Every single byte, set to a few hostile values: refused or read, never more.
TEST(GgufHostileTest, EveryByteChanged) {
  const std::string file = GgufWriter()
                               .AddStrings("tokens", {"a", "bc"})
                               .Add<uint32_t>("n", 7)
                               .AddFloats("x", {3}, {1, 2, 3})
                               .Build();
  int refused = 0;
  for (size_t i = 0; i < file.size(); ++i) {
    for (const char value : {'\x00', '\x01', '\x7F', '\x80', '\xFF'}) {
      std::string changed = file;
      changed[i] = value;
      const AlignedBytes bytes(changed);
      auto result = GgufFile::Parse(bytes.span());
      if (!result.ok()) {
        ++refused;
        continue;
      }
      for (const TensorView& tensor : result->tensors()) {
        ASSERT_LE(tensor.data.data() + tensor.data.size(),
                  bytes.span().data() + bytes.span().size());
      }
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace pocketlm
