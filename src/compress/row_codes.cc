#include "compress/row_codes.h"

#include <cstring>

#include "base/half.h"
#include "base/status.h"

namespace pocketlm {
namespace {

constexpr size_t kBlockValues = 32;  // of GGUF's Q4_0, Q4_1, Q8_0
constexpr size_t kLanes = 8;         // inputs of a row that stay together in a packed block

uint16_t LoadHalf(const std::byte* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return half;
}

void StoreHalf(uint16_t half, std::byte* at) { std::memcpy(at, &half, sizeof(half)); }

// Nibbles of a GGUF block: byte j holds value j in its low and value 16 + j in its high half.
void ReadNibbles(const std::byte* src, uint8_t* codes) {
  for (size_t j = 0; j < kBlockValues / 2; ++j) {
    const auto byte = static_cast<uint8_t>(src[j]);
    codes[j] = byte & 15;
    codes[j + kBlockValues / 2] = byte >> 4;
  }
}

// A Q5_0 block after its scale: the fifth bits of the 32 values, then their nibbles.
void ReadFiveBits(const std::byte* src, uint8_t* codes) {
  uint32_t fifth;
  std::memcpy(&fifth, src, sizeof(fifth));
  ReadNibbles(src + sizeof(fifth), codes);
  for (size_t i = 0; i < kBlockValues; ++i) {
    const int code = codes[i] | static_cast<int>(fifth >> i & 1) << 4;
    codes[i] = static_cast<uint8_t>(code - 16);
  }
}

void WriteNibbles(const uint8_t* codes, std::byte* dst) {
  for (size_t j = 0; j < kBlockValues / 2; ++j) {
    dst[j] = static_cast<std::byte>(codes[j] | (codes[j + kBlockValues / 2] << 4));
  }
}

}  // namespace

void RowCodes::Resize(const PackedLayout& to, size_t cols) {
  layout = to;
  const size_t groups = cols / to.group_size;
  codes.resize(cols);
  scales.resize(groups);
  mins.resize(to.type == PackedType::kU4 ? groups : 0);
  zeros.resize(to.offset == OffsetType::kZero4 ? groups : 0);
}

std::string LayoutName(const PackedLayout& layout) {
  std::string name =
      std::string(PackedTypeName(layout.type)) + " g" + std::to_string(layout.group_size);
  if (layout.type == PackedType::kU4) name += std::string(" ") + OffsetTypeName(layout.offset);
  return name;
}

uint16_t MinOfNone(uint16_t scale) { return FloatToHalf(-8.0f * HalfToFloat(scale)); }

uint16_t MinOfZero(uint16_t scale, uint8_t zero) {
  return FloatToHalf(-(HalfToFloat(scale) * static_cast<float>(zero)));
}

void ReadBlocks(DType type, const std::byte* src, size_t cols, RowCodes* out) {
  POCKETLM_CHECK(HasRowCodes(type));
  const bool i8 = type == DType::kQ8_0 || type == DType::kQ5_0;
  const PackedLayout layout{i8 ? PackedType::kI8 : PackedType::kU4,
                            type == DType::kQ4_1 ? OffsetType::kMinF16 : OffsetType::kNone,
                            kBlockValues};
  out->Resize(layout, cols);
  const size_t stride = GetDTypeInfo(type).block_bytes;
  for (size_t g = 0; g < out->groups(); ++g, src += stride) {
    uint8_t* codes = out->codes.data() + g * kBlockValues;
    out->scales[g] = LoadHalf(src);
    if (type == DType::kQ8_0) {
      std::memcpy(codes, src + 2, kBlockValues);
    } else if (type == DType::kQ5_0) {
      ReadFiveBits(src + 2, codes);
    } else if (type == DType::kQ4_1) {
      out->mins[g] = LoadHalf(src + 2);
      ReadNibbles(src + 4, codes);
    } else {
      out->mins[g] = MinOfNone(out->scales[g]);
      ReadNibbles(src + 2, codes);
    }
  }
}

void ReadPacked(const PackedMatrix& matrix, size_t row, RowCodes* out) {
  const PackedLayout& layout = matrix.layout;
  out->Resize(layout, matrix.cols);
  const size_t lane = row % kTileRows;
  const size_t first = row / kTileRows * matrix.groups();
  for (size_t g = 0; g < matrix.groups(); ++g) {
    const std::byte* block = matrix.codes + (first + g) * layout.group_code_bytes() + lane * kLanes;
    uint8_t* codes = out->codes.data() + g * layout.group_size;
    const bool u4 = layout.type == PackedType::kU4;
    for (size_t k = 0; k < layout.group_size; k += u4 ? 2 * kLanes : kLanes, block += 64) {
      for (size_t i = 0; i < kLanes; ++i) {
        const auto byte = static_cast<uint8_t>(block[i]);
        codes[k + i] = u4 ? byte & 15 : byte;
        if (u4) codes[k + kLanes + i] = byte >> 4;
      }
    }
    const uint16_t scale =
        LoadHalf(matrix.scales + (first + g) * PackedLayout::group_scale_bytes() + lane * 2);
    out->scales[g] = scale;
    if (!u4) continue;
    const std::byte* offsets = matrix.offsets + (first + g) * layout.group_offset_bytes();
    if (layout.offset == OffsetType::kMinF16) {
      out->mins[g] = LoadHalf(offsets + lane * 2);
    } else if (layout.offset == OffsetType::kZero4) {
      out->zeros[g] = (static_cast<uint8_t>(offsets[lane / 2]) >> (lane % 2 * 4)) & 15;
      out->mins[g] = MinOfZero(scale, out->zeros[g]);
    } else {
      out->mins[g] = MinOfNone(scale);
    }
  }
}

void DecodeCodes(const RowCodes& row, float* dst) {
  const size_t size = row.layout.group_size;
  for (size_t g = 0; g < row.groups(); ++g) {
    const float scale = HalfToFloat(row.scales[g]);
    const uint8_t* codes = row.codes.data() + g * size;
    float* out = dst + g * size;
    if (row.layout.type == PackedType::kI8) {
      for (size_t i = 0; i < size; ++i)
        out[i] = scale * static_cast<float>(static_cast<int8_t>(codes[i]));
    } else {
      const float min = HalfToFloat(row.mins[g]);
      for (size_t i = 0; i < size; ++i) out[i] = scale * static_cast<float>(codes[i]) + min;
    }
  }
}

void Regroup(const RowCodes& from, const PackedLayout& to, RowCodes* out) {
  POCKETLM_CHECK(from.layout.type == to.type);
  out->Resize(to, from.cols());
  out->codes = from.codes;
  for (size_t g = 0; g < out->groups(); ++g) {
    const size_t source = g * to.group_size / from.layout.group_size;
    out->scales[g] = from.scales[source];
    if (to.type != PackedType::kU4) continue;
    out->mins[g] = from.mins[source];
    if (to.offset != OffsetType::kZero4) continue;
    uint8_t zero = 0;
    while (zero < 15 && HalfToFloat(MinOfZero(out->scales[g], zero)) != HalfToFloat(out->mins[g])) {
      ++zero;
    }
    out->zeros[g] = zero;
    out->mins[g] = MinOfZero(out->scales[g], zero);
  }
}

void WriteBlocks(const RowCodes& row, DType type, std::byte* dst) {
  POCKETLM_CHECK(row.layout.group_size == kBlockValues);
  POCKETLM_CHECK(type == DType::kQ8_0 || type == DType::kQ4_1 || type == DType::kQ4_0);
  const size_t stride = GetDTypeInfo(type).block_bytes;
  for (size_t g = 0; g < row.groups(); ++g, dst += stride) {
    const uint8_t* codes = row.codes.data() + g * kBlockValues;
    StoreHalf(row.scales[g], dst);
    if (type == DType::kQ8_0) {
      std::memcpy(dst + 2, codes, kBlockValues);
    } else if (type == DType::kQ4_1) {
      StoreHalf(row.mins[g], dst + 2);
      WriteNibbles(codes, dst + 4);
    } else {
      WriteNibbles(codes, dst + 2);
    }
  }
}

void PackRow(const RowCodes& row, size_t row_in_tile, const TilePlanes& tile) {
  const PackedLayout& layout = row.layout;
  const bool u4 = layout.type == PackedType::kU4;
  for (size_t g = 0; g < row.groups(); ++g) {
    std::byte* block = tile.codes + g * layout.group_code_bytes() + row_in_tile * kLanes;
    const uint8_t* codes = row.codes.data() + g * layout.group_size;
    for (size_t k = 0; k < layout.group_size; k += u4 ? 2 * kLanes : kLanes, block += 64) {
      for (size_t i = 0; i < kLanes; ++i) {
        const int byte = u4 ? codes[k + i] | (codes[k + kLanes + i] << 4) : codes[k + i];
        block[i] = static_cast<std::byte>(byte);
      }
    }
    StoreHalf(row.scales[g], tile.scales + g * PackedLayout::group_scale_bytes() + row_in_tile * 2);
    std::byte* offsets = tile.offsets + g * layout.group_offset_bytes();
    if (layout.offset == OffsetType::kMinF16) {
      StoreHalf(row.mins[g], offsets + row_in_tile * 2);
    } else if (layout.offset == OffsetType::kZero4) {
      offsets[row_in_tile / 2] |= static_cast<std::byte>(row.zeros[g] << (row_in_tile % 2 * 4));
    }
  }
}

}  // namespace pocketlm
