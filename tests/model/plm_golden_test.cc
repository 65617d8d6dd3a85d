// A file of every version of the .plm format is kept in tests/goldens/plm and must stay readable.
//
// POCKETLM_UPDATE_GOLDENS=1 writes the file of the current version anew; those of older versions are never
// written again. The contents follow from formulas below, so that nothing but the file is kept.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "model/model_source.h"
#include "model/plm_metadata.h"
#include "model/weights.h"
#include "support/plm_files.h"
#include "support/test_support.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {
namespace {

using testing::BytesOf;

constexpr uint32_t kHidden = 64, kIntermediate = 128, kHeads = 2, kHeadDim = 32, kKvHeads = 1;

std::string GoldenPath() {
  return JoinPath(testing::SourceDir(), "tests/goldens/plm/version_1_0.plm");
}

// Byte-level vocabulary: 256 bytes, two merges, the control tokens of ChatML.
TokenizerSpec GoldenTokenizer() {
  TokenizerSpec spec;
  spec.splitter = Splitter::kQwen2;
  spec.nfc = true;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    AppendByteCharacter(static_cast<unsigned char>(b), &piece);
    spec.tokens.push_back(piece);
  }
  for (const char* piece : {"he", "hel", "<|im_start|>", "<|im_end|>"})
    spec.tokens.push_back(piece);
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  spec.types[258] = spec.types[259] = TokenType::kControl;
  spec.merges = {"h e", "he l"};
  spec.eos_id = 259;
  return spec;
}

PlmDescription GoldenDescription() {
  PlmDescription out;
  ModelConfig& c = out.config;
  c.architecture = Architecture::kQwen3;
  c.vocab_size = 264;
  c.hidden_size = kHidden;
  c.intermediate_size = kIntermediate;
  c.num_hidden_layers = 1;
  c.num_attention_heads = kHeads;
  c.num_key_value_heads = kKvHeads;
  c.head_dim = kHeadDim;
  c.max_position_embeddings = 512;
  c.rope_theta = 1e6f;
  c.tie_word_embeddings = true;
  c.attention_scale = 0.17677669f;
  c.has_qk_norm = true;
  out.tokenizer = GoldenTokenizer();
  out.chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  out.end_tokens = {259};
  out.quantization = {{"method", "formula"}};
  out.provenance = {{"made_by", "tests/model/plm_golden_test.cc"}};
  out.license = "CC0-1.0";
  return out;
}

// 32 bits that depend on all of their arguments.
uint32_t Mix(size_t tensor, size_t plane, size_t i) {
  uint64_t h = (tensor * 8 + plane + 1) * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
  h ^= h >> 31;
  h *= 0x94D049BB133111EBu;
  return static_cast<uint32_t>(h >> 32);
}

void AppendHalf(uint16_t half, std::string* out) {
  out->push_back(static_cast<char>(half & 0xFF));
  out->push_back(static_cast<char>(half >> 8));
}

struct GoldenTensor {
  std::string name;
  std::vector<uint64_t> shape;
  DType type = DType::kF32;
  std::optional<PackedLayout> layout;
  std::string planes[3];  // of a plain tensor only the first
};

// Codes are any bits (i8 without -128); scales are halves of about 0.01, offsets of about -0.08.
void FillPacked(size_t index, GoldenTensor* t) {
  const auto sizes = PlaneBytes(*t->layout, t->shape[0], t->shape[1]);
  POCKETLM_CHECK(sizes.has_value());
  for (size_t i = 0; i < sizes->codes; ++i) {
    const auto code = static_cast<uint8_t>(Mix(index, 0, i));
    t->planes[0].push_back(
        static_cast<char>(t->layout->type == PackedType::kI8 && code == 0x80 ? 0 : code));
  }
  for (size_t i = 0; i < sizes->scales / 2; ++i)
    AppendHalf(static_cast<uint16_t>(0x2000 | (Mix(index, 1, i) & 0x3FF)), &t->planes[1]);
  if (t->layout->offset == OffsetType::kZero4) {
    for (size_t i = 0; i < sizes->offsets; ++i)
      t->planes[2].push_back(static_cast<char>(Mix(index, 2, i)));
  } else {
    for (size_t i = 0; i < sizes->offsets / 2; ++i)
      AppendHalf(static_cast<uint16_t>(0xAC00 | (Mix(index, 2, i) & 0x3FF)), &t->planes[2]);
  }
}

