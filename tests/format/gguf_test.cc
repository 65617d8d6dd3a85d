// GGUF files that are right: goldens of the gguf Python package, files of our writer, real models.
#include "format/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/byte_builder.h"
#include "support/gguf_writer.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using testing::AlignedBytes;
using ::testing::ElementsAre;
using testing::GgufWriter;

std::string Golden(const std::string& name) {
  return testing::SourceDir() + "/tests/format/goldens/" + name;
}

template <typename T>
std::vector<T> Values(const TensorView& tensor) {
  std::vector<T> out(tensor.data.size() / sizeof(T));
  std::memcpy(out.data(), tensor.data.data(), out.size() * sizeof(T));
  return out;
}

std::vector<std::string> Strings(const GgufArray& array) {
  std::vector<std::string> out;
  for (std::string_view text : array.strings()) out.emplace_back(text);
  return out;
}

TEST(GgufTest, GoldenMetadataOfEveryType) {
  auto file = GgufFile::Open(Golden("metadata.gguf"));
  ASSERT_OK(file);
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 64u);
  EXPECT_EQ(*file->GetUint("v.u8"), 200u);
  EXPECT_EQ(*file->GetInt("v.i8"), -100);
  EXPECT_EQ(*file->GetUint("v.u16"), 60000u);
  EXPECT_EQ(*file->GetInt("v.i16"), -30000);
  EXPECT_EQ(*file->GetUint("v.u32"), 4000000000u);
  EXPECT_EQ(*file->GetInt("v.i32"), -2000000000);
  EXPECT_EQ(*file->GetUint("v.u64"), UINT64_MAX);
  EXPECT_EQ(*file->GetInt("v.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(*file->GetFloat("v.f32"), static_cast<double>(0.1f));
  EXPECT_EQ(*file->GetFloat("v.f64"), 0.1);
  EXPECT_EQ(*file->GetBool("v.true"), true);
  EXPECT_EQ(*file->GetBool("v.false"), false);
  EXPECT_EQ(*file->GetString("v.string"), "Grüße, 世界 🦙");
  EXPECT_EQ(*file->GetString("general.architecture"), "golden");
  EXPECT_EQ(file->num_keys(), 20u);
  EXPECT_EQ(file->key(0), "general.architecture");
  EXPECT_EQ(file->key(2), "v.u8");
}

TEST(GgufTest, GoldenArrays) {
  auto file = GgufFile::Open(Golden("metadata.gguf"));
  ASSERT_OK(file);
  auto strings = file->GetArray("a.strings");
  ASSERT_OK(strings);
  EXPECT_EQ(strings->size(), 4u);
  EXPECT_THAT(Strings(*strings), ElementsAre("a", "Ġb", "中文", std::string(300, 'd')));
  auto floats = file->GetArray("a.floats");
  ASSERT_OK(floats);
  EXPECT_EQ(floats->Float(0), 0.5);
  EXPECT_EQ(floats->Float(1), -1.25);
  EXPECT_EQ(floats->Float(2), 3e8);
  EXPECT_EQ(floats->Float(3), std::nullopt);
  EXPECT_EQ(floats->Int(0), std::nullopt);
  auto ints = file->GetArray("a.ints");
  ASSERT_OK(ints);
  EXPECT_EQ(ints->element_type(), GgufType::kInt32);
  EXPECT_EQ(ints->Int(1), -2);
  EXPECT_EQ(ints->Float(2), 3.0);
  auto bools = file->GetArray("a.bools");
  ASSERT_OK(bools);
  EXPECT_EQ(bools->Bool(0), true);
  EXPECT_EQ(bools->Bool(1), false);
  EXPECT_EQ(bools->Bool(3), std::nullopt);
  EXPECT_EQ(Strings(*bools).size(), 0u);
}

TEST(GgufTest, GoldenTensorsAreRowMajor) {
  auto file = GgufFile::Open(Golden("metadata.gguf"));
  ASSERT_OK(file);
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorView& first = file->tensors()[0];
  EXPECT_EQ(first.name, "first");
  EXPECT_THAT(first.shape, ElementsAre(2, 3));
  EXPECT_THAT(Values<float>(first), ElementsAre(0, 1, 2, 3, 4, 5));
  const TensorView* second = file->FindTensor("second");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->type, DType::kF16);
  EXPECT_THAT(second->shape, ElementsAre(2, 3, 4));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second->data.data()) % 64, 0u);
  EXPECT_EQ(file->FindTensor("third"), nullptr);
  EXPECT_EQ(file->GetTensor("third").status().code(), StatusCode::kNotFound);
}

TEST(GgufTest, GoldenQuantsHaveAllTypes) {
  auto file = GgufFile::Open(Golden("quants.gguf"));
  ASSERT_OK(file);
  EXPECT_EQ(file->tensors().size(), 22u);
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const TensorView* stored = file->FindTensor(std::string("t.") + GetDTypeInfo(type).name);
    const TensorView* expected = file->FindTensor(std::string("f.") + GetDTypeInfo(type).name);
    ASSERT_NE(stored, nullptr) << GetDTypeInfo(type).name;
    ASSERT_NE(expected, nullptr);
    EXPECT_EQ(stored->type, type);
    EXPECT_THAT(stored->shape, ElementsAre(4, 512));
    EXPECT_EQ(stored->data.size(), 4 * *RowBytes(type, 512));
    EXPECT_EQ(expected->type, DType::kF32);
    for (float value : Values<float>(*expected)) ASSERT_TRUE(std::isfinite(value));
  }
  // F32 is stored as it is, so the two tensors agree bit for bit.
  EXPECT_EQ(Values<float>(*file->FindTensor("t.F32")), Values<float>(*file->FindTensor("f.F32")));
}

