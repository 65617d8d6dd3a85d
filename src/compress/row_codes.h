// One row of quantized weights outside of any container: the common form of GGUF's 4- and 8-bit blocks and of the
// packed matrices of base/packed_layout.h. Importers read it, quantizers make it, writers store it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/packed_layout.h"

namespace pocketlm {

// A weight is scale · code + min, each product exact in float, the sum rounded once:
//   kU4   codes 0 … 15; `mins` holds the half that the layout's offset stands for, whatever its type
//   kI8   codes are two's complement; no mins
struct RowCodes {
  PackedLayout layout;
  std::vector<uint8_t> codes;    // [cols]
  std::vector<uint16_t> scales;  // [cols / group_size], IEEE halves, as mins
  std::vector<uint16_t> mins;    // kU4 only
  std::vector<uint8_t> zeros;    // kU4 with zero4 only: 0 … 15

  size_t cols() const { return codes.size(); }
  size_t groups() const { return scales.size(); }

  // Sets the layout and the sizes for a row of `cols`, a whole number of groups. Keeps memory.
  void Resize(const PackedLayout& to, size_t cols);
};

// The mins that a layout without stored mins implies, as the kernels compute them.
uint16_t MinOfNone(uint16_t scale);                // half(-8 · scale)
uint16_t MinOfZero(uint16_t scale, uint8_t zero);  // half(-(scale · zero))

// "u4 g64 zero4", "i8 g32".
std::string LayoutName(const PackedLayout& layout);

// Whether ReadBlocks knows the type.
inline constexpr bool HasRowCodes(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_1 || type == DType::kQ5_0 ||
         type == DType::kQ8_0;
}

// Reads a row of Q4_0 (as u4, none), Q4_1 (u4, min_f16), Q5_0 (i8, codes -16 … 15) or Q8_0 (i8) blocks, groups of
// 32, bit for bit. A Q8_0 row may hold the code -128, which no packed matrix has. Requires cols % 32 == 0.
void ReadBlocks(DType type, const std::byte* src, size_t cols, RowCodes* out);

// Reads a row of a packed matrix.
void ReadPacked(const PackedMatrix& matrix, size_t row, RowCodes* out);

// dst[0, cols) = the weights.
void DecodeCodes(const RowCodes& row, float* dst);

// The same weights in another layout of the same type. Requires that it can hold them: EncodingScan (exact.h).
// From larger to smaller groups it always can.
void Regroup(const RowCodes& from, const PackedLayout& to, RowCodes* out);

// Writes a row with groups of 32 as blocks: u4 as Q4_1, u4 with `none` as Q4_0 too, i8 as Q8_0.
void WriteBlocks(const RowCodes& row, DType type, std::byte* dst);

// Where one tile of a packed matrix goes: its part of each plane, zeroed. `offsets` is null if there is none.
struct TilePlanes {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  std::byte* offsets = nullptr;
};

// Stores a row as row `row_in_tile` of a tile. Rows that no call writes are the padding of the layout.
void PackRow(const RowCodes& row, size_t row_in_tile, const TilePlanes& tile);

}  // namespace pocketlm
