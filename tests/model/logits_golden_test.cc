// The logits of kept models, bit for bit the same on every machine, build and instruction set.
//
// tests/goldens/logits.json holds a checksum of the logits for each model and type of the cache;
// POCKETLM_UPDATE_GOLDENS=1 writes it anew, by the reference kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "backend/isa_tables.h"
#include "base/checksum.h"
#include "base/file.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

constexpr size_t kChunk = 128;  // tokens of a forward pass
constexpr size_t kSingle = 6;   // the last tokens, one by one

struct CacheType {
  const char* name;
  KvType type;
};
constexpr CacheType kCacheTypes[] = {
    {"f32", KvType::kF32}, {"f16", KvType::kF16}, {"i8", KvType::kI8}, {"i4", KvType::kI4}};

std::string GoldensFolder() { return JoinPath(testing::SourceDir(), "tests/goldens"); }
std::string GoldenPath() { return JoinPath(GoldensFolder(), "logits.json"); }

// Of the logits of `tokens` tokens, as bytes.
std::string LogitsChecksum(Model* model, KvType type, size_t tokens) {
  const size_t vocab = model->config().vocab_size;
  auto decoder = Decoder::Create(model->config(), model->weights(), &model->backend(), kChunk);
  EXPECT_OK(decoder);
  auto cache = KvCache::Create(model->config(), tokens, type, type);
  EXPECT_OK(cache);
  if (!decoder.ok() || !cache.ok()) return "";
  std::vector<int32_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) ids[i] = static_cast<int32_t>((i * i * 37 + 11) % vocab);
  Xxh3Stream checksum;
  std::vector<float> logits(kChunk * vocab);
  for (size_t begin = 0; begin < tokens;) {
    const size_t rows = begin < tokens - kSingle ? std::min(kChunk, tokens - kSingle - begin) : 1;
    EXPECT_OK(decoder->Forward(std::span(ids).subspan(begin, rows), begin, &*cache, nullptr));
    decoder->Logits(0, rows, logits.data());
    for (size_t i = 0; i < rows * vocab; ++i) {
      EXPECT_TRUE(std::isfinite(logits[i])) << "logit " << i % vocab << " of a row from " << begin;
      if (!std::isfinite(logits[i])) return "";
    }
    checksum.Update(std::as_bytes(std::span(logits).first(rows * vocab)));
    begin += rows;
  }
  return ChecksumText(checksum.Digest());
}

struct GoldenModel {
  const char* path;  // below tests/goldens
  size_t tokens;
};

// Plain weights and small heads; packed weights of every layout and more tokens than a block of attention.
constexpr GoldenModel kModels[] = {{"tiny_qwen3/model.gguf", 40},
                                   {"tiny_llama/model.gguf", 40},
                                   {"tiny_gemma3/model.gguf", 40},
                                   {"plm/version_1_0.plm", kAttentionBlock + 20}};

// Checksums by type of the cache, computed by the kernels of `cpu`.
nlohmann::json Checksums(const GoldenModel& golden, const char* cpu) {
  const char* before = std::getenv("POCKETLM_CPU");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("POCKETLM_CPU", cpu, 1);
  auto model = Model::Load(JoinPath(GoldensFolder(), golden.path), {.num_threads = 1});
  kept.empty() ? ::unsetenv("POCKETLM_CPU") : ::setenv("POCKETLM_CPU", kept.c_str(), 1);
  EXPECT_OK(model);
  nlohmann::json out = nlohmann::json::object();
  if (!model.ok()) return out;
  for (const CacheType& cache : kCacheTypes) {
    if (KvTypeFits(cache.type, (*model)->config().head_dim))
      out[cache.name] = LogitsChecksum(model->get(), cache.type, golden.tokens);
  }
  return out;
}

TEST(LogitsGoldenTest, SameBitsOnEveryMachineAndInstructionSet) {
  const char* update = std::getenv("POCKETLM_UPDATE_GOLDENS");
  if (update != nullptr && std::string(update) == "1") {
    nlohmann::json checksums;
    for (const GoldenModel& model : kModels) checksums[model.path] = Checksums(model, "reference");
    testing::WriteFileOrDie(GoldenPath(), checksums.dump(2) + "\n");
  }
  auto text = ReadFile(GoldenPath());
  ASSERT_OK(text);
  const auto expected = nlohmann::json::parse(*text);
  for (const GoldenModel& model : kModels) {
    ASSERT_TRUE(expected.contains(model.path)) << model.path;
    ASSERT_GE(expected[model.path].size(), 3u) << model.path;
    for (const CpuKernels* kernels : testing::UsableTables()) {
      EXPECT_EQ(Checksums(model, kernels->name), expected[model.path])
          << model.path << " by " << kernels->name;
    }
  }
}

}  // namespace
}  // namespace pocketlm
