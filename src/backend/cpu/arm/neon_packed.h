// What the products of packed weights share between the dot-product and the matrix-multiply instructions. In an
// anonymous namespace, as neon_common.h.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "backend/cpu/arm/neon_common.h"

namespace pocketlm {

namespace {

// A value for each of the eight rows of a tile.
struct Rows8 {
  float32x4_t quad[2];
};

inline Rows8 ZeroRows8() { return {{vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}}; }

inline uint8x16_t LoadBytes(const std::byte* p) {
  return vld1q_u8(reinterpret_cast<const uint8_t*>(p));
}
inline int8x16_t LoadCodes(const std::byte* p) {
  return vld1q_s8(reinterpret_cast<const int8_t*>(p));
}

// Codes 0 … 15, which are the same as signed and as unsigned bytes.
inline int8x16_t LowNibbles(uint8x16_t x) {
  return vreinterpretq_s8_u8(vandq_u8(x, vdupq_n_u8(15)));
}
inline int8x16_t HighNibbles(uint8x16_t x) { return vreinterpretq_s8_u8(vshrq_n_u8(x, 4)); }

// The planes of one tile.
struct Tile {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* offsets;

  Tile(const PackedMatrix& w, size_t tile) {
    const size_t at = tile * w.groups();
    codes = w.codes + at * w.layout.group_code_bytes();
    scales = w.scales + at * PackedLayout::group_scale_bytes();
    offsets = w.offsets == nullptr ? nullptr : w.offsets + at * w.layout.group_offset_bytes();
  }

  Rows8 Scales(size_t group) const { return Halves8(scales + 16 * group); }

  template <OffsetType kOffset>
  Rows8 Mins(size_t group, const Rows8& scale) const {
    if constexpr (kOffset == OffsetType::kMinF16) return Halves8(offsets + 16 * group);
    if constexpr (kOffset == OffsetType::kNone) {
      return {{ThroughHalf(vmulq_n_f32(scale.quad[0], -8.0f)),
               ThroughHalf(vmulq_n_f32(scale.quad[1], -8.0f))}};
    }
    uint32_t word;
    __builtin_memcpy(&word, offsets + 4 * group, 4);
    const int32_t shifts[8] = {0, -4, -8, -12, -16, -20, -24, -28};
    Rows8 out;
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t zeros =
          vandq_u32(vshlq_u32(vdupq_n_u32(word), vld1q_s32(shifts + 4 * i)), vdupq_n_u32(15));
      out.quad[i] = ThroughHalf(vnegq_f32(vmulq_f32(scale.quad[i], vcvtq_f32_u32(zeros))));
    }
    return out;
  }

 private:
  static Rows8 Halves8(const std::byte* p) {
    const uint16x8_t halves = LoadU16x8(p);
    return {{LowHalves(halves), HighHalves(halves)}};
  }
};

// The first `rows` of eight outputs; any count.
inline void StoreRows(float* y, const Rows8& value, size_t rows, bool accumulate) {
  for (size_t i = 0; i < 2 && 4 * i < rows; ++i) {
    float* to = y + 4 * i;
    const size_t count = rows - 4 * i;
    StoreFirst(to, accumulate ? vaddq_f32(LoadFirst(to, count), value.quad[i]) : value.quad[i],
               count);
  }
}

constexpr size_t kPanelTiles = 4;  // tiles whose unpacked codes stay in the cache for all rows of x

// Unpacked weights of one tile: codes as bytes in the order that a kernel wants, scales and offsets as floats
// [groups][8].
struct Panel {
  const std::byte* codes;
  const float* scales;
  const float* mins;
};

// Bytes of a panel's codes, and of the rest; panels lie one after the other.
constexpr size_t PanelCodeBytes(size_t cols) { return kTileRows * cols; }
constexpr size_t PanelBytes(size_t cols, size_t groups) {
  return PanelCodeBytes(cols) + 2 * groups * kTileRows * sizeof(float);
}

inline Panel PanelAt(const std::byte* memory, size_t index, size_t cols, size_t groups) {
  const std::byte* at = memory + index * PanelBytes(cols, groups);
  const auto* scales = reinterpret_cast<const float*>(at + PanelCodeBytes(cols));
  return {at, scales, scales + groups * kTileRows};
}

template <PackedType kType, OffsetType kOffset>
void UnpackScales(const Tile& tile, size_t groups, float* to) {
  for (size_t g = 0; g < groups; ++g, to += kTileRows) {
    const Rows8 scale = tile.Scales(g);
    vst1q_f32(to, scale.quad[0]);
    vst1q_f32(to + 4, scale.quad[1]);
    if constexpr (kType == PackedType::kU4) {
      const Rows8 min = tile.Mins<kOffset>(g, scale);
      vst1q_f32(to + groups * kTileRows, min.quad[0]);
      vst1q_f32(to + groups * kTileRows + 4, min.quad[1]);
    }
  }
}

// The offset terms of T rows of x: b[t] = fma(min, x_sum, b[t]) over the groups.
template <int T>
void OffsetTerms(const Panel& panel, size_t groups, const float* sums, Rows8 (&b)[T]) {
  for (int t = 0; t < T; ++t) b[t] = ZeroRows8();
  for (size_t g = 0; g < groups; ++g) {
    const float32x4_t low = vld1q_f32(panel.mins + 8 * g), high = vld1q_f32(panel.mins + 8 * g + 4);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const float sum = sums[static_cast<size_t>(t) * groups + g];
      b[t].quad[0] = vfmaq_n_f32(b[t].quad[0], low, sum);
      b[t].quad[1] = vfmaq_n_f32(b[t].quad[1], high, sum);
    }
  }
}

}  // namespace
}  // namespace pocketlm
