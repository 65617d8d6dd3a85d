// RopeAppend and Attention of the CPU backend: the same bits for any instruction set, number of threads and
// chunking of a prompt, for every pair of cache types; what a window hides; long contexts.

#include <gtest/gtest.h>

#include <algorithm>

#include "attention_inputs.h"
#include "backend/backend.h"
#include "backend/cpu/kv_store.h"
#include "backend_inputs.h"
#include "kernel_inputs.h"
#include "kv_cache.h"

namespace pocketlm {
namespace {

using testing::ForEachBackend;
using testing::kAllKvTypes;
using testing::KvCache;
using testing::KvTypeName;
using testing::RandomFloats;
using testing::ReferenceBackend;
using testing::SameBits;

struct Shape {
  size_t heads, kv_heads, dim, window;
};

BackendLimits LimitsOf(const Shape& s, size_t rows) {
  return {.rows = rows,
          .cols = 64,
          .num_heads = s.heads,
          .num_kv_heads = s.kv_heads,
          .head_dim = s.dim,
          .positions = rows};
}

std::string PairName(KvType k_type, KvType v_type) {
  return std::string(KvTypeName(k_type)) + "/" + KvTypeName(v_type);
}

// The projections of a prompt and what normalizes and rotates them.
struct Prompt {
  Prompt(const Shape& s, size_t count)
      : shape(s),
        rows(count),
        q(RandomFloats(count * s.heads * s.dim, 11)),
        k(RandomFloats(count * s.kv_heads * s.dim, 12)),
        v(RandomFloats(k.size(), 13)),
        norm(RandomFloats(s.dim, 14)),
        cos(RandomFloats(count * s.dim / 2, 15)),
        sin(RandomFloats(cos.size(), 16)) {}

  // Normalizes, rotates and stores rows [first, first + count).
  void Append(Backend& backend, const KvLayer& kv, size_t first, size_t count) {
    RopeAppendArgs args;
    args.q = q.data() + first * shape.heads * shape.dim;
    args.k = k.data() + first * shape.kv_heads * shape.dim;
    args.v = v.data() + first * shape.kv_heads * shape.dim;
    args.rows = count;
    args.num_heads = shape.heads;
    args.q_norm = args.k_norm = norm.data();
    args.norm_eps = 1e-6f;
    args.cos = cos.data() + first * shape.dim / 2;
    args.sin = sin.data() + first * shape.dim / 2;
    args.kv = &kv;
    args.first_position = first;
    backend.RopeAppend(args);
  }

  // Attention of rows [first, first + count), into their place of out [rows, heads, dim].
  void Attend(Backend& backend, const KvLayer& kv, size_t first, size_t count,
              std::vector<float>* out) const {
    AttentionArgs args;
    args.q = q.data() + first * shape.heads * shape.dim;
    args.out = out->data() + first * shape.heads * shape.dim;
    args.rows = count;
    args.num_heads = shape.heads;
    args.first_position = first;
    args.window = shape.window;
    args.scale = 0.2f;
    args.kv = &kv;
    backend.Attention(args);
  }

