// Softmax attention over one block of the cache on 256 bits. Included only by avx2_attention.cc and
// avxvnni_attention.cc, each of which compiles its own copy. Up to four query heads share each load of a key or value.
#pragma once

#include "backend/cpu/reference/attention.h"
#include "backend/cpu/x86/avx2_bytes.h"

namespace pocketlm {
namespace {

constexpr int kMaxHeads = 4;

// kv_layout.h, computed here because inline functions of headers must not be compiled for this instruction set.
constexpr bool IsQuantized(KvType type) { return type == KvType::kI8 || type == KvType::kI4; }
inline size_t GroupOf(size_t dim) { return dim % 64 == 0 ? 64 : dim; }
inline size_t CodeBytes(KvType type, size_t dim) {
  return type == KvType::kF32   ? 4 * dim
         : type == KvType::kF16 ? 2 * dim
         : type == KvType::kI8  ? dim
                                : dim / 2;
}

// Scores of a block, then exp(score - max), and what multiplies the values.
struct Weights {
  alignas(32) float p[kMaxHeads][kAttentionBlock];
  alignas(32) float scaled[kMaxHeads][kAttentionBlock];
};

inline void PrefetchRange(const std::byte* p, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
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

template <int H, KvType kType>
void Scores(const AttendBlockArgs& args, size_t head, Weights* weights) {
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
          _mm256_store_ps(weights->p[h] + tile * kKvTile + 8 * (half + i), s[h][i]);
      }
    }
  }
}

// Scores become exp(score - max); those of hidden positions zero.
inline void Softmax(const AttendBlockArgs& args, float* p, float* max_out, float* sum_out) {
  const size_t begin = args.begin / kKvTile * kKvTile;
  const size_t end = (args.end + kKvTile - 1) / kKvTile * kKvTile;
  const float hidden = -__builtin_inff();
  for (size_t n = begin; n < args.begin; ++n) p[n] = hidden;
  for (size_t n = args.end; n < end; ++n) p[n] = hidden;
  __m256 max8 = _mm256_set1_ps(hidden);
  for (size_t n = begin; n < end; n += 8) max8 = _mm256_max_ps(_mm256_load_ps(p + n), max8);
  __m128 max4 = _mm_max_ps(_mm256_castps256_ps128(max8), _mm256_extractf128_ps(max8, 1));
  max4 = _mm_max_ps(max4, _mm_movehl_ps(max4, max4));
  max4 = _mm_max_ps(max4, _mm_movehdup_ps(max4));
  *max_out = _mm_cvtss_f32(max4);
  const __m256 max = _mm256_set1_ps(*max_out);
  Lanes lanes = ZeroLanes();
  for (size_t n = begin; n < end; n += kLanes) {
    const __m256 low = Exp8(_mm256_sub_ps(_mm256_load_ps(p + n), max));
    const __m256 high = Exp8(_mm256_sub_ps(_mm256_load_ps(p + n + 8), max));
    _mm256_store_ps(p + n, low);
    _mm256_store_ps(p + n + 8, high);
    lanes.low = _mm256_add_ps(lanes.low, low);
    lanes.high = _mm256_add_ps(lanes.high, high);
  }
  *sum_out = ReduceLanes(lanes);
}

// 8 values of a position from value `d` on; for i4, dim is a multiple of 64.
template <KvType kType>
inline __m256 LoadValues(const std::byte* row, size_t d) {
  if constexpr (kType == KvType::kF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row + 4 * d));
  if constexpr (kType == KvType::kF16) return LoadHalves(row + 2 * d);
  if constexpr (kType == KvType::kI8) {
    const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + d));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
  }
  // Values of the lower half of a group of 64 lie in low nibbles, the others in high ones.
  const size_t in_group = d % 64;
  const __m128i bytes =
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + d / 64 * 32 + in_group % 32));
  const __m128i nibbles =
      _mm_and_si128(in_group < 32 ? bytes : _mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_sub_epi8(nibbles, _mm_set1_epi8(8))));
}

