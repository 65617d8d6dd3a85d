// .plm files that are wrong: each must be refused with a message that says what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "format/plm.h"
#include "format/plm_layout.h"
#include "format/plm_writer.h"
#include "support/byte_builder.h"
#include "support/plm_files.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using testing::AlignedBytes;
using testing::ByteBuilder;
using testing::BytesOf;
using ::testing::HasSubstr;
using testing::PlmSection;
using testing::PlmSections;
using testing::SealPlm;
using testing::SetAt;
using testing::WithPlmSection;

// A plain vector, a packed matrix with offsets and a section of bytes.
std::string GoodFile() {
  static const std::string file = [] {
    const std::string path = JoinPath(testing::ScratchDir(), "good.plm");
    auto writer = PlmWriter::Create(path);
    POCKETLM_CHECK(writer.ok());
    const std::string norm(12, 'n'), codes(128 * 2, 'c'), scales(16 * 2, 's'), offsets(4 * 2, 'o');
    POCKETLM_CHECK(writer->AddPlain("norm", DType::kF32, {3}, BytesOf(norm)).ok());
    POCKETLM_CHECK(writer
                       ->AddPacked("matrix", 9, 32, {PackedType::kU4, OffsetType::kZero4, 32},
                                   {BytesOf(codes), BytesOf(scales), BytesOf(offsets)})
                       .ok());
    POCKETLM_CHECK(writer->AddSection("tokenizer", "some tables").ok());
    POCKETLM_CHECK(writer->Finish({{"key", "value"}}).ok());
    return testing::ReadFileOrDie(path);
  }();
  return file;
}

Status ParseStatus(const std::string& file) {
  const AlignedBytes bytes(file);
  return PlmFile::Parse(bytes.span()).status();
}

#define EXPECT_REFUSED(file, expected_code, text)                              \
  do {                                                                         \
    const Status status_ = ParseStatus(file);                                  \
    EXPECT_EQ(status_.code(), StatusCode::expected_code) << status_.message(); \
    EXPECT_THAT(status_.message(), HasSubstr(text));                           \
  } while (false)

// The good file with the value at a byte of a section changed, and right checksums.
template <typename T>
std::string Patched(std::string_view section, size_t offset, T value) {
  std::string file = GoodFile();
  SetAt<T>(&file, PlmSection(file, section).offset + offset, value);
  return SealPlm(std::move(file));
}

// Byte offsets in the tensors section: the count, then "norm" (one dimension, 4 letters), then "matrix".
constexpr size_t kNorm = 8;
constexpr size_t kMatrix = kNorm + kPlmTensorEntryBytes + 8 + 8;
constexpr size_t kOffset = 0, kSize = 8, kType = 24, kOffsetType = 28, kGroupSize = 32,
                 kNumDims = 36, kNameBytes = 40, kShape = 48;

TEST(PlmHostileTest, GoodFileIsGood) {
  EXPECT_OK(ParseStatus(GoodFile()));
  EXPECT_EQ(SealPlm(GoodFile()), GoodFile());
}

TEST(PlmHostileTest, Magic) {
  EXPECT_REFUSED("", kDataError, "needs 8 bytes");
  EXPECT_REFUSED("GGUF1234567890", kDataError, "not a .plm file: it begins with 'GGUF1234'");
  // What a transfer in text mode makes of the file.
  std::string file = GoodFile();
  file.erase(4, 1);
  EXPECT_REFUSED(file, kDataError, "not a .plm file");
}

TEST(PlmHostileTest, OtherMajorVersionsAreNamed) {
  std::string file = GoodFile();
  SetAt<uint16_t>(&file, 8, 2);
  SetAt<uint16_t>(&file, 10, 7);
  EXPECT_REFUSED(SealPlm(file), kUnsupported,
                 "format version 2.7; this program reads version 1; use a newer program");
  SetAt<uint16_t>(&file, 8, 0);
  EXPECT_REFUSED(SealPlm(file), kUnsupported, "convert the model again");
}

TEST(PlmHostileTest, LaterMinorVersionsAreRead) {
  std::string file = GoodFile();
  SetAt<uint16_t>(&file, 10, 9);
  const AlignedBytes bytes(WithPlmSection(file, "metadata", R"({"key": "v", "new_key": [1]})"));
  const auto parsed = PlmFile::Parse(bytes.span());
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->minor_version(), 9);
  EXPECT_EQ(parsed->metadata()["key"], "v");
}