void FillPlain(size_t index, GoldenTensor* t) {
  size_t values = 1;
  for (const uint64_t d : t->shape) values *= static_cast<size_t>(d);
  for (size_t i = 0; i < values; ++i) {
    const uint32_t random = Mix(index, 0, i);
    if (t->type == DType::kF32) {
      const float value = 1.0f + static_cast<float>(random % 256) / 1024.0f;
      t->planes[0].append(reinterpret_cast<const char*>(&value), sizeof(value));
    } else {  // small numbers of either sign, as F16 or BF16
      const uint16_t base = t->type == DType::kF16 ? 0x2000 : 0x3C00;
      AppendHalf(static_cast<uint16_t>(base | (random & 0x7F) | (random >> 16 & 0x8000)),
                 &t->planes[0]);
    }
  }
}

// Every type and layout of the version occurs.
std::vector<GoldenTensor> GoldenTensors() {
  const PackedLayout zero4{PackedType::kU4, OffsetType::kZero4, 64};
  const PackedLayout min_f16{PackedType::kU4, OffsetType::kMinF16, 32};
  const PackedLayout none{PackedType::kU4, OffsetType::kNone, 64};
  const PackedLayout wide{PackedType::kU4, OffsetType::kZero4, 128};
  const PackedLayout i8{PackedType::kI8, OffsetType::kNone, 64};
  std::vector<GoldenTensor> out = {
      {"embed_tokens.weight", {264, kHidden}, DType::kF32, i8, {}},
      {"norm.weight", {kHidden}, DType::kF32, {}, {}},
      {"layers.0.input_layernorm.weight", {kHidden}, DType::kF32, {}, {}},
      {"layers.0.post_attention_layernorm.weight", {kHidden}, DType::kF32, {}, {}},
      {"layers.0.self_attn.q_norm.weight", {kHeadDim}, DType::kF32, {}, {}},
      {"layers.0.self_attn.k_norm.weight", {kHeadDim}, DType::kF32, {}, {}},
      {"layers.0.self_attn.q_proj.weight", {kHeads * kHeadDim, kHidden}, DType::kF32, zero4, {}},
      {"layers.0.self_attn.k_proj.weight",
       {kKvHeads * kHeadDim, kHidden},
       DType::kF32,
       min_f16,
       {}},
      {"layers.0.self_attn.v_proj.weight", {kKvHeads * kHeadDim, kHidden}, DType::kF16, {}, {}},
      {"layers.0.self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}, DType::kF32, none, {}},
      {"layers.0.mlp.gate_proj.weight", {kIntermediate, kHidden}, DType::kF32, zero4, {}},
      {"layers.0.mlp.up_proj.weight", {kIntermediate, kHidden}, DType::kBF16, {}, {}},
      {"layers.0.mlp.down_proj.weight", {kHidden, kIntermediate}, DType::kF32, wide, {}},
  };
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].layout) {
      FillPacked(i, &out[i]);
    } else {
      FillPlain(i, &out[i]);
    }
  }
  return out;
}

Status WriteGolden(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(PlmWriter writer, PlmWriter::Create(path));
  for (const GoldenTensor& t : GoldenTensors()) {
    POCKETLM_RETURN_IF_ERROR(
        t.layout
            ? writer.AddPacked(t.name, t.shape[0], t.shape[1], *t.layout,
                               {BytesOf(t.planes[0]), BytesOf(t.planes[1]), BytesOf(t.planes[2])})
            : writer.AddPlain(t.name, t.type, t.shape, BytesOf(t.planes[0])));
  }
  return FinishPlm(GoldenDescription(), &writer);
}

