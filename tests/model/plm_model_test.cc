// What a .plm file says about a model: configuration, tokenizer and template come back as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "model/model_source.h"
#include "model/plm_metadata.h"
#include "model/weights.h"
#include "support/byte_builder.h"
#include "support/plm_files.h"
#include "support/tiny_models.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::BytesOf;
using ::testing::HasSubstr;

// Equality of every field, floats by their bits.
void ExpectSameConfig(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_key_value_heads, b.num_key_value_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope_local_base_freq, b.rope_local_base_freq);
  EXPECT_EQ(a.rope_scaling.type, b.rope_scaling.type);
  EXPECT_EQ(a.rope_scaling.factor, b.rope_scaling.factor);
  EXPECT_EQ(a.rope_scaling.low_freq_factor, b.rope_scaling.low_freq_factor);
  EXPECT_EQ(a.rope_scaling.high_freq_factor, b.rope_scaling.high_freq_factor);
  EXPECT_EQ(a.rope_scaling.original_max_position_embeddings,
            b.rope_scaling.original_max_position_embeddings);
  EXPECT_EQ(a.rope_layout, b.rope_layout);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.sliding_layers, b.sliding_layers);
  EXPECT_EQ(a.hidden_activation, b.hidden_activation);
  EXPECT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_EQ(a.attention_scale, b.attention_scale);
  EXPECT_EQ(a.has_qk_norm, b.has_qk_norm);
  EXPECT_EQ(a.has_post_norms, b.has_post_norms);
  EXPECT_EQ(a.norm_weights_minus_one, b.norm_weights_minus_one);
}

Result<ModelConfig> ThroughText(const ModelConfig& config) {
  auto parsed = ParseJson(ConfigToPlmJson(config).dump());
  POCKETLM_CHECK(parsed.ok());
  return ConfigFromPlmJson(*parsed);
}

TEST(PlmConfigTest, EveryTinyModelComesBack) {
  for (const std::string& name : testing::TinyModelNames()) {
    for (const std::string& path : testing::TinyModelForms(name)) {
      SCOPED_TRACE(path);
      const auto source = OpenModelSource(path);
      ASSERT_OK(source);
      const auto back = ThroughText(source->config);
      ASSERT_OK(back);
      ExpectSameConfig(source->config, *back);
    }
  }
}

ModelConfig OddConfig(Architecture architecture) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab_size = 300;
  c.hidden_size = 66;
  c.intermediate_size = 70;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 14;
  c.max_position_embeddings = 1000;
  c.rms_norm_eps = std::nextafter(1e-5f, 1.0f);  // a float that no short decimal gives
  c.rope_theta = 123456.78f;
  c.rope_local_base_freq = 54321.125f;
  c.rope_layout = RopeLayout::kInterleaved;
  c.embedding_scale = std::sqrt(66.0f);
  c.attention_scale = 1.0f / std::sqrt(3.0f);
  c.has_qk_norm = architecture != Architecture::kQwen3;
  c.has_post_norms = architecture != Architecture::kGemma3;
  c.norm_weights_minus_one = architecture != Architecture::kGemma3;
  c.tie_word_embeddings = architecture != Architecture::kGemma3;
  c.hidden_activation = Activation::kGeluTanh;
  return c;
}

// Every field away from what its architecture implies.
TEST(PlmConfigTest, OddValuesComeBackBitForBit) {
  for (const auto architecture :
       {Architecture::kQwen3, Architecture::kLlama, Architecture::kGemma3}) {
    SCOPED_TRACE(ArchitectureName(architecture));
    ModelConfig config = OddConfig(architecture);
    auto back = ThroughText(config);
    ASSERT_OK(back);
    ExpectSameConfig(config, *back);
    config.hidden_activation = Activation::kSilu;
    config.rope_scaling = {RopeScaling::Type::kLinear, 4.3f, 1.0f, 4.0f, 8192};
    back = ThroughText(config);
    ASSERT_OK(back);
    ExpectSameConfig(config, *back);
    config.rope_scaling = {RopeScaling::Type::kLlama3, 32.1f, 1.1f, 4.2f, 777};
    back = ThroughText(config);
    ASSERT_OK(back);
    ExpectSameConfig(config, *back);
  }
  ModelConfig sliding = OddConfig(Architecture::kGemma3);
  sliding.sliding_window = 17;
  sliding.sliding_layers = {false, true, true};
  const auto back = ThroughText(sliding);
  ASSERT_OK(back);
  ExpectSameConfig(sliding, *back);
}

