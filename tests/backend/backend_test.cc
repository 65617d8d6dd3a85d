// The CPU backend: selection of the kernel table, room for the ops, embedding, element-wise ops.

#include "backend/backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cpu/cpu_backend.h"
#include "backend_inputs.h"
#include "base/cpu_info.h"
#include "kernel_inputs.h"
#include "kv_cache.h"
#include "support/test_support.h"

// A sanitizer that is compiled in shall fail an impossible allocation as the system does.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "allocator_may_return_null=1";
}

namespace pocketlm {
namespace {

using testing::ForEachBackend;
using testing::IsaTables;
using testing::MakeBackend;
using testing::RandomFloats;
using testing::ReferenceBackend;
using testing::SameBits;
using testing::TestMatrix;

// Sets an environment variable for one scope.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    ::setenv(name, value, 1);
  }
  ~ScopedEnv() { old_.empty() ? ::unsetenv(name_) : ::setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

BackendOptions Threads(int num_threads) {
  BackendOptions options;
  options.num_threads = num_threads;
  return options;
}

TEST(CreateCpuBackendTest, HonoursTheEnvironment) {
  ScopedEnv env("POCKETLM_CPU", "reference");
  auto backend = CreateCpuBackend(Threads(3));
  ASSERT_OK(backend);
  EXPECT_STREQ((*backend)->name(), "reference");
  EXPECT_EQ((*backend)->num_threads(), 3);
}

TEST(CreateCpuBackendTest, RefusesNamesThatDoNotExist) {
  for (const char* name : {"AVX2", "sse2", "avx2 ", "avx512", "neon"}) {
    ScopedEnv env("POCKETLM_CPU", name);
    auto backend = CreateCpuBackend(Threads(1));
    EXPECT_EQ(backend.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(backend.status().message().find(name), std::string::npos);
    EXPECT_NE(backend.status().message().find("neon_i8mm"), std::string::npos);
  }
}

TEST(CreateCpuBackendTest, RefusesZeroThreads) {
  EXPECT_EQ(CreateCpuBackend(Threads(0)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuBackend(Threads(-1)).status().code(), StatusCode::kInvalidArgument);
}

TEST(SelectCpuKernelsTest, TakesTheBestByDefault) {
  auto kernels = SelectCpuKernels("");
  ASSERT_OK(kernels);
  EXPECT_EQ(*kernels, testing::UsableTables().back());
}

// Every name of the contract is known: a table of that name, or an error that names those that are there.
TEST(SelectCpuKernelsTest, EveryNameIsATableOrUnsupported) {
  size_t found = 0;
  for (const char* name :
       {"reference", "avx2", "avxvnni", "avx512vnni", "amx", "neon_dotprod", "neon_i8mm"}) {
    auto kernels = SelectCpuKernels(name);
    if (kernels.ok()) {
      EXPECT_STREQ((*kernels)->name, name);
      ++found;
    } else {
      EXPECT_EQ(kernels.status().code(), StatusCode::kUnsupported) << name;
      EXPECT_NE(kernels.status().message().find(name), std::string::npos);
      EXPECT_NE(kernels.status().message().find("reference"), std::string::npos);
    }
  }
  EXPECT_EQ(found, testing::UsableTables().size());
}

// Where the build runs the tests on CPUs that it knows (see CMakeLists.txt), it says what they must get.
TEST(SelectCpuKernelsTest, TakesWhatTheBuildExpects) {
  const char* expected = std::getenv("POCKETLM_EXPECTED_KERNELS");
  if (expected == nullptr) GTEST_SKIP() << "POCKETLM_EXPECTED_KERNELS names no table";
  auto kernels = SelectCpuKernels("");
  ASSERT_OK(kernels);
  EXPECT_STREQ((*kernels)->name, expected);
}

TEST(SelectCpuKernelsTest, TablesAreWholeAndNamedOnce) {
  for (const CpuKernels* k : testing::UsableTables()) {
    for (const bool set :
         {k->dequantize != nullptr, k->gemv != nullptr, k->gemm != nullptr,
          k->quantize_row != nullptr, k->packed_gemv != nullptr, k->packed_gemm != nullptr,
          k->attend_block != nullptr, k->merge_attention != nullptr, k->rotate_groups != nullptr,
          k->rms_norm != nullptr, k->rope_halves != nullptr, k->rope_interleaved != nullptr,
          k->floats_to_halves != nullptr, k->silu_mul != nullptr, k->gelu_mul != nullptr,
          k->add != nullptr, k->scale != nullptr}) {
      EXPECT_TRUE(set) << k->name;
    }
  }
}

// Products and attention of `rows` rows at the end of `positions`.
std::vector<float> RunOps(Backend& backend, size_t rows, size_t cols, size_t positions) {
  const TestMatrix w(PackedLayout{}, 96, cols, 1), gate(PackedLayout{}, cols, cols, 2),
      plain(DType::kF16, cols, cols, 3);
  const std::vector<float> x = RandomFloats(rows * cols, 4);
  std::vector<float> y(rows * 96), gated(rows * cols);
  const MatMulOutput output{&w.matrix(), y.data()};
  backend.MatMul({x.data(), rows, nullptr, 0.0f}, {&output, 1}, false);
  backend.GatedMatMul({x.data(), rows, x.data(), 1e-6f}, gate.matrix(), plain.matrix(),
                      Activation::kSilu, gated.data());
  y.insert(y.end(), gated.begin(), gated.end());

  const size_t heads = 4, dim = 16;
  const testing::KvCache cache(KvType::kI8, KvType::kI4, positions, 2, dim);
  RopeAppendArgs append;
  std::vector<float> q = RandomFloats(positions * heads * dim, 5);
  std::vector<float> k = RandomFloats(positions * 2 * dim, 6), v = RandomFloats(k.size(), 7);
  const std::vector<float> angles = RandomFloats(positions * dim / 2, 8);
  append.q = q.data();
  append.k = k.data();
  append.v = v.data();
  append.rows = positions;
  append.num_heads = heads;
  append.cos = append.sin = angles.data();
  append.kv = &cache.layer();
  backend.RopeAppend(append);
  std::vector<float> out(rows * heads * dim);
  AttentionArgs args;
  args.q = q.data() + (positions - rows) * heads * dim;
  args.out = out.data();
  args.rows = rows;
  args.num_heads = heads;
  args.first_position = positions - rows;
  args.kv = &cache.layer();
  backend.Attention(args);
  y.insert(y.end(), out.begin(), out.end());
  return y;
}

BackendLimits OpLimits(size_t rows, size_t cols, size_t positions) {
  return {.rows = rows,
          .cols = cols,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .positions = positions};
}

// Sessions of several sizes share a backend: each reserves for itself and then uses what it asked for.
TEST(ReserveTest, GrowsAndNeverShrinks) {
  const auto want_small = RunOps(*ReferenceBackend(OpLimits(2, 128, 64)), 2, 128, 64);
  const auto want_large = RunOps(*ReferenceBackend(OpLimits(20, 256, 1100)), 20, 256, 1100);
  const auto want_row = RunOps(*ReferenceBackend(OpLimits(1, 256, 1100)), 1, 256, 1100);
  ForEachBackend(OpLimits(2, 128, 64), {3}, [&](Backend& backend, const std::string& name) {
    EXPECT_TRUE(SameBits(RunOps(backend, 2, 128, 64), want_small)) << name;
    ASSERT_OK(backend.Reserve(OpLimits(20, 128, 64)));
    ASSERT_OK(backend.Reserve(OpLimits(1, 256, 1100)));
    EXPECT_TRUE(SameBits(RunOps(backend, 20, 256, 1100), want_large)) << name;
    ASSERT_OK(backend.Reserve(OpLimits(2, 128, 64)));
    EXPECT_TRUE(SameBits(RunOps(backend, 20, 256, 1100), want_large)) << name;
    EXPECT_TRUE(SameBits(RunOps(backend, 1, 256, 1100), want_row)) << name;
    EXPECT_TRUE(SameBits(RunOps(backend, 2, 128, 64), want_small)) << name;
  });
}

TEST(ReserveTest, ImpossibleSizesAreOutOfMemory) {
  const auto backend = ReferenceBackend(OpLimits(1, 64, 16));
  BackendLimits limits = OpLimits(size_t{1} << 20, size_t{1} << 28, 16);
  EXPECT_EQ(backend->Reserve(limits).code(), StatusCode::kOutOfMemory);
  // What was there before is still there.
  const auto want = RunOps(*ReferenceBackend(OpLimits(1, 64, 16)), 1, 64, 16);
  EXPECT_TRUE(SameBits(RunOps(*backend, 1, 64, 16), want));
}

TEST(ScratchBytesTest, GrowWithEveryLimit) {
  const BackendLimits limits = OpLimits(8, 256, 1024);
  const uint64_t bytes = CpuBackendScratchBytes(Threads(2), limits);
  EXPECT_GE(bytes, 8 * 256 * sizeof(float));
  EXPECT_LE(bytes, 4u << 20);
  EXPECT_GT(CpuBackendScratchBytes(Threads(3), limits), bytes);
  EXPECT_GT(CpuBackendScratchBytes(Threads(2), OpLimits(128, 256, 1024)), bytes);
  EXPECT_GT(CpuBackendScratchBytes(Threads(2), OpLimits(8, 1024, 1024)), bytes);
  EXPECT_GT(CpuBackendScratchBytes(Threads(2), OpLimits(8, 256, 32768)), bytes);
}

TEST(EmbedTest, ScalesTheRowsThatAreAskedFor) {
  const size_t vocab = 50, cols = 64;
  std::vector<TestMatrix> tables;
  tables.emplace_back(DType::kQ8_0, vocab, cols, 5);
  for (const PackedLayout& layout : testing::AllPackedLayouts()) {
    if (layout.group_size <= cols) tables.emplace_back(layout, vocab, cols, 6);
  }
  std::vector<int32_t> ids = {49, 0, 7, 7};
  for (int32_t i = 0; i < 1000; ++i) ids.push_back(i % 50);
  for (const TestMatrix& table : tables) {
    const std::vector<float> rows = table.Floats();
    ForEachBackend({.rows = 1, .cols = cols}, {1, 3}, [&](Backend& backend, const auto& name) {
      std::vector<float> out(ids.size() * cols);
      backend.Embed(table.matrix(), ids, 0.5f, out.data());
      for (size_t i = 0; i < ids.size(); ++i) {
        std::vector<float> row(cols);
        for (size_t d = 0; d < cols; ++d)
          row[d] = rows[static_cast<size_t>(ids[i]) * cols + d] * 0.5f;
        ASSERT_TRUE(SameBits(row.data(), out.data() + i * cols, cols)) << name << " " << i;
      }
    });
  }
}

TEST(ElementwiseTest, SameBitsForAnyThreads) {
  const size_t rows = 130, cols = 600;
  const std::vector<float> x = RandomFloats(rows * cols, 6), weight = RandomFloats(cols, 7);
  const BackendLimits limits{.rows = rows, .cols = cols};
  const auto run = [&](Backend& backend) {
    std::vector<float> y(rows * cols);
    backend.RmsNorm(x.data(), rows, cols, weight.data(), 1e-6f, y.data());
    backend.Add(y.data(), x.data(), y.size());
    backend.RmsNorm(y.data(), rows, cols, weight.data(), 1e-6f, y.data());
    return y;
  };
  const std::vector<float> want = run(*ReferenceBackend(limits));
  ForEachBackend(limits, {1, 2, 3, 4}, [&](Backend& backend, const std::string& name) {
    EXPECT_TRUE(SameBits(run(backend), want)) << name;
  });
}

}  // namespace
}  // namespace pocketlm
