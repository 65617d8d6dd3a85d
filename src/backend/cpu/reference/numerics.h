// The arithmetic that every instruction set reproduces bit for bit: fused multiply-add, the lane
// sum, exp.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace pocketlm::reference {

inline constexpr size_t kLanes = 16;

// exp: x = n·ln2 + r, e^r = 1 + (r + r²·(c2 + c3·r + … + c6·r⁴)); minimax on |r| ≤ ln2 / 2, 3e-9
// relative.
inline constexpr float kExpMin = -104.0f;  // exp is 0 from here down
inline constexpr float kExpMax = 89.0f;    // exp is +inf from here up
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5·2²³: adding it rounds to an integer
inline constexpr int32_t kRoundMagicBits = 0x4B400000;
inline constexpr float kLn2High = 0x1.62e4p-1f;  // few bits, so that n·kLn2High is exact
inline constexpr float kLn2Low = 0x1.7f7d1cp-20f;
inline constexpr float kExpC2 = 0x1.fffffcp-2f;
inline constexpr float kExpC3 = 0x1.55549p-3f;
inline constexpr float kExpC4 = 0x1.5558f4p-5f;
inline constexpr float kExpC5 = 0x1.123a6cp-7f;
inline constexpr float kExpC6 = 0x1.6a2352p-10f;

// tanh-GELU: sqrt(2/π)·(g + 0.044715·g³) = kGelu1·g·(1 + kGelu0·g²).
inline constexpr float kGelu0 = 0.044715f;
inline constexpr float kGelu1 = 0.7978845608f;

// a·b + c rounded once, as std::fma, whose library form is slow without the instruction and wrong
// in some C libraries. The product is exact in double; the sum is rounded to odd there, which makes
// the second rounding harmless (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
// 2008).
inline float FusedMultiplyAdd(float a, float b, float c) {
#if defined(__FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  const double sum = product + addend;
  const double rest = sum - product;
  const double error = (product - (sum - rest)) + (addend - rest);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  const bool inexact = (error > 0.0) | (error < 0.0);  // false for NaN
  const uint64_t even = ~bits & 1;
  const uint64_t step = (error > 0.0) == (sum > 0.0) ? 1 : ~uint64_t{0};
  bits += inexact ? step & (0 - even) : 0;
  return static_cast<float>(std::bit_cast<double>(bits));
#endif
}

// Sums the lanes by the fixed tree; overwrites them.
inline float ReduceLanes(float* lanes) {
  for (size_t i = 0; i < 8; ++i) lanes[i] += lanes[i + 8];
  for (size_t i = 0; i < 4; ++i) lanes[i] += lanes[i + 4];
  for (size_t i = 0; i < 2; ++i) lanes[i] += lanes[i + 2];
  return lanes[0] + lanes[1];
}

// Adds a[i]·b[i] to lane i mod 16 for `count` elements; a chunk that is followed by another has a
// multiple of 16 elements.
inline void AccumulateDot(const float* a, const float* b, size_t count, float* lanes) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = FusedMultiplyAdd(a[i + j], b[i + j], lanes[j]);
  }
  for (size_t j = 0; i + j < count; ++j) lanes[j] = FusedMultiplyAdd(a[i + j], b[i + j], lanes[j]);
}

inline float Dot(const float* a, const float* b, size_t count) {
  float lanes[kLanes] = {};
  AccumulateDot(a, b, count, lanes);
  return ReduceLanes(lanes);
}

// e^x within 1 ulp (subnormal results within 1 unit of 2^-149).
inline float Exp(float x) {
  x = kExpMin > x ? kExpMin : x;  // written so that NaN passes
  x = kExpMax < x ? kExpMax : x;
  const float shifted = FusedMultiplyAdd(x, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = FusedMultiplyAdd(n, -kLn2Low, FusedMultiplyAdd(n, -kLn2High, x));
  float q = FusedMultiplyAdd(kExpC6, r, kExpC5);
  q = FusedMultiplyAdd(q, r, kExpC4);
  q = FusedMultiplyAdd(q, r, kExpC3);
  q = FusedMultiplyAdd(q, r, kExpC2);
  const float p = FusedMultiplyAdd(q, r * r, r) + 1.0f;
  // 2^n in two factors: n runs from -150 to 128, beyond one exponent field.
  const int32_t whole = std::bit_cast<int32_t>(shifted) - kRoundMagicBits;
  const int32_t half = whole >> 1;
  const float scale1 = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float scale2 = std::bit_cast<float>(static_cast<uint32_t>(whole - half + 127) << 23);
  return p * scale1 * scale2;
}

}  // namespace pocketlm::reference