TEST(GgufTest, GettersTellMissingFromWrong) {
  const AlignedBytes bytes(GgufWriter()
                               .Add<int32_t>("minus", -3)
                               .Add<uint64_t>("huge", UINT64_MAX)
                               .AddString("text", "7")
                               .Add("yes", true)
                               .Add<uint32_t>("ten", 10)
                               .Build());
  auto file = GgufFile::Parse(bytes.span());
  ASSERT_OK(file);
  EXPECT_EQ(file->GetUint("absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*file->GetUintOr("absent", 5), 5u);
  EXPECT_EQ(*file->GetUintOr("ten", 5), 10u);
  EXPECT_EQ(*file->GetFloatOr("ten", 5), 10.0);
  EXPECT_EQ(*file->GetFloat("minus"), -3.0);
  EXPECT_EQ(file->GetUint("minus").status().code(), StatusCode::kDataError);
  EXPECT_EQ(file->GetInt("huge").status().code(), StatusCode::kDataError);
  EXPECT_EQ(file->GetUintOr("text", 5).status().code(), StatusCode::kDataError);
  EXPECT_EQ(file->GetBool("ten").status().code(), StatusCode::kDataError);
  EXPECT_EQ(file->GetInt("yes").status().code(), StatusCode::kDataError);
  EXPECT_EQ(file->GetString("ten").status().message(), "gguf: key 'ten': expected string, got u32");
  EXPECT_EQ(file->GetArray("ten").status().code(), StatusCode::kDataError);
  EXPECT_EQ(*file->GetStringOr("absent", "x"), "x");
  EXPECT_EQ(*file->GetBoolOr("yes", false), true);
  EXPECT_EQ(*file->GetIntOr("minus", 1), -3);
  EXPECT_EQ(file->TypeOf("yes"), GgufType::kBool);
  EXPECT_EQ(file->TypeOf("absent"), std::nullopt);
  EXPECT_TRUE(file->HasKey("huge"));
}

TEST(GgufTest, Version2AndMoveKeepViews) {
  const AlignedBytes bytes(
      GgufWriter(2).AddFloats("x", {2}, {1.5f, -2}).AddFloats("s", {}, {9}).Build());
  auto parsed = GgufFile::Parse(bytes.span());
  ASSERT_OK(parsed);
  const TensorView* before = parsed->FindTensor("x");
  GgufFile file = std::move(*parsed);
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.FindTensor("x"), before);
  EXPECT_THAT(Values<float>(*before), ElementsAre(1.5f, -2.0f));
  EXPECT_TRUE(file.FindTensor("s")->shape.empty());
}

TEST(GgufTest, FS_D1_OpensInFolderWithNonAsciiName) {
  const std::string folder = testing::ScratchDir() + "/Modèle_試験_Ключ";
  ASSERT_EQ(::system(("mkdir '" + folder + "'").c_str()), 0);
  testing::WriteFileOrDie(folder + "/größe.gguf", GgufWriter().AddFloats("x", {1}, {4}).Build());
  auto file = GgufFile::Open(folder + "/größe.gguf");
  ASSERT_OK(file);
  EXPECT_THAT(Values<float>(*file->FindTensor("x")), ElementsAre(4.0f));
}

std::map<std::string, int> CountTypes(const GgufFile& file) {
  std::map<std::string, int> counts;
  for (const TensorView& tensor : file.tensors()) ++counts[GetDTypeInfo(tensor.type).name];
  return counts;
}

// Counts and values below are those that gguf.GGUFReader of the Python package reports.
TEST(GgufTest, RealSmolLM2) {
  POCKETLM_REQUIRE_MODEL(path, "smollm2-135m");
  auto file = GgufFile::Open(path);
  ASSERT_OK(file);
  EXPECT_EQ(CountTypes(*file),
            (std::map<std::string, int>{{"F32", 61}, {"Q4_1", 210}, {"Q8_0", 1}}));
  EXPECT_EQ(file->num_keys(), 33u);
  EXPECT_EQ(*file->GetString("general.architecture"), "llama");
  EXPECT_EQ(*file->GetUint("llama.block_count"), 30u);
  EXPECT_EQ(*file->GetFloat("llama.rope.freq_base"), 100000.0);
  EXPECT_EQ(*file->GetBool("tokenizer.ggml.add_bos_token"), false);
  const auto tokens = Strings(*file->GetArray("tokenizer.ggml.tokens"));
  ASSERT_EQ(tokens.size(), 49152u);
  EXPECT_EQ(tokens[1], "<|im_start|>");
  EXPECT_EQ(file->GetArray("tokenizer.ggml.merges")->size(), 48900u);
  EXPECT_THAT(file->FindTensor("token_embd.weight")->shape, ElementsAre(49152, 576));
  EXPECT_THAT(file->FindTensor("blk.0.ffn_down.weight")->shape, ElementsAre(576, 1536));
}

TEST(GgufTest, RealGemma3) {
  POCKETLM_REQUIRE_MODEL(path, "gemma3-270m");
  auto file = GgufFile::Open(path);
  ASSERT_OK(file);
  EXPECT_EQ(CountTypes(*file),
            (std::map<std::string, int>{
                {"F32", 109}, {"Q5_0", 81}, {"Q4_K", 27}, {"Q8_0", 10}, {"Q6_K", 9}}));
  EXPECT_EQ(*file->GetUint("gemma3.attention.sliding_window"), 512u);
  EXPECT_EQ(Strings(*file->GetArray("tokenizer.ggml.tokens")).size(), 262144u);
  EXPECT_EQ(file->GetArray("tokenizer.ggml.scores")->element_type(), GgufType::kFloat32);
  EXPECT_THAT(file->FindTensor("token_embd.weight")->shape, ElementsAre(262144, 640));
}

}  // namespace
}  // namespace pocketlm