TEST(PlmConfigTest, ReadableNumbers) {
  ModelConfig config = OddConfig(Architecture::kQwen3);
  config.rms_norm_eps = 1e-6f;
  config.rope_theta = 1e6f;
  const std::string text = ConfigToPlmJson(config).dump();
  EXPECT_THAT(text, HasSubstr("\"rms_norm_eps\":1e-06,"));
  EXPECT_THAT(text, HasSubstr("\"rope_theta\":1000000.0,"));
}

TEST(PlmConfigTest, WrongValues) {
  const json good = ConfigToPlmJson(OddConfig(Architecture::kLlama));
  const std::tuple<const char*, json, StatusCode> cases[] = {
      {"rope_layout", "spiral", StatusCode::kUnsupported},
      {"rope_layout", 1, StatusCode::kDataError},
      {"embedding_scale", 0, StatusCode::kDataError},
      {"embedding_scale", 1e300, StatusCode::kDataError},
      {"attention_scale", -1, StatusCode::kDataError},
      {"has_qk_norm", "yes", StatusCode::kDataError},
      {"head_dim", 3, StatusCode::kDataError},
      {"num_hidden_layers", 1u << 30, StatusCode::kDataError},
      {"model_type", "mamba", StatusCode::kUnsupported},
  };
  for (const auto& [key, value, code] : cases) {
    json config = good;
    config[key] = value;
    const auto result = ConfigFromPlmJson(config);
    EXPECT_EQ(result.status().code(), code) << key << ": " << result.status().message();
  }
}

// ---- tokenizer ----

Result<TokenizerSpec> ThroughSections(const TokenizerSpec& spec) {
  POCKETLM_ASSIGN_OR_RETURN(const std::string tables, TokenizerToPlmBytes(spec));
  POCKETLM_ASSIGN_OR_RETURN(const json settings, ParseJson(TokenizerToPlmJson(spec).dump()));
  return TokenizerFromPlm(settings, BytesOf(tables));
}

const char* const kTexts[] = {"",
                              " ",
                              "Hello, world!",
                              "  two spaces\n\n\tand a tab",
                              "你好，世界。今天天气不错！",
                              "naïve café Ångström",
                              "x = 12345 + 67.89;",
                              "<|im_start|>user\nhi<|im_end|>",
                              "😀👨‍👩‍👧 emoji",
                              "\xFF\xFE broken \x80",
                              "don't I'll we've",
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                              "<think>reason</think>",
                              "▁already▁marked",
                              "русский текст",
                              "日本語テキスト",
                              "한국어 텍스트"};

// Equal ids, pieces and settings.
void ExpectSameTokenizer(const TokenizerSpec& a_spec, const TokenizerSpec& b_spec) {
  const auto a = Tokenizer::Create(a_spec);
  const auto b = Tokenizer::Create(b_spec);
  ASSERT_OK(a);
  ASSERT_OK(b);
  const Tokenizer &x = **a, &y = **b;
  ASSERT_EQ(x.vocab_size(), y.vocab_size());
  size_t differences = 0;
  for (int32_t id = 0; id < x.vocab_size(); ++id) {
    differences += x.Piece(id) != y.Piece(id) || x.TokenBytes(id) != y.TokenBytes(id) ||
                   x.IsControl(id) != y.IsControl(id) || x.IsValid(id) != y.IsValid(id);
    // Every token as a text of its own goes through merging or the known words.
    if (id % 7 == 0) {
      differences += x.Encode(x.TokenBytes(id)) != y.Encode(x.TokenBytes(id));
    }
  }
  EXPECT_EQ(differences, 0u);
  for (const std::string text : kTexts) {
    EXPECT_EQ(x.Encode(text), y.Encode(text)) << text;
    EXPECT_EQ(x.Encode(text, {.parse_special = true}), y.Encode(text, {.parse_special = true}))
        << text;
    const auto ids = x.Encode(text);
    EXPECT_EQ(x.Decode(ids, false), y.Decode(ids, false)) << text;
  }
  EXPECT_EQ(x.bos_id(), y.bos_id());
  EXPECT_EQ(x.eos_id(), y.eos_id());
  EXPECT_EQ(x.unk_id(), y.unk_id());
  EXPECT_EQ(x.pad_id(), y.pad_id());
  EXPECT_EQ(x.add_bos(), y.add_bos());
  EXPECT_EQ(x.add_eos(), y.add_eos());
  EXPECT_EQ(x.strips_leading_space(), y.strips_leading_space());
}

