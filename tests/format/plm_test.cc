// .plm files: what the writer writes, the reader gives back, in every layout.
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

using testing::BytesOf;
using ::testing::HasSubstr;

std::string RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

std::string Text(const std::byte* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

std::string NewPath() { return JoinPath(testing::ScratchDir(), "model.plm"); }

PlmWriter NewWriter(const std::string& path) {
  auto writer = PlmWriter::Create(path);
  POCKETLM_CHECK(writer.ok());
  return std::move(writer).value();
}

std::vector<PackedLayout> AllLayouts() {
  std::vector<PackedLayout> out;
  for (const uint32_t group_size : {32u, 64u, 128u}) {
    for (const OffsetType offset : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16})
      out.push_back({PackedType::kU4, offset, group_size});
    out.push_back({PackedType::kI8, OffsetType::kNone, group_size});
  }
  return out;
}

struct Planes {
  std::string codes, scales, offsets;
  PackedPlaneBytes view() const { return {BytesOf(codes), BytesOf(scales), BytesOf(offsets)}; }
};

Planes RandomPlanes(const PackedLayout& layout, uint64_t rows, uint64_t cols) {
  const auto sizes = PlaneBytes(layout, rows, cols);
  POCKETLM_CHECK(sizes.has_value());
  return {RandomBytes(sizes->codes, 1), RandomBytes(sizes->scales, 2),
          RandomBytes(sizes->offsets, 3)};
}

bool IsAligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % 64 == 0; }

void ExpectPlanes(const TensorView& tensor, const PackedLayout& layout, const Planes& planes) {
  ASSERT_TRUE(tensor.packed.has_value());
  const PackedMatrix& matrix = *tensor.packed;
  EXPECT_EQ(matrix.layout, layout);
  EXPECT_EQ(std::vector<uint64_t>({matrix.rows, matrix.cols}), tensor.shape);
  EXPECT_TRUE(IsAligned(matrix.codes) && IsAligned(matrix.scales) && IsAligned(matrix.offsets));
  EXPECT_EQ(Text(matrix.codes, planes.codes.size()), planes.codes);
  EXPECT_EQ(Text(matrix.scales, planes.scales.size()), planes.scales);
  EXPECT_EQ(matrix.offsets == nullptr, planes.offsets.empty());
  if (matrix.offsets != nullptr) {
    EXPECT_EQ(Text(matrix.offsets, planes.offsets.size()), planes.offsets);
  }
  // All planes lie in the tensor's bytes, in order.
  EXPECT_EQ(matrix.codes, tensor.data.data());
  const std::byte* end = matrix.offsets != nullptr ? matrix.offsets + planes.offsets.size()
                                                   : matrix.scales + planes.scales.size();
  EXPECT_EQ(end, tensor.data.data() + tensor.data.size());
}

TEST(PlmTest, EveryPackedLayoutComesBack) {
  const std::string path = NewPath();
  PlmWriter writer = NewWriter(path);
  std::vector<std::pair<PackedLayout, Planes>> expected;
  for (const PackedLayout& layout : AllLayouts()) {
    for (const uint64_t rows : {1, 7, 8, 9, 40}) {
      for (const uint64_t groups : {1, 3}) {
        const uint64_t cols = groups * layout.group_size;
        const Planes planes = RandomPlanes(layout, rows, cols);
        const std::string name = "t" + std::to_string(expected.size());
        ASSERT_OK(writer.AddPacked(name, rows, cols, layout, planes.view()));
        expected.emplace_back(layout, planes);
      }
    }
  }
  ASSERT_OK(writer.Finish({{"a", 1}}));
  const auto file = PlmFile::Open(path);
  ASSERT_OK(file);
  ASSERT_EQ(file->tensors().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(file->tensors()[i].name, "t" + std::to_string(i));
    ExpectPlanes(file->tensors()[i], expected[i].first, expected[i].second);
  }
  EXPECT_OK(file->Verify());
}

