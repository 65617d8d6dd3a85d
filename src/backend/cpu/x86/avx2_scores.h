// Scores of one block of the cache on 256 bits. Included only by avx2_attention.h, under the same conditions.
#pragma once

#include "backend/cpu/x86/avx2_bytes.h"

namespace pocketlm {
namespace {

constexpr int kScoreHeads = 4;  // query heads that share each load of a key

// kv_layout.h, computed here because inline functions of headers must not be compiled for this instruction set.
constexpr bool IsQuantized(KvType type) { return type == KvType::kI8 || type == KvType::kI4; }
inline size_t GroupOf(size_t dim) { return dim % 64 == 0 ? 64 : dim; }
inline size_t CodeBytes(KvType type, size_t dim) {
  return type == KvType::kF32   ? 4 * dim
         : type == KvType::kF16 ? 2 * dim
         : type == KvType::kI8  ? dim
                                : dim / 2;
}

inline void PrefetchRange(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T1);
}

// Σ q_code · k_code of one group for 8·V positions and H heads. The bias is taken off.
template <int H, int V>
inline void ByteDots(const std::byte* k, const int8_t* q, size_t dim, size_t group,
                     const int32_t* q_sums, size_t groups, __m256i (&dot)[H][V]) {
#pragma GCC unroll 4
  for (size_t h = 0; h < H; ++h) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i)
      dot[h][i] = kVnni ? _mm256_set1_epi32(-128 * q_sums[h * groups]) : _mm256_setzero_si256();
  }
  for (size_t d = 0; d < group; d += 4, k += 64) {
    __m256i codes[V];
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) codes[i] = LoadBytes(k + 32 * i);
#pragma GCC unroll 4
    for (size_t h = 0; h < H; ++h) {
      const __m256i x = Broadcast4(q + h * dim + d);
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i)
        dot[h][i] =
            kVnni ? DotAdd(dot[h][i], codes[i], x) : AddSigned(dot[h][i], Biased(codes[i]), x);
    }
  }
}

// Adds the products of up to 32 dimensions from `begin` on: to sums of 16 bits in AVX2.
template <int H, int V>
inline void AddNibbleDots(const std::byte* k, const int8_t* q, size_t dim, size_t begin, size_t end,
                          __m256i (&sum)[H][V]) {
  for (size_t d = begin; d < end; d += 8) {
    __m256i low[V], high[V];
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) {
      const __m256i codes = LoadBytes(k + 8 * d + 32 * i);
      low[i] = LowNibbles(codes);
      high[i] = HighNibbles(codes);
    }
#pragma GCC unroll 4
    for (size_t h = 0; h < H; ++h) {
      const __m256i x0 = Broadcast4(q + h * dim + d), x1 = Broadcast4(q + h * dim + d + 4);
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) {
        sum[h][i] = kVnni ? DotAdd(sum[h][i], low[i], x0) : AddPairs(sum[h][i], low[i], x0);
        sum[h][i] = kVnni ? DotAdd(sum[h][i], high[i], x1) : AddPairs(sum[h][i], high[i], x1);
      }
    }
  }
}

template <int H, int V>
inline void NibbleDots(const std::byte* k, const int8_t* q, size_t dim, size_t group,
                       const int32_t* q_sums, size_t groups, __m256i (&dot)[H][V]) {
#pragma GCC unroll 4
  for (size_t h = 0; h < H; ++h) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) dot[h][i] = _mm256_set1_epi32(-8 * q_sums[h * groups]);
  }
  if constexpr (kVnni) return AddNibbleDots(k, q, dim, 0, group, dot);
  for (size_t begin = 0; begin < group; begin += 32) {
    __m256i sum[H][V];
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) sum[h][i] = _mm256_setzero_si256();
    }
    AddNibbleDots(k, q, dim, begin, Min(begin + 32, group), sum);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) dot[h][i] = _mm256_add_epi32(dot[h][i], WidenPairs(sum[h][i]));
    }
  }
}

