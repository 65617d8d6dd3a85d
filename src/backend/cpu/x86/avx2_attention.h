// Softmax attention over one block of the cache on 256 bits, for AVX2 and, where __AVXVNNI__ is defined, with VPDPBUSD.
// Included only by avx2_attention.cc and avxvnni_attention.cc, each of which compiles its own copy. Up to four query
// heads share each load of a key or value.
#pragma once

#include "backend/cpu/reference/attention.h"
#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {
namespace {

#if defined(__AVXVNNI__)
constexpr bool kVnni = true;
inline __m256i DotAdd(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
}
#else
constexpr bool kVnni = false;
inline __m256i DotAdd(__m256i sum, __m256i, __m256i) { return sum; }  // not called
#endif

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

inline __m256i LoadCodes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}

inline __m256i BroadcastInts(const int8_t* x) {
  int value;
  __builtin_memcpy(&value, x, 4);
  return _mm256_set1_epi32(value);
}

inline __m256 LoadHalves(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

inline __m256i WidenSums(__m256i sums16) { return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1)); }

// Adds the products of 4 biased i8 codes of 8 positions with 4 of the query.
inline __m256i AddBytes(__m256i sum, __m256i biased, const int8_t* q) {
  const __m256i x = BroadcastInts(q);
  if constexpr (kVnni) return DotAdd(sum, biased, x);
  // |code| · |query| · 2 fits 16 bits.
  const __m256i codes = _mm256_xor_si256(biased, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
  return _mm256_add_epi32(sum, WidenSums(pairs));
}

// Σ q_code · k_code of one group for 8 positions and H heads; k: 64 bytes apart. The bias is taken off.
template <int H>
inline void ByteDots(const std::byte* k, const int8_t* q, size_t dim, size_t group,
                     const int32_t* q_sums, size_t groups, __m256i (&dot)[H]) {
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
    dot[h] = kVnni ? _mm256_set1_epi32(-128 * q_sums[static_cast<size_t>(h) * groups])
                   : _mm256_setzero_si256();
  for (size_t d = 0; d < group; d += 4, k += 64) {
    const __m256i codes = LoadCodes(k);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h)
      dot[h] = AddBytes(dot[h], codes, q + static_cast<size_t>(h) * dim + d);
  }
}

template <int H>
inline void NibbleDots(const std::byte* k, const int8_t* q, size_t dim, size_t group,
                       const int32_t* q_sums, size_t groups, __m256i (&dot)[H]) {
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h)
    dot[h] = _mm256_set1_epi32(-8 * q_sums[static_cast<size_t>(h) * groups]);
  const __m256i mask = _mm256_set1_epi8(15);
  for (size_t d = 0; d < group; d += 8, k += 64) {
    const __m256i codes = LoadCodes(k);
    const __m256i low = _mm256_and_si256(codes, mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(codes, 4), mask);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const int8_t* from = q + static_cast<size_t>(h) * dim + d;
      if constexpr (kVnni) {
        dot[h] = DotAdd(DotAdd(dot[h], low, BroadcastInts(from)), high, BroadcastInts(from + 4));
      } else {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, BroadcastInts(from)),
                                               _mm256_maddubs_epi16(high, BroadcastInts(from + 4)));
        dot[h] = _mm256_add_epi32(dot[h], WidenSums(pairs));
      }
    }
  }
}

// Scores of 8 positions against keys of codes; `codes` and `scales` of the first of them.
template <int H, KvType kType>
inline void CodeScores(const AttendBlockArgs& args, size_t head, const std::byte* codes,
                       const uint16_t* scales, __m256 (&s)[H]) {
  const size_t dim = args.head_dim, group = GroupOf(dim), groups = dim / group;
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) s[h] = _mm256_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    const int8_t* q = args.q_codes + head * dim + g * group;
    const size_t at = head * groups + g;
    __m256i dot[H];
    if constexpr (kType == KvType::kI8) {
      ByteDots<H>(codes + g * group * 16, q, dim, group, args.q_code_sums + at, groups, dot);
    } else {
      NibbleDots<H>(codes + g * group * 8, q, dim, group, args.q_code_sums + at, groups, dot);
    }
    const __m256 scale = LoadHalves(scales + g * kKvTile);
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 q_scale =
          _mm256_broadcast_ss(args.q_scales + at + static_cast<size_t>(h) * groups);
      s[h] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(dot[h]), q_scale), scale, s[h]);
    }
  }
}

// Scores of 8 positions against float keys.
template <int H, KvType kType>
inline void FloatScores(const AttendBlockArgs& args, size_t head, const std::byte* k,
                        __m256 (&s)[H]) {
  const float* q = args.q + head * args.head_dim;
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) s[h] = _mm256_setzero_ps();
  for (size_t d = 0; d < args.head_dim; ++d) {
    const __m256 keys = kType == KvType::kF16
                            ? LoadHalves(k + 32 * d)
                            : _mm256_loadu_ps(reinterpret_cast<const float*>(k + 64 * d));
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 query = _mm256_broadcast_ss(q + static_cast<size_t>(h) * args.head_dim + d);
      s[h] = _mm256_fmadd_ps(query, keys, s[h]);
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
  for (size_t tile = args.begin / kKvTile; tile * kKvTile < args.end; ++tile) {
    if (head == 0) PrefetchRange(args.v + tile * value_bytes, value_bytes);
    for (size_t half = 0; half < 2; ++half) {
      const std::byte* k = args.k + tile * tile_bytes + half * kSecond;
      __m256 s[H];
      if constexpr (IsQuantized(kType)) {
        const uint16_t* scales = args.k_scales + tile * kKvTile * (dim / GroupOf(dim)) + 8 * half;
        CodeScores<H, kType>(args, head, k, scales, s);
      } else {
        FloatScores<H, kType>(args, head, k, s);
      }
#pragma GCC unroll 4
      for (int h = 0; h < H; ++h) _mm256_store_ps(weights->p[h] + tile * kKvTile + 8 * half, s[h]);
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
#pragma GCC unroll 2
    for (int j = 0; j < D; ++j) o[h][j] = _mm256_setzero_ps();
  }
  for (size_t n = args.begin; n < args.end; ++n, row += row_bytes) {
    if (d == 0) PrefetchRange(next_keys + n * key_bytes, key_bytes);
    __m256 v[D];
#pragma GCC unroll 2
    for (int j = 0; j < D; ++j) v[j] = LoadValues<kType>(row, d + 8 * static_cast<size_t>(j));
#pragma GCC unroll 4
    for (int h = 0; h < H; ++h) {
      const __m256 weight = _mm256_broadcast_ss(&w[h][n]);
#pragma GCC unroll 2
      for (int j = 0; j < D; ++j) o[h][j] = _mm256_fmadd_ps(weight, v[j], o[h][j]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 2
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
    size_t d = begin;
    for (; d + 16 <= begin + group; d += 16) Values<H, 2, kType>(args, w, d, out);
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