// out[h][d, d + 8·D) of H heads.
template <int H, int D, KvType kType>
void Values(const AttendBlockArgs& args, const float (&w)[kMaxHeads][kAttentionBlock], size_t d,
            float* out) {
  const size_t row_bytes = CodeBytes(kType, args.head_dim);
  const size_t key_bytes = CodeBytes(args.k_type, args.head_dim);
  const std::byte* next_keys = args.k + kAttentionBlock * key_bytes;
  const std::byte* row = args.v + args.begin * row_bytes;
  __m256 o[H][D];
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j) o[h][j] = _mm256_setzero_ps();
  }
  for (size_t n = args.begin; n < args.end; ++n, row += row_bytes) {
    if (d == 0) PrefetchRange(next_keys + n * key_bytes, key_bytes);
    __m256 v[D];
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j) v[j] = LoadValues<kType>(row, d + 8 * static_cast<size_t>(j));
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 weight = _mm256_broadcast_ss(&w[h][n]);
#pragma GCC unroll 4
      for (int j = 0; j < D; ++j) o[h][j] = _mm256_fmadd_ps(weight, v[j], o[h][j]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j)
      _mm256_storeu_ps(out + static_cast<size_t>(h) * args.head_dim + d + 8 * j, o[h][j]);
  }
}

// scaled = p · v_scale of one group.
inline void ScaleWeights(const AttendBlockArgs& args, int heads, size_t group, size_t groups,
                         Weights* weights) {
  for (size_t tile = args.begin / kKvTile; tile * kKvTile < args.end; ++tile) {
    for (size_t half = 0; half < 2; ++half) {
      const size_t n = tile * kKvTile + 8 * half;
      const __m256 scale = LoadHalves(args.v_scales + (tile * groups + group) * kKvTile + 8 * half);
      for (int h = 0; h < heads; ++h) {
        const __m256 p = _mm256_load_ps(weights->p[h] + n);
        _mm256_store_ps(weights->scaled[h] + n, _mm256_mul_ps(p, scale));
      }
    }
  }
}

template <int H, KvType kType>
void AllValues(const AttendBlockArgs& args, Weights* weights, float* out) {
  const size_t dim = args.head_dim;
  const size_t group = IsQuantized(kType) ? GroupOf(dim) : dim;
  for (size_t begin = 0; begin < dim; begin += group) {
    if (IsQuantized(kType)) ScaleWeights(args, H, begin / group, dim / group, weights);
    const auto& w = IsQuantized(kType) ? weights->scaled : weights->p;
    // About 8 chains of fused multiply-adds hide each other's latency.
    constexpr size_t kWide = H == 4 ? 2 : 4;
    size_t d = begin;
    for (; d + 8 * kWide <= begin + group; d += 8 * kWide) Values<H, kWide, kType>(args, w, d, out);
    for (; d + 8 <= begin + group; d += 8) Values<H, 1, kType>(args, w, d, out);
  }
}

template <int H>
void AttendHeads(const AttendBlockArgs& args, size_t head, const AttentionState& state) {
  Weights weights;
  switch (args.k_type) {
    case KvType::kF32:
      Scores<H, KvType::kF32>(args, head, &weights);
      break;
    case KvType::kF16:
      Scores<H, KvType::kF16>(args, head, &weights);
      break;
    case KvType::kI8:
      Scores<H, KvType::kI8>(args, head, &weights);
      break;
    case KvType::kI4:
      Scores<H, KvType::kI4>(args, head, &weights);
      break;
  }
  for (int h = 0; h < H; ++h)
    Softmax(args, weights.p[h], state.max + head + h, state.sum + head + h);
  float* out = state.out + head * args.head_dim;
  switch (args.v_type) {
    case KvType::kF32:
      return AllValues<H, KvType::kF32>(args, &weights, out);
    case KvType::kF16:
      return AllValues<H, KvType::kF16>(args, &weights, out);
    case KvType::kI8:
      return AllValues<H, KvType::kI8>(args, &weights, out);
    case KvType::kI4:
      return AllValues<H, KvType::kI4>(args, &weights, out);
  }
}

inline void AttendAllHeads(const AttendBlockArgs& args, const AttentionState& state) {
  // Sizes that no real model has take the slow way.
  if (args.head_dim % (args.v_type == KvType::kI4 ? 64 : 8) != 0)
    return reference::AttendBlock(args, state);
  size_t head = 0;
  for (; head + kMaxHeads <= args.heads; head += kMaxHeads)
    AttendHeads<kMaxHeads>(args, head, state);
  switch (args.heads - head) {
    case 3:
      return AttendHeads<3>(args, head, state);
    case 2:
      return AttendHeads<2>(args, head, state);
    case 1:
      return AttendHeads<1>(args, head, state);
    default:
      return;
  }
}

}  // namespace
}  // namespace pocketlm