// Scores of 8·V positions against keys of codes; `codes` and `scales` of the first of them.
template <int H, int V, KvType kType>
inline void CodeScores(const AttendBlockArgs& args, size_t head, const std::byte* codes,
                       const uint16_t* scales, __m256 (&s)[H][V]) {
  const size_t dim = args.head_dim, group = GroupOf(dim), groups = dim / group;
  for (size_t g = 0; g < groups; ++g) {
    const int8_t* q = args.q_codes + head * dim + g * group;
    const size_t at = head * groups + g;
    __m256i dot[H][V];
    if constexpr (kType == KvType::kI8) {
      ByteDots(codes + g * group * 16, q, dim, group, args.q_code_sums + at, groups, dot);
    } else {
      NibbleDots(codes + g * group * 8, q, dim, group, args.q_code_sums + at, groups, dot);
    }
    __m256 scale[V];
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) scale[i] = LoadHalves(scales + g * kKvTile + 8 * i);
#pragma GCC unroll 4
    for (size_t h = 0; h < H; ++h) {
      const __m256 q_scale = _mm256_broadcast_ss(args.q_scales + at + h * groups);
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) {
        const __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(dot[h][i]), q_scale);
        s[h][i] = _mm256_fmadd_ps(value, scale[i], s[h][i]);
      }
    }
  }
}

// Scores of 8·V positions against float keys.
template <int H, int V, KvType kType>
inline void FloatScores(const AttendBlockArgs& args, size_t head, const std::byte* k,
                        __m256 (&s)[H][V]) {
  const float* q = args.q + head * args.head_dim;
  for (size_t d = 0; d < args.head_dim; ++d) {
    __m256 keys[V];
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) {
      keys[i] = kType == KvType::kF16
                    ? LoadHalves(k + 32 * d + 16 * i)
                    : _mm256_loadu_ps(reinterpret_cast<const float*>(k + 64 * d + 32 * i));
    }
#pragma GCC unroll 4
    for (size_t h = 0; h < H; ++h) {
      const __m256 query = _mm256_broadcast_ss(q + h * args.head_dim + d);
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) s[h][i] = _mm256_fmadd_ps(query, keys[i], s[h][i]);
    }
  }
}

// p[h][n]: of whole tiles, hidden positions included.
template <int H, KvType kType>
void Scores(const AttendBlockArgs& args, size_t head, float (*p)[kAttentionBlock]) {
  const size_t dim = args.head_dim;
  const size_t tile_bytes = kKvTile * CodeBytes(kType, dim);
  const size_t value_bytes = kKvTile * CodeBytes(args.v_type, dim);
  // Bytes from the first 8 positions of a tile to the others.
  constexpr size_t kSecond = kType == KvType::kF16 ? 16 : 32;
  constexpr int V = 2;
  for (size_t tile = args.begin / kKvTile; tile * kKvTile < args.end; ++tile) {
    if (head == 0) PrefetchRange(args.v + tile * value_bytes, value_bytes);
    for (size_t half = 0; half < 2; half += V) {
      const std::byte* k = args.k + tile * tile_bytes + half * kSecond;
      __m256 s[H][V];
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
        for (int i = 0; i < V; ++i) s[h][i] = _mm256_setzero_ps();
      }
      if constexpr (IsQuantized(kType)) {
        const uint16_t* scales = args.k_scales + tile * kKvTile * (dim / GroupOf(dim)) + 8 * half;
        CodeScores<H, V, kType>(args, head, k, scales, s);
      } else {
        FloatScores<H, V, kType>(args, head, k, s);
      }
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
        for (size_t i = 0; i < V; ++i)
          _mm256_store_ps(p[h] + tile * kKvTile + 8 * (half + i), s[h][i]);
      }
    }
  }
}

template <int H>
void ScoresOfType(const AttendBlockArgs& args, size_t head, float (*p)[kAttentionBlock]) {
  switch (args.k_type) {
    case KvType::kF32:
      return Scores<H, KvType::kF32>(args, head, p);
    case KvType::kF16:
      return Scores<H, KvType::kF16>(args, head, p);
    case KvType::kI8:
      return Scores<H, KvType::kI8>(args, head, p);
    case KvType::kI4:
      return Scores<H, KvType::kI4>(args, head, p);
  }
}

// Scores of `heads` heads from `head` on.
inline void AllScores(const AttendBlockArgs& args, size_t head, int heads,
                      float (*p)[kAttentionBlock]) {
  for (; heads >= kScoreHeads; heads -= kScoreHeads, head += kScoreHeads, p += kScoreHeads)
    ScoresOfType<kScoreHeads>(args, head, p);
  switch (heads) {
    case 3:
      return ScoresOfType<3>(args, head, p);
    case 2:
      return ScoresOfType<2>(args, head, p);
    case 1:
      return ScoresOfType<1>(args, head, p);
    default:
      return;
  }
}

}  // namespace
}  // namespace pocketlm