TEST(PlmTest, PlainTensorsSectionsAndMetadataComeBack) {
  const std::string path = NewPath();
  PlmWriter writer = NewWriter(path);
  const std::string f32 = RandomBytes(3 * 4, 1), f16 = RandomBytes(2 * 5 * 2, 2),
                    bf16 = RandomBytes(2 * 3 * 1 * 2 * 2, 3);
  ASSERT_OK(writer.AddPlain("z.weight", DType::kF32, {3}, BytesOf(f32)));
  ASSERT_OK(writer.AddPlain("a.weight", DType::kF16, {2, 5}, BytesOf(f16)));
  ASSERT_OK(writer.AddPlain("权重", DType::kBF16, {2, 3, 1, 2}, BytesOf(bf16)));
  ASSERT_OK(writer.AddSection("notes", "some bytes"));
  ASSERT_OK(writer.AddSection("empty", ""));
  ASSERT_OK(writer.Finish({{"text", "你好"}, {"list", {1, 2}}}));

  auto opened = PlmFile::Open(path);
  ASSERT_OK(opened);
  const TensorView* before = opened->FindTensor("a.weight");
  const PlmFile file = std::move(opened).value();
  EXPECT_EQ(file.FindTensor("a.weight"), before) << "moving keeps views";
  EXPECT_EQ(file.major_version(), 1);
  EXPECT_EQ(file.file_size_bytes(), testing::ReadFileOrDie(path).size());
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "z.weight") << "file order";
  const struct {
    const char* name;
    DType type;
    std::vector<uint64_t> shape;
    std::string data;
  } expected[] = {{"z.weight", DType::kF32, {3}, f32},
                  {"a.weight", DType::kF16, {2, 5}, f16},
                  {"权重", DType::kBF16, {2, 3, 1, 2}, bf16}};
  for (const auto& e : expected) {
    const TensorView* tensor = file.FindTensor(e.name);
    ASSERT_NE(tensor, nullptr) << e.name;
    EXPECT_EQ(tensor->type, e.type);
    EXPECT_EQ(tensor->shape, e.shape);
    EXPECT_FALSE(tensor->packed.has_value());
    EXPECT_EQ(Text(tensor->data.data(), tensor->data.size()), e.data);
    EXPECT_TRUE(IsAligned(tensor->data.data()));
  }
  EXPECT_EQ(file.FindTensor("b"), nullptr);
  EXPECT_EQ(file.FindTensor(""), nullptr);
  const auto notes = file.FindSection("notes");
  ASSERT_TRUE(notes.has_value());
  EXPECT_EQ(Text(notes->data(), notes->size()), "some bytes");
  EXPECT_TRUE(file.FindSection("empty").has_value());
  EXPECT_FALSE(file.FindSection("note").has_value());
  EXPECT_EQ(file.metadata(), nlohmann::json({{"text", "你好"}, {"list", {1, 2}}}));
  EXPECT_OK(file.Verify());
  file.PrefetchPayload();
}

TEST(PlmTest, PayloadBeginsAndEndsOnPages) {
  const std::string path = NewPath();
  PlmWriter writer = NewWriter(path);
  ASSERT_OK(writer.AddPlain("t", DType::kF32, {1}, BytesOf("abcd")));
  EXPECT_EQ(writer.payload_bytes(), 4u);
  ASSERT_OK(writer.Finish(nlohmann::ordered_json::object()));
  const auto payload = testing::PlmSection(testing::ReadFileOrDie(path), "payload");
  EXPECT_EQ(payload.offset % 16384, 0u);
  EXPECT_EQ(payload.size % 16384, 0u);
}

TEST(PlmTest, FileWithoutTensors) {
  const std::string path = NewPath();
  ASSERT_OK(NewWriter(path).Finish(nlohmann::ordered_json::object()));
  const auto file = PlmFile::Open(path);
  ASSERT_OK(file);
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_OK(file->Verify());
}

TEST(PlmTest, SameInputGivesSameBytes) {
  std::string files[2];
  for (std::string& content : files) {
    const std::string path = NewPath();
    PlmWriter writer = NewWriter(path);
    const PackedLayout layout{PackedType::kU4, OffsetType::kZero4, 32};
    ASSERT_OK(writer.AddPacked("m", 9, 32, layout, RandomPlanes(layout, 9, 32).view()));
    ASSERT_OK(writer.Finish({{"b", 1}, {"a", 2}}));
    content = testing::ReadFileOrDie(path);
  }
  EXPECT_EQ(files[0], files[1]);
}

#define EXPECT_INVALID(expr, text)                                                \
  do {                                                                            \
    const Status status_ = (expr);                                                \
    EXPECT_EQ(status_.code(), StatusCode::kInvalidArgument) << status_.message(); \
    EXPECT_THAT(status_.message(), HasSubstr(text));                              \
  } while (false)