TEST(PlmHostileTest, TruncatedAnywhere) {
  const std::string good = GoodFile();
  std::vector<size_t> cuts;
  for (size_t i = 0; i < 400; ++i) cuts.push_back(i);
  for (const auto& section : PlmSections(good)) {
    for (const uint64_t edge : {section.offset, section.offset + section.size}) {
      for (const size_t cut : {edge - 1, edge, edge + 1}) cuts.push_back(cut);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) cuts.push_back(random() % good.size());
  for (const size_t cut : cuts) {
    if (cut == good.size()) continue;
    // One byte too many is as wrong as one too few.
    const std::string file = cut < good.size() ? good.substr(0, cut) : good + "x";
    const Status status = ParseStatus(file);
    EXPECT_EQ(status.code(), StatusCode::kDataError) << cut << ": " << status.message();
    if (cut >= testing::PlmHeaderEnd(good)) {
      EXPECT_THAT(status.message(), HasSubstr("expected a file of " + std::to_string(good.size())));
    }
  }
}

// Which check covers a byte of a file.
enum class Cover { kChecksums, kVerify, kNone };

Cover CoverOf(const std::string& file, size_t at) {
  if (at < testing::PlmHeaderEnd(file)) return Cover::kChecksums;
  for (const auto& section : PlmSections(file)) {
    if (at < section.offset || at >= section.offset + section.size) continue;
    return section.name == "payload" ? Cover::kVerify : Cover::kChecksums;
  }
  return Cover::kNone;
}

TEST(PlmHostileTest, EveryFlippedByteIsSeen) {
  const std::string good = GoodFile();
  AlignedBytes bytes(good);
  auto* data = reinterpret_cast<char*>(const_cast<std::byte*>(bytes.span().data()));
  size_t seen = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const unsigned mask : {0x01u, 0x80u, 0xFFu}) {
      data[i] = static_cast<char>(static_cast<unsigned char>(good[i]) ^ mask);
      const auto file = PlmFile::Parse(bytes.span());
      switch (CoverOf(good, i)) {
        case Cover::kChecksums:
          EXPECT_FALSE(file.ok()) << i;
          ++seen;
          break;
        case Cover::kVerify:
          ASSERT_OK(file);
          EXPECT_EQ(file->Verify().code(), StatusCode::kDataError) << i;
          break;
        case Cover::kNone:
          EXPECT_OK(file);
          break;
      }
      data[i] = good[i];
    }
  }
  EXPECT_GT(seen, 1000u);
}

// With right checksums, so that the checks behind them are what stops a bad value.
TEST(PlmHostileTest, NoFlippedByteCrashesBehindTheChecksums) {
  const std::string good = GoodFile();
  size_t refused = 0;
  const auto try_file = [&](std::string file) {
    const AlignedBytes bytes(SealPlm(std::move(file)));
    const auto parsed = PlmFile::Parse(bytes.span());
    refused += !parsed.ok();
    if (!parsed.ok()) return;
    unsigned sum = 0;
    for (const TensorView& tensor : parsed->tensors()) {
      for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
    }
    volatile unsigned sink = sum;
    (void)sink;
  };
  for (size_t i = 16; i < good.size(); ++i) {
    if (CoverOf(good, i) != Cover::kChecksums) continue;
    for (const unsigned mask : {0x01u, 0x08u, 0x40u, 0x80u, 0xFFu}) {
      std::string file = good;
      file[i] = static_cast<char>(static_cast<unsigned char>(file[i]) ^ mask);
      try_file(std::move(file));
    }
  }
  EXPECT_GT(refused, 500u);
}

TEST(PlmHostileTest, VerifyNamesTheTensor) {
  std::string file = GoodFile();
  const size_t payload = PlmSection(file, "payload").offset;
  const auto verify = [](const std::string& content) {
    const AlignedBytes bytes(content);
    auto parsed = PlmFile::Parse(bytes.span());
    POCKETLM_CHECK(parsed.ok());
    return parsed->Verify();
  };
  file[payload + 64] ^= 1;
  EXPECT_THAT(verify(file).message(),
              HasSubstr("tensor 'matrix' is damaged: expected the checksum"));
  file[payload + 64] ^= 1;
  file[payload + 20] ^= 1;  // between the tensors
  EXPECT_THAT(verify(file).message(), HasSubstr("section payload is damaged"));
}