void ExpectComesBack(const TokenizerSpec& spec) {
  const auto once = ThroughSections(spec);
  ASSERT_OK(once);
  ExpectSameTokenizer(spec, *once);
  // From a .plm file into another one.
  const auto twice = ThroughSections(*once);
  ASSERT_OK(twice);
  EXPECT_EQ(*TokenizerToPlmBytes(*once), *TokenizerToPlmBytes(*twice));
  ExpectSameTokenizer(spec, *twice);
  // As texts, for formats that know no ids.
  TokenizerSpec texts = *once;
  texts.merges = MergeTexts(*once);
  texts.merge_ids.clear();
  texts.reachable.clear();
  ExpectSameTokenizer(spec, texts);
}

TEST(PlmTokenizerTest, TinyModels) {
  for (const std::string& name : testing::TinyModelNames()) {
    for (const std::string& path : testing::TinyModelForms(name)) {
      SCOPED_TRACE(path);
      const auto spec = OpenTokenizerSpec(path);
      ASSERT_OK(spec);
      ExpectComesBack(*spec);
    }
  }
}

TEST(PlmTokenizerTest, Qwen3) {
  POCKETLM_REQUIRE_DATA_PATH(path, "tokenizer/qwen3/tokenizer.json.gz");
  const auto spec = ParseTokenizerJson(testing::ReadGzipOrDie(path), "");
  ASSERT_OK(spec);
  ExpectComesBack(*spec);
}

TEST(PlmTokenizerTest, SmolLm2) {
  POCKETLM_REQUIRE_MODEL(path, "smollm2-135m");
  const auto spec = OpenTokenizerSpec(path);
  ASSERT_OK(spec);
  ExpectComesBack(*spec);
}

TEST(PlmTokenizerTest, Gemma3) {
  POCKETLM_REQUIRE_MODEL(path, "gemma3-270m");
  const auto spec = OpenTokenizerSpec(path);
  ASSERT_OK(spec);
  ExpectComesBack(*spec);
}

// Ids 0 … 3: "a", "b", "ab", "<end>".
TokenizerSpec SmallSpec() {
  TokenizerSpec spec;
  spec.splitter = Splitter::kQwen2;
  spec.tokens = {"a", "b", "ab", "<end>", ""};
  spec.types = {TokenType::kNormal, TokenType::kNormal, TokenType::kNormal, TokenType::kControl,
                TokenType::kUnused};
  spec.merges = {"a b"};
  spec.added_flags = {{3, true, false, true, false, true}, {3, false, true, false, true, false}};
  spec.eos_id = 3;
  return spec;
}

TEST(PlmTokenizerTest, EverySettingComesBack) {
  TokenizerSpec spec = SmallSpec();
  bool TokenizerSpec::*const flags[] = {
      &TokenizerSpec::nfc,           &TokenizerSpec::add_space_prefix,
      &TokenizerSpec::ignore_merges, &TokenizerSpec::byte_fallback,
      &TokenizerSpec::fuse_unk,      &TokenizerSpec::unk_in_text,
      &TokenizerSpec::add_bos,       &TokenizerSpec::add_eos};
  spec.unk_id = 0;
  spec.bos_id = 1;
  spec.pad_id = 2;
  for (const auto flag : flags) {
    for (const bool value : {false, true}) {
      spec.*flag = value;
      const auto back = ThroughSections(spec);
      ASSERT_OK(back);
      for (const auto other : flags) EXPECT_EQ((*back).*other, spec.*other);
    }
  }
  for (const Splitter splitter :
       {Splitter::kNone, Splitter::kGpt2, Splitter::kQwen2, Splitter::kLlama3, Splitter::kSmolLm}) {
    spec.splitter = splitter;
    spec.add_space_prefix = false;
    const auto back = ThroughSections(spec);
    ASSERT_OK(back);
    EXPECT_EQ(back->splitter, splitter);
  }
  const auto back = ThroughSections(spec);
  ASSERT_OK(back);
  EXPECT_EQ(back->tokens, spec.tokens);
  EXPECT_EQ(back->types, spec.types);
  EXPECT_EQ(std::vector<int32_t>({back->bos_id, back->eos_id, back->unk_id, back->pad_id}),
            std::vector<int32_t>({1, 3, 0, 2}));
  ASSERT_EQ(back->added_flags.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const AddedTokenFlags &a = spec.added_flags[i], &b = back->added_flags[i];
    EXPECT_TRUE(a.id == b.id && a.lstrip == b.lstrip && a.rstrip == b.rstrip &&
                a.single_word == b.single_word && a.normalized == b.normalized &&
                a.in_model == b.in_model);
  }
}

