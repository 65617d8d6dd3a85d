// Softmax attention over one block of the cache on 256 bits. Included only by avx2_attention.cc and
// avxvnni_attention.cc, each of which compiles its own copy.
#pragma once

#include "backend/cpu/reference/attention.h"
#include "backend/cpu/x86/avx2_scores.h"

namespace pocketlm {
namespace {

constexpr int kMaxHeads = 8;  // query heads that share each load of a value

// Scores of a block, then exp(score - max), and what multiplies the values.
struct Weights {
  alignas(32) float p[kMaxHeads][kAttentionBlock];
  alignas(32) float scaled[kMaxHeads][kAttentionBlock];
};

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
#pragma GCC unroll 8
  for (int h = 0; h < H; ++h) {
#pragma GCC unroll 4
    for (int j = 0; j < D; ++j) o[h][j] = _mm256_setzero_ps();
  }
  for (size_t n = args.begin; n < args.end;) {
    const size_t stop = Min(args.end, n + 8);
    if (d == 0) PrefetchRange(next_keys + n * key_bytes, (stop - n) * key_bytes);
    for (; n < stop; ++n, row += row_bytes) {
      __m256 v[D];
#pragma GCC unroll 4
      for (int j = 0; j < D; ++j) v[j] = LoadValues<kType>(row, d + 8 * static_cast<size_t>(j));
#pragma GCC unroll 8
      for (int h = 0; h < H; ++h) {
        const __m256 weight = _mm256_broadcast_ss(&w[h][n]);
#pragma GCC unroll 4
        for (int j = 0; j < D; ++j) o[h][j] = _mm256_fmadd_ps(weight, v[j], o[h][j]);
      }
    }
  }
#pragma GCC unroll 8
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
    constexpr size_t kWide = H <= 3 ? 4 : H <= 6 ? 2 : 1;
    size_t d = begin;
    for (; d + 8 * kWide <= begin + group; d += 8 * kWide) Values<H, kWide, kType>(args, w, d, out);
    if constexpr (kWide > 1) {
      for (; d + 8 <= begin + group; d += 8) Values<H, 1, kType>(args, w, d, out);
    }
  }
}

template <int H>
void AttendHeads(const AttendBlockArgs& args, size_t head, const AttentionState& state) {
  Weights weights;
  AllScores(args, head, H, weights.p);
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
    case 7:
      return AttendHeads<7>(args, head, state);
    case 6:
      return AttendHeads<6>(args, head, state);
    case 5:
      return AttendHeads<5>(args, head, state);
    case 4:
      return AttendHeads<4>(args, head, state);
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