TEST(PlmHostileTest, SectionTable) {
  std::string file = GoodFile();
  SetAt<uint32_t>(&file, 12, 65);
  EXPECT_REFUSED(file, kDataError, "section count: expected at most 64, got 65");
  SetAt<uint32_t>(&file, 12, 0xFFFFFFFF);
  EXPECT_REFUSED(file, kDataError, "expected at most 64");
  const auto patch = [](std::string_view section, size_t field, uint64_t value) {
    std::string patched = GoodFile();
    SetAt<uint64_t>(&patched, PlmSection(patched, section).row + 16 + field, value);
    return SealPlm(std::move(patched));
  };
  EXPECT_REFUSED(patch("metadata", 0, uint64_t{1} << 40), kDataError, "does not lie in the file");
  EXPECT_REFUSED(patch("metadata", 8, UINT64_MAX), kDataError, "does not lie in the file");
  EXPECT_REFUSED(patch("metadata", 0, UINT64_MAX - 63), kDataError, "does not lie in the file");
  EXPECT_REFUSED(patch("metadata", 0, 0), kDataError, "overlaps");
  EXPECT_REFUSED(patch("metadata", 0, 16384), kDataError, "overlaps");
  EXPECT_REFUSED(patch("tokenizer", 0, PlmSection(file = GoodFile(), "tokenizer").offset + 1),
                 kDataError, "multiple of 64");
  EXPECT_REFUSED(patch("payload", 0, 8192), kDataError, "multiple of 16384");
  const auto rename = [](std::string_view section, std::string_view name) {
    std::string patched = GoodFile();
    std::string padded(name);
    padded.resize(kPlmSectionNameBytes, '\0');
    patched.replace(PlmSection(patched, section).row, kPlmSectionNameBytes, padded);
    return SealPlm(std::move(patched));
  };
  EXPECT_REFUSED(rename("tokenizer", "metadata"), kDataError, "section 'metadata': occurs twice");
  EXPECT_REFUSED(rename("metadata", "meta"), kDataError, "section 'metadata' is missing");
  EXPECT_REFUSED(rename("tensors", "x"), kDataError, "section 'tensors' is missing");
  EXPECT_REFUSED(rename("payload", "x"), kDataError, "section 'payload' is missing");
  EXPECT_REFUSED(rename("tokenizer", ""), kDataError, "expected a name");
  EXPECT_REFUSED(rename("tokenizer", "a b"), kDataError, "expected a name");
}

TEST(PlmHostileTest, Metadata) {
  EXPECT_REFUSED(WithPlmSection(GoodFile(), "metadata", "[1]"), kDataError,
                 "expected a JSON object");
  EXPECT_REFUSED(WithPlmSection(GoodFile(), "metadata", "{\"a\": "), kDataError,
                 "section 'metadata'");
  EXPECT_REFUSED(WithPlmSection(GoodFile(), "metadata", ""), kDataError, "section 'metadata'");
  EXPECT_REFUSED(WithPlmSection(GoodFile(), "metadata", std::string(100000, '[')), kDataError,
                 "section 'metadata'");
}

TEST(PlmHostileTest, TensorCounts) {
  for (const uint64_t count : {uint64_t{3}, uint64_t{1} << 40, UINT64_MAX})
    EXPECT_REFUSED(Patched<uint64_t>("tensors", 0, count), kDataError, "tensor");
  EXPECT_REFUSED(Patched<uint64_t>("tensors", 0, 1), kDataError, "bytes are left after the last");
  EXPECT_REFUSED(WithPlmSection(GoodFile(), "tensors", ""), kDataError, "tensor count");
}

