// Building blocks of the NEON kernels. Included only by files compiled for ARMv8.2 with dot products; everything is
// in an anonymous namespace, so that no such code can be merged into other files.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/arm/neon_entries.h"
#include "backend/cpu/kernels.h"

namespace pocketlm {

namespace {

constexpr size_t kLanes = 16;

inline size_t Min(size_t a, size_t b) { return a < b ? a : b; }

// The 16 lanes of a dot product or sum.
struct Lanes {
  float32x4_t quad[4];
};

inline Lanes ZeroLanes() {
  const float32x4_t zero = vdupq_n_f32(0.0f);
  return {{zero, zero, zero, zero}};
}

// l[i] += l[i+8], l[i] += l[i+4], l[i] += l[i+2], l[0] + l[1].
inline float ReduceLanes(const Lanes& lanes) {
  const float32x4_t sum =
      vaddq_f32(vaddq_f32(lanes.quad[0], lanes.quad[2]), vaddq_f32(lanes.quad[1], lanes.quad[3]));
  const float32x2_t pair = vadd_f32(vget_low_f32(sum), vget_high_f32(sum));
  return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}

inline void FusedAdd(const float* a, const float* b, Lanes* lanes) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    lanes->quad[i] = vfmaq_f32(lanes->quad[i], vld1q_f32(a + 4 * i), vld1q_f32(b + 4 * i));
}

// The last `count` < 16 elements of a dot product; lanes beyond keep their bits.
inline void FusedAddTail(const float* a, const float* b, size_t count, Lanes* lanes) {
  float sums[kLanes];
  for (int i = 0; i < 4; ++i) vst1q_f32(sums + 4 * i, lanes->quad[i]);
  for (size_t i = 0; i < count; ++i) sums[i] = __builtin_fmaf(a[i], b[i], sums[i]);
  for (int i = 0; i < 4; ++i) lanes->quad[i] = vld1q_f32(sums + 4 * i);
}

// The first `count` ≤ 4 values at p, then zeros.
inline float32x4_t LoadFirst(const float* p, size_t count) {
  if (count >= 4) return vld1q_f32(p);
  float values[4] = {};
  for (size_t i = 0; i < count; ++i) values[i] = p[i];
  return vld1q_f32(values);
}

inline void StoreFirst(float* p, float32x4_t value, size_t count) {
  if (count >= 4) return vst1q_f32(p, value);
  float values[4];
  vst1q_f32(values, value);
  for (size_t i = 0; i < count; ++i) p[i] = values[i];
}

// Eight halves.
inline uint16x8_t LoadU16x8(const void* p) { return vld1q_u16(static_cast<const uint16_t*>(p)); }
inline float32x4_t LowHalves(uint16x8_t halves) {
  return vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(halves)));
}
inline float32x4_t HighHalves(uint16x8_t halves) {
  return vcvt_high_f32_f16(vreinterpretq_f16_u16(halves));
}
inline float32x4_t LoadHalves(const void* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(static_cast<const uint16_t*>(p))));
}

// Rounded to half and back.
inline float32x4_t ThroughHalf(float32x4_t x) { return vcvt_f32_f16(vcvt_f16_f32(x)); }

// reference::Exp on 4 values; the constants are those of reference/numerics.h. Maximum and minimum pass NaN.
inline float32x4_t Exp4(float32x4_t x) {
  x = vmaxq_f32(vdupq_n_f32(-104.0f), x);
  x = vminq_f32(vdupq_n_f32(89.0f), x);
  const float32x4_t magic = vdupq_n_f32(12582912.0f);
  const float32x4_t shifted = vfmaq_f32(magic, x, vdupq_n_f32(0x1.715476p+0f));
  const float32x4_t n = vsubq_f32(shifted, magic);
  float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0x1.62e4p-1f));
  r = vfmaq_f32(r, n, vdupq_n_f32(-0x1.7f7d1cp-20f));
  float32x4_t q = vfmaq_f32(vdupq_n_f32(0x1.123a6cp-7f), vdupq_n_f32(0x1.6a2352p-10f), r);
  q = vfmaq_f32(vdupq_n_f32(0x1.5558f4p-5f), q, r);
  q = vfmaq_f32(vdupq_n_f32(0x1.55549p-3f), q, r);
  q = vfmaq_f32(vdupq_n_f32(0x1.fffffcp-2f), q, r);
  const float32x4_t p = vaddq_f32(vfmaq_f32(r, q, vmulq_f32(r, r)), vdupq_n_f32(1.0f));
  const int32x4_t whole = vsubq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(0x4B400000));
  const int32x4_t half = vshrq_n_s32(whole, 1);
  const int32x4_t bias = vdupq_n_s32(127);
  const int32x4_t scale1 = vshlq_n_s32(vaddq_s32(half, bias), 23);
  const int32x4_t scale2 = vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23);
  return vmulq_f32(vmulq_f32(p, vreinterpretq_f32_s32(scale1)), vreinterpretq_f32_s32(scale2));
}

}  // namespace
}  // namespace pocketlm
