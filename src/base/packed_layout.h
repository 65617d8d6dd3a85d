// How a quantized weight matrix lies in a .plm file and in memory: the kernels read the file's bytes.
//
// A matrix of rows × cols is cut into tiles of 8 rows; each row of a tile into groups of `group_size` inputs.
// Three planes, each ordered by tile, then by group, so that a kernel reads all of them forwards:
//   codes    u4: blocks of 64 bytes for 8 rows × 16 inputs: byte 8·r + i holds input i of row r in its low
//            and input 8 + i in its high nibble. i8: blocks of 64 bytes for 8 rows × 8 inputs: byte 8·r + i
//            holds input i of row r as a two's-complement byte in -127 … 127.
//   scales   8 × IEEE half, one a row
//   offsets  u4 only. zero4: 4 bytes, row r in bits 4·r … 4·r + 3 of a little-endian word.
//            min_f16: 8 × IEEE half
// A weight is fma(scale, code, min), which is exact but for the addition:
//   i8       min = 0
//   none     min = -8 · scale (half)
//   zero4    min = half(-(scale · zero)), rounded to nearest even
//   min_f16  min as stored
// The last tile is padded with rows of zero scale, code and offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pocketlm {

enum class PackedType : uint8_t { kU4, kI8 };

enum class OffsetType : uint8_t { kNone, kZero4, kMinF16 };

inline constexpr size_t kTileRows = 8;

struct PackedLayout {
  PackedType type = PackedType::kU4;
  OffsetType offset = OffsetType::kNone;
  uint32_t group_size = 64;  // 32, 64 or 128

  bool operator==(const PackedLayout&) const = default;

  // Bytes of one tile × one group in each plane.
  constexpr size_t group_code_bytes() const {
    return kTileRows * group_size / (type == PackedType::kU4 ? 2 : 1);
  }
  static constexpr size_t group_scale_bytes() { return kTileRows * 2; }
  constexpr size_t group_offset_bytes() const {
    return offset == OffsetType::kNone ? 0 : offset == OffsetType::kZero4 ? 4 : kTileRows * 2;
  }
};

// Sizes of the planes of a whole matrix.
struct PackedPlanes {
  uint64_t codes = 0;
  uint64_t scales = 0;
  uint64_t offsets = 0;
};

// nullopt if the layout is not one of the above, if a row is not a whole number of groups, or if a size
// overflows.
inline constexpr std::optional<PackedPlanes> PlaneBytes(const PackedLayout& layout, uint64_t rows,
                                                        uint64_t cols) {
  const uint32_t size = layout.group_size;
  if (size != 32 && size != 64 && size != 128) return std::nullopt;
  if (layout.type == PackedType::kI8 && layout.offset != OffsetType::kNone) return std::nullopt;
  if (rows == 0 || cols == 0 || cols % size != 0) return std::nullopt;
  const uint64_t tiles = (rows - 1) / kTileRows + 1;
  const uint64_t groups = cols / size;
  if (groups > UINT64_MAX / layout.group_code_bytes() / tiles) return std::nullopt;
  return PackedPlanes{tiles * groups * layout.group_code_bytes(),
                      tiles * groups * PackedLayout::group_scale_bytes(),
                      tiles * groups * layout.group_offset_bytes()};
}

// A packed matrix in a mapped file; the planes are not owned and begin at multiples of 64 bytes.
struct PackedMatrix {
  PackedLayout layout;
  size_t rows = 0;
  size_t cols = 0;
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* offsets = nullptr;  // null if the layout has none

  size_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
  size_t groups() const { return cols / layout.group_size; }
};

// "u4" or "i8"; "none", "zero4" or "min_f16".
inline constexpr const char* PackedTypeName(PackedType type) {
  return type == PackedType::kU4 ? "u4" : "i8";
}
inline constexpr const char* OffsetTypeName(OffsetType type) {
  return type == OffsetType::kNone ? "none" : type == OffsetType::kZero4 ? "zero4" : "min_f16";
}

}  // namespace pocketlm