TEST(PlmHostileTest, TensorFields) {
  const auto patch32 = [](size_t at, uint32_t value) {
    return Patched<uint32_t>("tensors", at, value);
  };
  EXPECT_REFUSED(patch32(kMatrix + kType, 99), kUnsupported, "'matrix': type 99 is not known");
  EXPECT_REFUSED(patch32(kMatrix + kType, kPlmI8), kDataError, "i8 with offset zero4");
  EXPECT_REFUSED(patch32(kMatrix + kOffsetType, 3), kUnsupported, "offset type 3");
  EXPECT_REFUSED(patch32(kMatrix + kOffsetType, 2), kDataError, "expected planes of");
  EXPECT_REFUSED(patch32(kMatrix + kGroupSize, 0), kDataError, "groups of 0");
  EXPECT_REFUSED(patch32(kMatrix + kGroupSize, 33), kDataError, "groups of 33");
  EXPECT_REFUSED(patch32(kMatrix + kGroupSize, 64), kDataError, "does not fit a matrix [9, 32]");
  EXPECT_REFUSED(patch32(kNorm + kGroupSize, 32), kDataError,
                 "expected offset type 0 and group size 0");
  EXPECT_REFUSED(patch32(kNorm + kType, kPlmU4), kDataError, "2 dimensions, got [3]");
  EXPECT_REFUSED(patch32(kNorm + kType, kPlmF16), kDataError, "expected 6 bytes, got 12");
  for (const uint32_t dims : {0u, 5u, 0xFFFFFFFFu})
    EXPECT_REFUSED(patch32(kNorm + kNumDims, dims), kDataError, "dimension count: expected 1 to 4");
  for (const uint32_t length : {0u, 256u, 0xFFFFFFFFu})
    EXPECT_REFUSED(patch32(kNorm + kNameBytes, length), kDataError, "expected 1 to 255 bytes");
}

TEST(PlmHostileTest, TensorPlaces) {
  const auto patch = [](size_t at, uint64_t value) {
    return Patched<uint64_t>("tensors", at, value);
  };
  EXPECT_REFUSED(patch(kMatrix + kOffset, 65), kDataError, "multiple of 64, got 65");
  EXPECT_REFUSED(patch(kMatrix + kOffset, 0), kDataError, "overlap the tensor before");
  EXPECT_REFUSED(patch(kMatrix + kOffset, uint64_t{1} << 20), kDataError,
                 "do not lie in the payload");
  EXPECT_REFUSED(patch(kMatrix + kOffset, UINT64_MAX - 63), kDataError,
                 "do not lie in the payload");
  EXPECT_REFUSED(patch(kMatrix + kSize, UINT64_MAX), kDataError, "do not lie in the payload");
  EXPECT_REFUSED(patch(kMatrix + kSize, 8), kDataError, "got 8");
  EXPECT_REFUSED(patch(kNorm + kShape, 0), kDataError, "expected at least 1");
  // Sizes that wrap when they are multiplied.
  for (const uint64_t rows : {UINT64_MAX, uint64_t{1} << 62, (uint64_t{1} << 61) + 2}) {
    EXPECT_REFUSED(patch(kNorm + kShape, rows), kDataError, "'norm'");
    EXPECT_REFUSED(patch(kMatrix + kShape, rows), kDataError, "'matrix'");
    EXPECT_REFUSED(patch(kMatrix + kShape + 8, rows / 32 * 32), kDataError, "'matrix'");
  }
}

TEST(PlmHostileTest, TensorNames) {
  const std::string good = GoodFile();
  const auto tensors = PlmSection(good, "tensors");
  std::string table = good.substr(tensors.offset, tensors.size);
  const std::string entry = table.substr(kNorm, kMatrix - kNorm);
  std::string twice = entry;
  SetAt<uint64_t>(&twice, kOffset, 64);
  ByteBuilder out;
  out.U64(2).Raw(entry).Raw(twice);
  EXPECT_REFUSED(WithPlmSection(good, "tensors", out.bytes()), kDataError, "'norm' occurs twice");
  table[kNorm + kShape + 8] = '\xFF';
  EXPECT_REFUSED(WithPlmSection(good, "tensors", table), kDataError, "no UTF-8");
}

TEST(PlmHostileTest, AddressMustBeAligned) {
  const AlignedBytes bytes("x" + GoodFile());
  EXPECT_EQ(PlmFile::Parse(bytes.span().subspan(1)).status().code(), StatusCode::kInvalidArgument);
}

TEST(PlmHostileTest, OpenNamesThePath) {
  const std::string path = JoinPath(testing::ScratchDir(), "bad.plm");
  testing::WriteFileOrDie(path, "nonsense, but long enough");
  EXPECT_THAT(PlmFile::Open(path).status().message(),
              HasSubstr("load " + path + ": plm: not a .plm"));
  EXPECT_EQ(PlmFile::Open(path + "x").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace pocketlm
