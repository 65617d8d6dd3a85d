// How the keys and values of one head lie in the cache. Pure arithmetic: included by kernels of every
// instruction set.
//
// Positions are cut into tiles of 16. For a head of `dim` values:
//   keys     f32, f16: [tile][dim][16 positions]
//            i8: [tile][dim / 4][16 positions][4 values], bytes holding code + 128
//            i4: [tile][dim / 8][16 positions][4 bytes]: byte j holds value 8·b + j of block b in its low
//            nibble and value 8·b + 4 + j in its high one, as code + 8
//   values   f32, f16: [position][dim]
//            i8: [position][dim], two's complement
//            i4: [position][dim / 2]: in each group of g values, byte j holds value j in its low nibble and
//            value g / 2 + j in its high one, as code + 8
//   scales   of i8 and i4: [tile][dim / group][16 positions], IEEE half
// A stored value is scale · code. i4 vectors are stored rotated (see RotateGroups in kernels.h), so that no
// single value of a group spoils the scale of the others; attention rotates queries and results to match.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pocketlm {

enum class KvType : uint8_t { kF32, kF16, kI8, kI4 };

inline constexpr size_t kKvTile = 16;

constexpr bool KvIsQuantized(KvType type) { return type == KvType::kI8 || type == KvType::kI4; }

// Values that share a scale.
constexpr size_t KvGroup(size_t head_dim) { return head_dim % 64 == 0 ? 64 : head_dim; }

// Whether heads of this size can be stored: i8 takes multiples of 4 up to 256 and multiples of 64, i4 powers of two
// from 8 on and multiples of 64.
constexpr bool KvTypeFits(KvType type, size_t head_dim) {
  if (type == KvType::kI8) return head_dim % 4 == 0 && KvGroup(head_dim) <= 256;
  if (type != KvType::kI4) return true;
  const size_t group = KvGroup(head_dim);
  return group >= 8 && (group & (group - 1)) == 0;
}

// Bytes of one position's codes, and of its scales.
constexpr size_t KvCodeBytes(KvType type, size_t head_dim) {
  switch (type) {
    case KvType::kF32:
      return head_dim * 4;
    case KvType::kF16:
      return head_dim * 2;
    case KvType::kI8:
      return head_dim;
    default:
      return head_dim / 2;
  }
}
constexpr size_t KvScaleBytes(KvType type, size_t head_dim) {
  return KvIsQuantized(type) ? head_dim / KvGroup(head_dim) * 2 : 0;
}

}  // namespace pocketlm