std::string Text(const std::byte* data, size_t size) {
  return data == nullptr ? "" : std::string(reinterpret_cast<const char*>(data), size);
}

class PlmGoldenTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (std::getenv("POCKETLM_UPDATE_GOLDENS") != nullptr) ASSERT_OK(WriteGolden(GoldenPath()));
  }
};

TEST_F(PlmGoldenTest, Version10IsStillRead) {
  const auto source = OpenModelSource(GoldenPath());
  ASSERT_OK(source);
  const PlmFile& file = *source->plm;
  EXPECT_EQ(file.major_version(), 1);
  EXPECT_EQ(file.minor_version(), 0);
  EXPECT_OK(file.Verify());
  const std::vector<GoldenTensor> expected = GoldenTensors();
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (const GoldenTensor& t : expected) {
    SCOPED_TRACE(t.name);
    const TensorView* tensor = file.FindTensor(t.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, t.shape);
    ASSERT_EQ(tensor->packed.has_value(), t.layout.has_value());
    if (t.layout) {
      EXPECT_EQ(tensor->packed->layout, *t.layout);
      EXPECT_EQ(Text(tensor->packed->codes, t.planes[0].size()), t.planes[0]);
      EXPECT_EQ(Text(tensor->packed->scales, t.planes[1].size()), t.planes[1]);
      EXPECT_EQ(Text(tensor->packed->offsets, t.planes[2].size()), t.planes[2]);
    } else {
      EXPECT_EQ(tensor->type, t.type);
      EXPECT_EQ(Text(tensor->data.data(), tensor->data.size()), t.planes[0]);
    }
  }
}

TEST_F(PlmGoldenTest, Version10DescribesTheSameModel) {
  const auto file = PlmFile::Open(GoldenPath());
  ASSERT_OK(file);
  const auto description = ReadPlmDescription(*file);
  ASSERT_OK(description);
  const PlmDescription expected = GoldenDescription();
  EXPECT_EQ(ConfigToPlmJson(description->config), ConfigToPlmJson(expected.config));
  EXPECT_EQ(description->chat_template, expected.chat_template);
  EXPECT_EQ(description->end_tokens, expected.end_tokens);
  EXPECT_EQ(description->quantization, expected.quantization);
  EXPECT_EQ(description->provenance, expected.provenance);
  EXPECT_EQ(description->license, expected.license);
  const auto tokenizer = Tokenizer::Create(description->tokenizer);
  ASSERT_OK(tokenizer);
  const Tokenizer::EncodeOptions special{.parse_special = true};
  EXPECT_EQ((*tokenizer)->Encode("hello<|im_end|>", special),
            std::vector<int32_t>({257, 'l', 'o', 259}));
}

TEST_F(PlmGoldenTest, Version10HasAllWeights) {
  const auto source = OpenModelSource(GoldenPath());
  ASSERT_OK(source);
  const auto weights = CollectWeights(
      source->config,
      [&](const std::string& hf, const std::string& gguf) { return source->Find(hf, gguf); });
  ASSERT_OK(weights);
  EXPECT_TRUE(weights->lm_head.packed.has_value());
  EXPECT_EQ(weights->lm_head.packed->codes, weights->embed_tokens.packed->codes) << "stored once";
  EXPECT_EQ(weights->layers[0].down_proj.packed->layout.group_size, 128u);
  EXPECT_EQ(weights->layers[0].v_proj.type, DType::kF16);
}

// The file of the current version is what the program writes today: the format did not drift unnoticed.
TEST_F(PlmGoldenTest, CurrentVersionIsWrittenByteForByte) {
  const std::string path = JoinPath(testing::ScratchDir(), "now.plm");
  ASSERT_OK(WriteGolden(path));
  EXPECT_TRUE(testing::ReadFileOrDie(path) == testing::ReadFileOrDie(GoldenPath()))
      << "POCKETLM_UPDATE_GOLDENS=1 writes it anew; a changed format needs a new version";
}

}  // namespace
}  // namespace pocketlm