TEST(PlmTokenizerTest, BadSpecIsNotWritten) {
  TokenizerSpec spec = SmallSpec();
  spec.merges = {"a c"};
  EXPECT_THAT(TokenizerToPlmBytes(spec).status().message(),
              HasSubstr("'c' is not in the vocabulary"));
  spec = SmallSpec();
  spec.tokens[2] = std::string(65536, 'a');
  EXPECT_EQ(TokenizerToPlmBytes(spec).status().code(), StatusCode::kUnsupported);
}

TEST(PlmTokenizerTest, HostileTables) {
  const json settings = TokenizerToPlmJson(SmallSpec());
  const auto tables = TokenizerToPlmBytes(SmallSpec());
  ASSERT_OK(tables);
  // Cut short, or longer.
  for (size_t size = 0; size < tables->size(); ++size) {
    EXPECT_EQ(TokenizerFromPlm(settings, BytesOf(tables->substr(0, size))).status().code(),
              StatusCode::kDataError)
        << size;
  }
  EXPECT_THAT(TokenizerFromPlm(settings, BytesOf(*tables + "x")).status().message(),
              HasSubstr("section 'tokenizer': 1 bytes are left"));
  // Any byte changed: an error there, or at Create, or a tokenizer that works.
  size_t refused = 0;
  for (size_t i = 0; i < tables->size(); ++i) {
    for (const unsigned mask : {1u, 4u, 0x80u, 0xFFu}) {
      std::string changed = *tables;
      changed[i] = static_cast<char>(static_cast<unsigned char>(changed[i]) ^ mask);
      auto spec = TokenizerFromPlm(settings, BytesOf(changed));
      if (!spec.ok()) {
        ++refused;
        continue;
      }
      const auto tokenizer = Tokenizer::Create(std::move(spec).value());
      refused += !tokenizer.ok();
      if (tokenizer.ok()) (*tokenizer)->Encode("ab<end>abba");
    }
  }
  EXPECT_GT(refused, tables->size());
}

TEST(PlmTokenizerTest, HostileCounts) {
  const json settings = TokenizerToPlmJson(SmallSpec());
  const std::string tables = *TokenizerToPlmBytes(SmallSpec());
  for (size_t field = 0; field < 6; ++field) {
    for (const uint32_t count : {1u, 0x7FFFFFFFu, UINT32_MAX}) {
      std::string changed = tables;
      testing::SetAt<uint32_t>(&changed, 4 * field, count);
      if (changed == tables) continue;
      EXPECT_EQ(TokenizerFromPlm(settings, BytesOf(changed)).status().code(),
                StatusCode::kDataError);
    }
  }
}

// Merges may name one long token without end: little in the file, gigabytes when spelled out.
TEST(PlmTokenizerTest, MergesCannotBlowUp) {
  constexpr uint32_t kMerges = 1000;
  testing::ByteBuilder out;
  out.U32(1).U32(0).U32(0).U32(0).U32(kMerges).U32(0);
  for (uint32_t i = 0; i < 3 * kMerges; ++i) out.U32(0);
  out.Put<uint16_t>(65535).Raw(std::string(65535, 'a'));
  EXPECT_THAT(
      TokenizerFromPlm(TokenizerToPlmJson(SmallSpec()), BytesOf(out.bytes())).status().message(),
      HasSubstr("more than 16 times the section"));
}

TEST(PlmTokenizerTest, WrongSettings) {
  const std::string tables = *TokenizerToPlmBytes(SmallSpec());
  const std::tuple<const char*, json, StatusCode> cases[] = {
      {"kind", "unigram", StatusCode::kUnsupported},
      {"kind", nullptr, StatusCode::kUnsupported},
      {"splitter", "new", StatusCode::kUnsupported},
      {"nfc", 1, StatusCode::kDataError},
      {"eos_token_id", -1, StatusCode::kDataError},
      {"eos_token_id", 1e9, StatusCode::kDataError},
      {"eos_token_id", uint64_t{1} << 40, StatusCode::kDataError},
  };
  for (const auto& [key, value, code] : cases) {
    json settings = TokenizerToPlmJson(SmallSpec());
    settings[key] = value;
    const auto result = TokenizerFromPlm(settings, BytesOf(tables));
    EXPECT_EQ(result.status().code(), code) << key << ": " << result.status().message();
  }
}

