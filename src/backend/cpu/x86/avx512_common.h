// Building blocks of the AVX-512 kernels. Included only by files compiled with -mavx512f -mavx512bw -mavx512dq
// -mavx512vl -mavx512vnni; everything is in an anonymous namespace, so that no wide code can be merged into
// other files.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace pocketlm {

// The entries of kAvx512VnniKernels, as documented in kernels.h.
namespace avx512 {
void QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                 float* sums, int32_t* code_sums);
void PackedGemv(const PackedProductArgs& args);
void PackedGemm(const PackedProductArgs& args);
void AttendBlock(const AttendBlockArgs& args, const AttentionState& state);
void MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                    const AttentionState& into);
void RotateGroups(float* x, size_t count, size_t group);
}  // namespace avx512

namespace {

inline size_t Min(size_t a, size_t b) { return a < b ? a : b; }

// The first `count` of 16 lanes; any count.
inline __mmask16 FirstLanes(size_t count) {
  return count >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << count) - 1);
}

// The tree over 16 lanes: l[i] += l[i+8], l[i] += l[i+4], l[i] += l[i+2], l[0] + l[1].
inline float ReduceLanes(__m512 lanes) {
  const __m256 sum8 =
      _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  const __m128 sum4 = _mm_add_ps(_mm256_castps256_ps128(sum8), _mm256_extractf128_ps(sum8, 1));
  const __m128 sum2 = _mm_add_ps(sum4, _mm_movehl_ps(sum4, sum4));
  return _mm_cvtss_f32(_mm_add_ss(sum2, _mm_movehdup_ps(sum2)));
}

// reference::Exp on 16 values; the constants are those of reference/numerics.h.
inline __m512 Exp16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);  // the second operand wins if x is NaN
  x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
  const __m512 magic = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(0x1.715476p+0f), magic);
  const __m512 n = _mm512_sub_ps(shifted, magic);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.62e4p-1f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0x1.7f7d1cp-20f), r);
  __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6a2352p-10f), r, _mm512_set1_ps(0x1.123a6cp-7f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.5558f4p-5f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.55549p-3f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0x1.fffffcp-2f));
  const __m512 p = _mm512_add_ps(_mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  const __m512i whole =
      _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4B400000));
  const __m512i half = _mm512_srai_epi32(whole, 1);
  const __m512i bias = _mm512_set1_epi32(127);
  const __m512i scale1 = _mm512_slli_epi32(_mm512_add_epi32(half, bias), 23);
  const __m512i scale2 =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(whole, half), bias), 23);
  return _mm512_mul_ps(_mm512_mul_ps(p, _mm512_castsi512_ps(scale1)), _mm512_castsi512_ps(scale2));
}

inline __m512 LoadHalves(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}

inline __m512 NegateFloats(__m512 x) {
  return _mm512_castsi512_ps(
      _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
}

// Rounded to half and back.
inline __m512 ThroughHalf(__m512 x) {
  return _mm512_cvtph_ps(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Two tiles of packed weights side by side: 16 rows. `second` is null for an odd last tile.
struct TilePair {
  const std::byte* codes[2];
  const std::byte* scales[2];
  const std::byte* offsets[2];
  bool has_second;

  TilePair(const PackedMatrix& w, size_t tile, size_t tile_end) {
    has_second = tile + 1 < tile_end;
    const size_t groups = w.groups();
    for (size_t i = 0; i < 2; ++i) {
      // An odd last tile is read twice, which keeps the loops free of branches.
      const size_t at = (tile + (has_second ? i : 0)) * groups;
      codes[i] = w.codes + at * w.layout.group_code_bytes();
      scales[i] = w.scales + at * PackedLayout::group_scale_bytes();
      offsets[i] = w.offsets == nullptr ? nullptr : w.offsets + at * w.layout.group_offset_bytes();
    }
  }

  __m512 Scales(size_t group) const { return HalvesOf(scales, group); }

  template <OffsetType kOffset>
  __m512 Mins(size_t group, __m512 scale) const {
    if constexpr (kOffset == OffsetType::kMinF16) return HalvesOf(offsets, group);
    if constexpr (kOffset == OffsetType::kNone)
      return ThroughHalf(_mm512_mul_ps(scale, _mm512_set1_ps(-8.0f)));
    int words[2];
    __builtin_memcpy(&words[0], offsets[0] + 4 * group, 4);
    __builtin_memcpy(&words[1], offsets[1] + 4 * group, 4);
    const __m512i both =
        _mm512_inserti32x8(_mm512_set1_epi32(words[0]), _mm256_set1_epi32(words[1]), 1);
    const __m512i shifts =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i zeros = _mm512_and_si512(_mm512_srlv_epi32(both, shifts), _mm512_set1_epi32(15));
    return ThroughHalf(NegateFloats(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(zeros))));
  }

 private:
  static __m512 HalvesOf(const std::byte* const* planes, size_t group) {
    const auto load = [group](const std::byte* plane) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(plane + 16 * group));
    };
    return _mm512_cvtph_ps(
        _mm256_inserti128_si256(_mm256_castsi128_si256(load(planes[0])), load(planes[1]), 1));
  }
};

// Rows of `w` in the 16 from tile `tile` on, below tile_end.
inline size_t PairRows(const PackedMatrix& w, size_t tile, size_t tile_end) {
  return Min(Min(w.rows - tile * kTileRows, (tile_end - tile) * kTileRows), 16);
}

inline void StoreRows(float* y, __m512 value, size_t rows, bool accumulate) {
  const __mmask16 mask = FirstLanes(rows);
  if (accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), value);
  _mm512_mask_storeu_ps(y, mask, value);
}

}  // namespace
}  // namespace pocketlm