  Shape shape;
  size_t rows;
  std::vector<float> q, k, v, norm, cos, sin;
};

std::vector<float> RunInChunks(Backend& backend, const Shape& s, KvType k_type, KvType v_type,
                               size_t rows, size_t chunk) {
  Prompt prompt(s, rows);
  const KvCache cache(k_type, v_type, rows, s.kv_heads, s.dim);
  std::vector<float> out(prompt.q.size());
  for (size_t first = 0; first < rows; first += chunk) {
    const size_t count = std::min(chunk, rows - first);
    prompt.Append(backend, cache.layer(), first, count);
    prompt.Attend(backend, cache.layer(), first, count, &out);
  }
  return out;
}

void ExpectSameInAnyChunks(const Shape& s, KvType k_type, KvType v_type, size_t rows,
                           const std::vector<size_t>& chunks) {
  const std::vector<float> want =
      RunInChunks(*ReferenceBackend(LimitsOf(s, rows)), s, k_type, v_type, rows, rows);
  for (float value : want) ASSERT_FALSE(std::isnan(value)) << "read an unwritten position";
  ForEachBackend(LimitsOf(s, rows), {1, 3}, [&](Backend& backend, const std::string& name) {
    for (size_t chunk : chunks) {
      if (backend.name() == std::string("reference") && chunk != chunks.back()) continue;  // slow
      EXPECT_TRUE(SameBits(RunInChunks(backend, s, k_type, v_type, rows, chunk), want))
          << PairName(k_type, v_type) << ", " << s.heads << "/" << s.kv_heads << " heads of "
          << s.dim << ", window " << s.window << ", " << name << ", chunk " << chunk;
    }
  });
}

TEST(AttentionTest, SameBitsForAnyChunkAndThreads) {
  constexpr Shape kShapes[] = {{3, 1, 8, 0}, {4, 2, 8, 200}, {2, 2, 16, 1}, {2, 1, 8, 270}};
  size_t i = 0;
  for (KvType k_type : kAllKvTypes) {
    for (KvType v_type : kAllKvTypes)
      ExpectSameInAnyChunks(kShapes[i++ % 4], k_type, v_type, 280, {1, 280, 100});
  }
}

TEST(AttentionTest, ManyBlocksAndTwoGroupsOfScales) {
  ExpectSameInAnyChunks({2, 1, 128, 0}, KvType::kI8, KvType::kI8, 262, {131});
  ExpectSameInAnyChunks({1, 1, 128, 250}, KvType::kI4, KvType::kI8, 262, {131});
  ExpectSameInAnyChunks({2, 1, 8, 0}, KvType::kI8, KvType::kI4, 800, {799, 256});
}

// Single rows, and a few, over contexts so long that threads share the blocks of one row.
TEST(AttentionTest, LongContexts) {
  const size_t positions = 1530;
  for (const Shape& s : {Shape{4, 1, 8, 0}, {2, 2, 8, 0}, {3, 1, 8, 1100}, {4, 2, 16, 1300}}) {
    for (KvType type : {KvType::kF16, KvType::kI8}) {
      const KvType v_type = type == KvType::kI8 ? KvType::kI4 : KvType::kI8;
      Prompt prompt(s, positions);
      const KvCache cache(type, v_type, positions, s.kv_heads, s.dim);
      const auto reference = ReferenceBackend(LimitsOf(s, positions));
      prompt.Append(*reference, cache.layer(), 0, positions);
      constexpr size_t kFirsts[] = {1021, 1279, 1525};
      std::vector<float> want(prompt.q.size(), 0.0f);
      for (size_t first : kFirsts) {
        for (size_t r = 0; r < 5; ++r)
          prompt.Attend(*reference, cache.layer(), first + r, 1, &want);
      }
      ForEachBackend(
          LimitsOf(s, positions), {1, 2, 3, 4}, [&](Backend& backend, const std::string& name) {
            for (size_t rows : {1, 3}) {
              std::vector<float> got(prompt.q.size(), 0.0f);
              for (size_t first : kFirsts) {
                for (size_t r = 0; r < 5; r += rows)
                  prompt.Attend(backend, cache.layer(), first + r, std::min(rows, 5 - r), &got);
              }
              EXPECT_TRUE(SameBits(got, want))
                  << PairName(type, v_type) << ", " << s.heads << "/" << s.kv_heads << " window "
                  << s.window << ", " << name << ", " << rows << " rows";
            }
          });
    }
  }
}

// A window of 1 sees only the row's own value; no window is the same as one that covers everything.
TEST(AttentionTest, WindowLimitsWhatIsSeen) {
  const size_t rows = 300, dim = 16;
  const auto backend = ReferenceBackend(LimitsOf({1, 1, dim, 0}, rows));
  const auto run = [&](size_t window) {
    return RunInChunks(*backend, {1, 1, dim, window}, KvType::kF32, KvType::kF32, rows, rows);
  };
  const std::vector<float> v = Prompt({1, 1, dim, 0}, rows).v;
  EXPECT_TRUE(SameBits(run(1), v));
  const auto all = run(0), narrow = run(rows - 1);
  EXPECT_TRUE(SameBits(all, run(rows)));
  EXPECT_TRUE(SameBits(narrow.data(), all.data(), (rows - 1) * dim));
  EXPECT_FALSE(SameBits(narrow.data() + (rows - 1) * dim, all.data() + (rows - 1) * dim, dim));
}

// One position's softmax is 1: attention gives back the stored value, whatever the type, within its step.
TEST(AttentionTest, GivesBackASingleValue) {
  const Shape s{3, 1, 64, 1};
  const std::vector<float> v = Prompt(s, 20).v;
  for (KvType v_type : kAllKvTypes) {
    const auto out =
        RunInChunks(*ReferenceBackend(LimitsOf(s, 20)), s, KvType::kF16, v_type, 20, 20);
    for (size_t row = 0; row < 20; ++row) {
      double largest = 0, squares = 0, errors = 0;
      for (size_t d = 0; d < 64; ++d) {
        const double value = v[row * 64 + d];
        largest = std::max(largest, std::abs(value));
        squares += value * value;
        errors += std::pow(out[row * 3 * 64 + d] - value, 2);
      }
      // Steps: half 2^-11 of a value, i8 the largest / 254. i4: after the rotation no value exceeds
      // the norm of its group, and none is off by more than an eighth of the largest.
      const double bound = v_type == KvType::kF32   ? 0
                           : v_type == KvType::kF16 ? std::sqrt(squares) * 0x1p-11
                           : v_type == KvType::kI8  ? 8 * largest / 253
                                                    : std::sqrt(squares);
      EXPECT_LE(std::sqrt(errors), bound) << KvTypeName(v_type);
      if (v_type == KvType::kI4) {
        EXPECT_LE(std::sqrt(errors), 0.15 * std::sqrt(squares)) << "i4";
      }
    }
  }
}

// RopeAppend is rms_norm and rope of each head, then StoreKey and StoreValue.
TEST(RopeAppendTest, IsNormRopeAndStore) {
  const Shape s{6, 2, 64, 0};
  const size_t rows = 37, first = 5;
  const std::vector<float> q_norm = RandomFloats(s.dim, 1), k_norm = RandomFloats(s.dim, 2);
  const CpuKernels& kernels = kReferenceKernels;
  for (int variant = 0; variant < 4; ++variant) {
    const bool normalize = variant % 2 == 1, interleaved = variant >= 2;
    const KvType k_type = kAllKvTypes[variant], v_type = kAllKvTypes[3 - variant];
    const Prompt original(s, rows);
    Prompt want = original;
    const KvCache want_cache(k_type, v_type, first + rows, s.kv_heads, s.dim);
    const auto prepare = [&](float* x, size_t heads, const std::vector<float>& norm, size_t row) {
      for (size_t h = 0; normalize && h < heads; ++h)
        kernels.rms_norm(x + h * s.dim, s.dim, norm.data(), 1e-5f, x + h * s.dim);
      const auto rope = interleaved ? kernels.rope_interleaved : kernels.rope_halves;
      rope(x, heads, s.dim, want.cos.data() + row * s.dim / 2, want.sin.data() + row * s.dim / 2);
    };
    for (size_t r = 0; r < rows; ++r) {
      prepare(want.q.data() + r * s.heads * s.dim, s.heads, q_norm, r);
      prepare(want.k.data() + r * s.kv_heads * s.dim, s.kv_heads, k_norm, r);
      for (size_t h = 0; h < s.kv_heads; ++h) {
        const size_t at = (r * s.kv_heads + h) * s.dim;
        StoreKey(kernels, want_cache.layer(), h, first + r, want.k.data() + at);
        StoreValue(kernels, want_cache.layer(), h, first + r, want.v.data() + at);
      }
    }
    ForEachBackend(LimitsOf(s, 64), {1, 2, 4}, [&](Backend& backend, const std::string& name) {
      for (size_t chunk : {size_t{1}, size_t{16}, rows}) {
        Prompt got = original;
        const KvCache cache(k_type, v_type, first + rows, s.kv_heads, s.dim);
        for (size_t r = 0; r < rows; r += chunk) {
          RopeAppendArgs args;
          args.q = got.q.data() + r * s.heads * s.dim;
          args.k = got.k.data() + r * s.kv_heads * s.dim;
          args.v = got.v.data() + r * s.kv_heads * s.dim;
          args.rows = std::min(chunk, rows - r);
          args.num_heads = s.heads;
          if (normalize) args.q_norm = q_norm.data();
          if (normalize) args.k_norm = k_norm.data();
          args.norm_eps = 1e-5f;
          args.cos = got.cos.data() + r * s.dim / 2;
          args.sin = got.sin.data() + r * s.dim / 2;
          args.layout = interleaved ? RopeLayout::kInterleaved : RopeLayout::kHalves;
          args.kv = &cache.layer();
          args.first_position = first + r;
          backend.RopeAppend(args);
        }
        EXPECT_TRUE(SameBits(got.q, want.q)) << name << ", chunk " << chunk;
        EXPECT_EQ(cache.Copy(), want_cache.Copy()) << name << ", chunk " << chunk;
      }
    });
  }
}

}  // namespace
}  // namespace pocketlm