// ---- whole files ----

// A folder's model as a .plm file, its tensors as they are.
std::string Converted(const std::string& folder) {
  auto source = OpenModelSource(folder);
  POCKETLM_CHECK(source.ok());
  const std::string path = JoinPath(testing::ScratchDir(), "model.plm");
  auto writer = PlmWriter::Create(path);
  POCKETLM_CHECK(writer.ok());
  for (const TensorView* tensor : source->Tensors()) {
    std::string name = tensor->name;
    for (const std::string prefix : {"language_model.model.", "language_model.", "model."}) {
      if (name.substr(0, prefix.size()) == prefix) name = name.substr(prefix.size());
    }
    POCKETLM_CHECK(writer->AddPlain(name, tensor->type, tensor->shape, tensor->data).ok());
  }
  PlmDescription description;
  description.config = source->config;
  description.tokenizer = source->tokenizer;
  description.chat_template = source->chat_template;
  description.end_tokens = source->end_tokens;
  description.quantization = {{"method", "none"}};
  description.provenance = {{"source", folder}};
  description.license = "Apache-2.0";
  POCKETLM_CHECK(FinishPlm(description, &*writer).ok());
  return path;
}

void ExpectSameWeights(const ModelSource& a, const ModelSource& b) {
  const auto collect = [](const ModelSource& source) {
    return CollectWeights(source.config, [&](const std::string& hf, const std::string& gguf) {
      return source.Find(hf, gguf);
    });
  };
  const auto x = collect(a), y = collect(b);
  ASSERT_OK(x);
  ASSERT_OK(y);
  const auto expect_matrix = [](const WeightMatrix& m, const WeightMatrix& n) {
    ASSERT_EQ(m.type, n.type);
    ASSERT_EQ(m.rows, n.rows);
    EXPECT_EQ(std::memcmp(m.data, n.data, m.rows * m.row_bytes()), 0);
  };
  expect_matrix(x->embed_tokens, y->embed_tokens);
  expect_matrix(x->lm_head, y->lm_head);
  EXPECT_EQ(x->norm, y->norm);
  EXPECT_EQ(x->rope_factors, y->rope_factors);
  ASSERT_EQ(x->layers.size(), y->layers.size());
  for (size_t i = 0; i < x->layers.size(); ++i) {
    const LayerWeights &p = x->layers[i], &q = y->layers[i];
    EXPECT_EQ(p.attention_norm, q.attention_norm);
    EXPECT_EQ(p.feedforward_norm, q.feedforward_norm);
    EXPECT_EQ(p.post_attention_norm, q.post_attention_norm);
    EXPECT_EQ(p.post_feedforward_norm, q.post_feedforward_norm);
    EXPECT_EQ(p.q_norm, q.q_norm);
    EXPECT_EQ(p.k_norm, q.k_norm);
    for (const auto matrix : {&LayerWeights::q_proj, &LayerWeights::k_proj, &LayerWeights::v_proj,
                              &LayerWeights::o_proj, &LayerWeights::gate_proj,
                              &LayerWeights::up_proj, &LayerWeights::down_proj})
      expect_matrix(p.*matrix, q.*matrix);
  }
}

TEST(PlmModelTest, FolderAndPlmAreTheSameModel) {
  for (const std::string& name : testing::TinyModelNames()) {
    SCOPED_TRACE(name);
    const std::string folder = testing::TinyModelPath(name, "hf");
    const auto before = OpenModelSource(folder);
    const auto after = OpenModelSource(Converted(folder));
    ASSERT_OK(before);
    ASSERT_OK(after);
    ASSERT_TRUE(after->plm.has_value());
    ExpectSameConfig(before->config, after->config);
    ExpectSameTokenizer(before->tokenizer, after->tokenizer);
    EXPECT_EQ(before->chat_template, after->chat_template);
    EXPECT_EQ(before->end_tokens, after->end_tokens);
    EXPECT_EQ(before->Tensors().size(), after->Tensors().size());
    ExpectSameWeights(*before, *after);
  }
}

