// The CPU backend: the same bits for any number of threads, any split of the rows and any chunking
// of a prompt; layouts; selection of the kernel table.

#include "backend/backend.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cpu/cpu_backend.h"
#include "base/cpu_info.h"
#include "kernel_inputs.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using testing::AllDTypes;
using testing::RandomFloats;
using testing::RandomRows;
using testing::SameBits;

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

std::unique_ptr<Backend> MakeBackend(const CpuKernels& kernels, int threads) {
  auto backend = CpuBackend::Create(kernels, threads);
  POCKETLM_CHECK(backend.ok());
  return std::move(backend).value();
}

std::unique_ptr<Backend> BestBackend(int threads) {
  auto kernels = SelectCpuKernels("");
  POCKETLM_CHECK(kernels.ok());
  return MakeBackend(**kernels, threads);
}

TEST(CreateCpuBackendTest, HonoursTheEnvironment) {
  {
    ScopedEnv env("POCKETLM_CPU", "reference");
    auto backend = CreateCpuBackend(3);
    ASSERT_OK(backend);
    EXPECT_STREQ((*backend)->name(), "reference");
    EXPECT_EQ((*backend)->num_threads(), 3);
  }
  {
    ScopedEnv env("POCKETLM_CPU", "avx2");
    auto backend = CreateCpuBackend(1);
    if (GetCpuFeatures().avx2_fma_f16c) {
      ASSERT_OK(backend);
      EXPECT_STREQ((*backend)->name(), "avx2");
    } else {
      EXPECT_EQ(backend.status().code(), StatusCode::kUnsupported);
    }
  }
  for (const char* name : {"AVX2", "sse2", "avx2 "}) {
    ScopedEnv env("POCKETLM_CPU", name);
    auto backend = CreateCpuBackend(1);
    EXPECT_EQ(backend.status().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_NE(backend.status().message().find(name), std::string::npos);
  }
}

TEST(CreateCpuBackendTest, RefusesZeroThreads) {
  EXPECT_EQ(CreateCpuBackend(0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCpuBackend(-1).status().code(), StatusCode::kInvalidArgument);
}

TEST(SelectCpuKernelsTest, TakesTheBestByDefault) {
  auto kernels = SelectCpuKernels("");
  ASSERT_OK(kernels);
  EXPECT_STREQ((*kernels)->name, GetCpuFeatures().avx2_fma_f16c ? "avx2" : "reference");
}

// Rows one at a time on one thread of the reference, against whole calls on 1 to 4 threads.
TEST(MatMulTest, SameBitsForAnyThreadsAndRows) {
  const size_t out = 70, in = 768, rows = 64;
  const auto reference = MakeBackend(kReferenceKernels, 1);
  for (DType type : AllDTypes()) {
    const auto data = RandomRows(type, out, in, 1);
    const WeightMatrix w{type, out, in, data.data()};
    const std::vector<float> x = RandomFloats(rows * in, 2);
    std::vector<float> want(rows * out);
    for (size_t r = 0; r < rows; ++r)
      reference->MatMul(w, x.data() + r * in, 1, want.data() + r * out);
    for (int threads = 1; threads <= 4; ++threads) {
      const auto backend = BestBackend(threads);
      for (size_t split : {1, 2, 7, 64}) {
        std::vector<float> got(rows * out, -1.0f);
        for (size_t r = 0; r < rows; r += split) {
          backend->MatMul(w, x.data() + r * in, std::min(split, rows - r), got.data() + r * out);
        }
        EXPECT_TRUE(SameBits(got, want))
            << GetDTypeInfo(type).name << " threads " << threads << " split " << split;
      }
    }
  }
}

// Rows so long that two do not fit the panel, and odd shapes around it.
TEST(MatMulTest, OddShapes) {
  for (auto [out, in] :
       {std::pair<size_t, size_t>{3, 40000}, {1, 1}, {5, 32768}, {1, 300}, {2, 32769}, {301, 17}}) {
    const auto data = RandomRows(DType::kF16, out, in, 3);
    const WeightMatrix w{DType::kF16, out, in, data.data()};
    const std::vector<float> x = RandomFloats(3 * in, 4);
    std::vector<float> want(3 * out), got(3 * out);
    const auto reference = MakeBackend(kReferenceKernels, 1);
    for (size_t r = 0; r < 3; ++r)
      reference->MatMul(w, x.data() + r * in, 1, want.data() + r * out);
    BestBackend(3)->MatMul(w, x.data(), 3, got.data());
    EXPECT_TRUE(SameBits(got, want)) << "[" << out << ", " << in << "]";
  }
}

TEST(EmbedTest, ScalesTheRowsThatAreAskedFor) {
  const size_t vocab = 50, cols = 64;
  const auto data = RandomRows(DType::kQ8_0, vocab, cols, 5);
  const WeightMatrix table{DType::kQ8_0, vocab, cols, data.data()};
  std::vector<int32_t> ids = {49, 0, 7, 7};
  for (int32_t i = 0; i < 1000; ++i) ids.push_back(i % 50);
  std::vector<float> out(ids.size() * cols), row(cols);
  BestBackend(2)->Embed(table, ids, 0.5f, out.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    DequantizeRow(DType::kQ8_0, data.data() + static_cast<size_t>(ids[i]) * table.row_bytes(), cols,
                  row.data());
    for (float& v : row) v *= 0.5f;
    ASSERT_TRUE(SameBits(row.data(), out.data() + i * cols, cols)) << i;
  }
}

TEST(ElementwiseTest, SameBitsForAnyThreads) {
  const size_t rows = 130, cols = 600, heads = 6, dim = 100;
  const std::vector<float> x = RandomFloats(rows * cols, 6), up = RandomFloats(rows * cols, 7);
  const std::vector<float> angles = RandomFloats(rows * dim / 2, 8);
  const auto run = [&](Backend& backend) {
    std::vector<float> y(rows * cols);
    backend.RmsNorm(x.data(), rows, cols, up.data(), 1e-6f, y.data());
    backend.Rope(y.data(), rows, heads, dim, angles.data(), angles.data(), RopeLayout::kHalves);
    backend.Rope(y.data(), rows, heads, dim, angles.data(), angles.data(),
                 RopeLayout::kInterleaved);
    backend.GatedActivation(Activation::kSilu, y.data(), up.data(), y.size());
    backend.Add(y.data(), x.data(), y.size());
    backend.GatedActivation(Activation::kGeluTanh, y.data(), up.data(), y.size());
    return y;
  };
  const std::vector<float> want = run(*MakeBackend(kReferenceKernels, 1));
  for (int threads = 1; threads <= 4; ++threads)
    EXPECT_TRUE(SameBits(run(*BestBackend(threads)), want)) << threads;
}

// A cache in memory of its own, filled with NaN so that reading an unwritten position shows.
struct Cache {
  Cache(KvType type, size_t capacity, size_t kv_heads, size_t dim)
      : k(kv_heads * capacity * dim * KvValueBytes(type), std::byte{0xFF}), v(k) {
    layer.k_type = layer.v_type = type;
    layer.k = k.data();
    layer.v = v.data();
    layer.capacity = capacity;
    layer.num_kv_heads = kv_heads;
    layer.head_dim = dim;
  }
  std::vector<std::byte> k, v;
  KvLayer layer;
};

TEST(AppendKvTest, StoresHeadMajorAtThePosition) {
  const size_t dim = 10, kv_heads = 2, capacity = 5;
  const std::vector<float> k = RandomFloats(2 * kv_heads * dim, 9),
                           v = RandomFloats(2 * kv_heads * dim, 10);
  for (KvType type : {KvType::kF32, KvType::kF16}) {
    Cache cache(type, capacity, kv_heads, dim);
    const std::vector<std::byte> untouched = cache.k;
    BestBackend(1)->AppendKv(cache.layer, k.data(), v.data(), 2, 3);
    size_t written = 0;
    for (size_t h = 0; h < kv_heads; ++h) {
      for (size_t r = 0; r < 2; ++r) {
        for (size_t d = 0; d < dim; ++d) {
          const size_t index = (h * capacity + 3 + r) * dim + d;
          const float want = v[(r * kv_heads + h) * dim + d];
          if (type == KvType::kF32) {
            EXPECT_EQ(reinterpret_cast<const float*>(cache.v.data())[index], want);
          } else {
            EXPECT_EQ(reinterpret_cast<const uint16_t*>(cache.v.data())[index], FloatToHalf(want));
          }
        }
      }
    }
    for (size_t i = 0; i < cache.k.size(); ++i) written += cache.k[i] != untouched[i];
    EXPECT_LE(written, 2 * kv_heads * dim * KvValueBytes(type));
    EXPECT_GT(written, kv_heads * dim * KvValueBytes(type));
  }
}

struct AttentionShape {
  size_t heads, kv_heads, dim, window;
};

// Appends and attends in chunks of `chunk` rows.
std::vector<float> AttendInChunks(Backend& backend, const AttentionShape& s, KvType type,
                                  size_t rows, size_t chunk) {
  const std::vector<float> q = RandomFloats(rows * s.heads * s.dim, 11);
  const std::vector<float> k = RandomFloats(rows * s.kv_heads * s.dim, 12),
                           v = RandomFloats(k.size(), 13);
  Cache cache(type, rows, s.kv_heads, s.dim);
  std::vector<float> out(q.size());
  for (size_t first = 0; first < rows; first += chunk) {
    const size_t count = std::min(chunk, rows - first);
    const size_t kv_offset = first * s.kv_heads * s.dim;
    backend.AppendKv(cache.layer, k.data() + kv_offset, v.data() + kv_offset, count, first);
    AttentionArgs args;
    args.q = q.data() + first * s.heads * s.dim;
    args.out = out.data() + first * s.heads * s.dim;
    args.rows = count;
    args.num_heads = s.heads;
    args.first_position = first;
    args.window = s.window;
    args.scale = 0.2f;
    args.kv = &cache.layer;
    backend.Attention(args);
  }
  return out;
}

TEST(AttentionTest, SameBitsForAnyChunkAndThreads) {
  const size_t rows = 530;
  for (const AttentionShape& s :
       {AttentionShape{3, 1, 16, 0}, {4, 1, 8, 200}, {2, 2, 16, 1}, {6, 2, 8, 300}}) {
    for (KvType type : {KvType::kF16, KvType::kF32}) {
      const std::vector<float> want =
          AttendInChunks(*MakeBackend(kReferenceKernels, 1), s, type, rows, rows);
      for (float value : want) ASSERT_FALSE(std::isnan(value)) << "read an unwritten position";
      for (int threads : {1, 3}) {
        const auto backend = BestBackend(threads);
        for (size_t chunk : {size_t{1}, size_t{100}, size_t{257}, rows}) {
          EXPECT_TRUE(SameBits(AttendInChunks(*backend, s, type, rows, chunk), want))
              << s.heads << "/" << s.kv_heads << " window " << s.window << " threads " << threads
              << " chunk " << chunk;
        }
      }
    }
  }
}

// A window of 1 sees only the row's own value; no window is the same as one that covers everything.
TEST(AttentionTest, WindowLimitsWhatIsSeen) {
  const auto backend = BestBackend(2);
  const size_t rows = 300, dim = 16;
  const std::vector<float> v = RandomFloats(rows * dim, 13);
  const auto own = AttendInChunks(*backend, {1, 1, dim, 1}, KvType::kF32, rows, rows);
  EXPECT_TRUE(SameBits(own, v));
  const auto all = AttendInChunks(*backend, {1, 1, dim, 0}, KvType::kF32, rows, rows);
  const auto wide = AttendInChunks(*backend, {1, 1, dim, rows}, KvType::kF32, rows, rows);
  EXPECT_TRUE(SameBits(all, wide));
  const auto narrow = AttendInChunks(*backend, {1, 1, dim, rows - 1}, KvType::kF32, rows, rows);
  EXPECT_TRUE(SameBits(narrow.data(), all.data(), (rows - 1) * dim));
  EXPECT_FALSE(SameBits(narrow.data() + (rows - 1) * dim, all.data() + (rows - 1) * dim, dim));
}

}  // namespace
}  // namespace pocketlm
