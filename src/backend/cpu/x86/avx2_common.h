// Building blocks of the AVX2 kernels. Included only by files compiled with -mavx2 -mfma -mf16c;
// everything is in an anonymous namespace, so that no wide code can be merged into other files.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/x86/avx2_entries.h"

namespace pocketlm {

namespace {

constexpr size_t kLanes = 16;

// The 16 lanes of a dot product or sum.
struct Lanes {
  __m256 low;   // lanes 0–7
  __m256 high;  // lanes 8–15
};

inline Lanes ZeroLanes() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }

inline size_t Min(size_t a, size_t b) { return a < b ? a : b; }

// All bits set in the first `count` of 8 lanes; count ≤ 8.
inline __m256i PrefixMask(size_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}

// l[i] += l[i+2], then l[0] + l[1].
inline float ReduceQuad(__m128 quad) {
  const __m128 pair = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

inline float ReduceLanes(Lanes lanes) {
  const __m256 sum = _mm256_add_ps(lanes.low, lanes.high);
  return ReduceQuad(_mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1)));
}

inline void FusedAdd(__m256 a_low, __m256 a_high, const float* b, Lanes* lanes) {
  lanes->low = _mm256_fmadd_ps(a_low, _mm256_loadu_ps(b), lanes->low);
  lanes->high = _mm256_fmadd_ps(a_high, _mm256_loadu_ps(b + 8), lanes->high);
}

// The last `count` < 16 elements of a dot product; lanes beyond keep their bits.
inline void FusedAddTail(const float* a, const float* b, size_t count, Lanes* lanes) {
  const __m256i low = PrefixMask(Min(count, 8));
  const __m256i high = PrefixMask(count - Min(count, 8));
  const __m256 sum_low =
      _mm256_fmadd_ps(_mm256_maskload_ps(a, low), _mm256_maskload_ps(b, low), lanes->low);
  lanes->low = _mm256_blendv_ps(lanes->low, sum_low, _mm256_castsi256_ps(low));
  if (count <= 8) return;
  const __m256 sum_high = _mm256_fmadd_ps(_mm256_maskload_ps(a + 8, high),
                                          _mm256_maskload_ps(b + 8, high), lanes->high);
  lanes->high = _mm256_blendv_ps(lanes->high, sum_high, _mm256_castsi256_ps(high));
}

// reference::Exp on 8 values; the constants are those of reference/numerics.h.
inline __m256 Exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-104.0f), x);  // the second operand wins if x is NaN
  x = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
  const __m256 magic = _mm256_set1_ps(12582912.0f);
  const __m256 shifted = _mm256_fmadd_ps(x, _mm256_set1_ps(0x1.715476p+0f), magic);
  const __m256 n = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), r);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(0x1.6a2352p-10f), r, _mm256_set1_ps(0x1.123a6cp-7f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.5558f4p-5f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.55549p-3f));
  q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0x1.fffffcp-2f));
  const __m256 p = _mm256_add_ps(_mm256_fmadd_ps(q, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  const __m256i whole =
      _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(0x4B400000));
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i scale1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i scale2 =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(scale1)), _mm256_castsi256_ps(scale2));
}

}  // namespace
}  // namespace pocketlm