TEST(PlmModelTest, TokenizerAlone) {
  const std::string folder = testing::TinyModelPath("tiny_qwen3", "hf");
  const auto before = OpenTokenizerSpec(folder);
  const auto after = OpenTokenizerSpec(Converted(folder));
  ASSERT_OK(before);
  ASSERT_OK(after);
  ExpectSameTokenizer(*before, *after);
}

TEST(PlmModelTest, OtherFilesAreNamed) {
  const std::string path = JoinPath(testing::ScratchDir(), "model.bin");
  testing::WriteFileOrDie(path, "PK\x03\x04 a zip file");
  for (const Status& status : {OpenModelSource(path).status(), OpenTokenizerSpec(path).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kDataError);
    EXPECT_THAT(status.message(),
                HasSubstr("expected a .plm or GGUF file or a Hugging Face folder"));
  }
  testing::WriteFileOrDie(path, "");
  EXPECT_EQ(OpenModelSource(path).status().code(), StatusCode::kDataError);
}

TEST(PlmModelTest, VerifyReadsTheWeights) {
  const std::string path = Converted(testing::TinyModelPath("tiny_llama", "hf"));
  EXPECT_OK(VerifyModelFile(path));
  std::string file = testing::ReadFileOrDie(path);
  file[testing::PlmSection(file, "payload").offset] ^= 1;
  testing::WriteFileOrDie(path, file);
  EXPECT_OK(OpenModelSource(path));
  const Status damaged = VerifyModelFile(path);
  EXPECT_EQ(damaged.code(), StatusCode::kDataError);
  EXPECT_THAT(damaged.message(), HasSubstr("is damaged: expected the checksum"));
  for (const std::string& other : testing::TinyModelForms("tiny_llama"))
    EXPECT_EQ(VerifyModelFile(other).code(), StatusCode::kUnsupported) << other;
}

TEST(PlmModelTest, MetadataOfAnotherKind) {
  const std::string path = Converted(testing::TinyModelPath("tiny_llama", "hf"));
  const std::string good = testing::ReadFileOrDie(path);
  const auto section = testing::PlmSection(good, "metadata");
  const json metadata = json::parse(good.substr(section.offset, section.size));
  EXPECT_EQ(metadata.at("license"), "Apache-2.0");
  const auto status_with = [&](const char* key, const json& value) {
    json changed = metadata;
    changed[key] = value;
    const testing::AlignedBytes bytes(testing::WithPlmSection(good, "metadata", changed.dump()));
    auto file = PlmFile::Parse(bytes.span());
    POCKETLM_CHECK(file.ok());
    return ReadPlmDescription(*file).status();
  };
  EXPECT_OK(status_with("a_key_of_the_future", json::array({1})));
  EXPECT_THAT(status_with("attention_mask", "prefix").message(),
              HasSubstr("attention_mask: expected causal, got 'prefix'"));
  EXPECT_EQ(status_with("attention_mask", "prefix").code(), StatusCode::kUnsupported);
  EXPECT_THAT(status_with("config", nullptr).message(), HasSubstr("config is missing"));
  const std::pair<const char*, json> wrong[] = {
      {"config", json::array()},     {"tokenizer", 1},
      {"tokenizer", nullptr},        {"end_tokens", 2},
      {"end_tokens", {-1}},          {"end_tokens", {"a"}},
      {"chat_template", 1},          {"quantization", "int4"},
      {"provenance", json::array()}, {"license", 5}};
  for (const auto& [key, value] : wrong)
    EXPECT_EQ(status_with(key, value).code(), StatusCode::kDataError) << key << " " << value;
}

TEST(PlmModelTest, PackedNormIsRefused) {
  auto source = OpenModelSource(testing::TinyModelPath("tiny_llama", "hf"));
  ASSERT_OK(source);
  TensorView packed;
  packed.name = "norm.weight";
  packed.shape = {source->config.hidden_size};
  packed.packed.emplace();
  const auto weights = CollectWeights(
      source->config,
      [&](const std::string& hf, const std::string& gguf) -> Result<const TensorView*> {
        if (hf == "norm.weight") return &packed;
        return source->Find(hf, gguf);
      });
  EXPECT_EQ(weights.status().message(),
            "load: norm.weight: expected a vector of floats, got packed weights");
}

}  // namespace
}  // namespace pocketlm