TEST(PlmTest, WriterRefusesWhatReaderWould) {
  const std::string path = NewPath();
  PlmWriter writer = NewWriter(path);
  ASSERT_OK(writer.AddPlain("t", DType::kF32, {1}, BytesOf("abcd")));
  EXPECT_INVALID(writer.AddPlain("t", DType::kF32, {1}, BytesOf("abcd")), "'t' was added before");
  EXPECT_INVALID(writer.AddPlain("", DType::kF32, {1}, BytesOf("abcd")), "1 to 255 bytes");
  EXPECT_INVALID(writer.AddPlain(std::string(256, 'n'), DType::kF32, {1}, BytesOf("abcd")),
                 "1 to 255 bytes");
  EXPECT_INVALID(writer.AddPlain("\xFF", DType::kF32, {1}, BytesOf("abcd")), "UTF-8");
  EXPECT_INVALID(writer.AddPlain("q", DType::kQ8_0, {32}, BytesOf(std::string(34, 'a'))),
                 "expected F32, F16 or BF16, got Q8_0");
  EXPECT_INVALID(writer.AddPlain("u", DType::kF32, {2}, BytesOf("abcd")),
                 "expected 8 bytes, got 4");
  EXPECT_INVALID(writer.AddPlain("u", DType::kF32, {}, BytesOf("abcd")), "got []");
  EXPECT_INVALID(writer.AddPlain("u", DType::kF32, {0}, {}), "got [0]");
  EXPECT_INVALID(writer.AddPlain("u", DType::kF32, {1, 1, 1, 1, 1}, BytesOf("abcd")),
                 "1 to 4 dimensions");
  EXPECT_INVALID(writer.AddPlain("u", DType::kF32, {uint64_t{1} << 62}, {}), "1 to 4 dimensions");
  EXPECT_INVALID(writer.AddSection("payload", ""), "'payload'");
  EXPECT_INVALID(writer.AddSection("Upper", ""), "'Upper'");
  EXPECT_INVALID(writer.AddSection("seventeen_letters", ""), "1 to 16");
  ASSERT_OK(writer.AddSection("x", ""));
  EXPECT_INVALID(writer.AddSection("x", ""), "'x' was added before");
  for (int i = 0; i < 60; ++i) ASSERT_OK(writer.AddSection("s" + std::to_string(i), ""));
  EXPECT_INVALID(writer.AddSection("one_more", ""), "no more than 61");
  EXPECT_INVALID(writer.Finish(nlohmann::ordered_json::array()), "expected a JSON object");
  EXPECT_INVALID(writer.Finish({{"a", "\xFF"}}), "valid UTF-8");
  ASSERT_OK(writer.Finish({{"a", 1}}));
  EXPECT_OK(PlmFile::Open(path));
}

TEST(PlmTest, WriterChecksPlanes) {
  PlmWriter writer = NewWriter(NewPath());
  const PackedLayout layout{PackedType::kU4, OffsetType::kZero4, 64};
  const Planes good = RandomPlanes(layout, 8, 64);
  EXPECT_INVALID(writer.AddPacked("m", 8, 63, layout, good.view()), "[8, 63]");
  EXPECT_INVALID(
      writer.AddPacked("m", 8, 64, {PackedType::kU4, OffsetType::kNone, 16}, good.view()),
      "groups of 16");
  EXPECT_INVALID(
      writer.AddPacked("m", 8, 64, {PackedType::kI8, OffsetType::kZero4, 64}, good.view()),
      "i8 zero4");
  for (std::string Planes::*plane : {&Planes::codes, &Planes::scales, &Planes::offsets}) {
    Planes bad = good;
    (bad.*plane) += 'x';
    EXPECT_INVALID(writer.AddPacked("m", 8, 64, layout, bad.view()), "expected");
  }
  EXPECT_OK(writer.AddPacked("m", 8, 64, layout, good.view()));
}

TEST(PlmTest, UnfinishedFileNeverAppears) {
  const std::string folder = testing::ScratchDir();
  const std::string path = JoinPath(folder, "model.plm");
  testing::WriteFileOrDie(path, "what was there before");
  {
    PlmWriter writer = NewWriter(path);
    ASSERT_OK(writer.AddPlain("t", DType::kF32, {1}, BytesOf("abcd")));
    EXPECT_EQ(testing::ReadFileOrDie(path), "what was there before");
  }
  EXPECT_EQ(testing::ReadFileOrDie(path), "what was there before");
  ASSERT_OK(NewWriter(path).Finish(nlohmann::ordered_json::object()));
  EXPECT_OK(PlmFile::Open(path));
  EXPECT_EQ(PlmWriter::Create(JoinPath(folder, "missing/model.plm")).status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace pocketlm
