#include "backend/cpu/reference/packed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/reference/numerics.h"
#include "base/half.h"

namespace pocketlm::reference {
namespace {

constexpr uint32_t kInfinityBits = 0x7F800000u;

float LoadHalf(const std::byte* plane, size_t index) {
  uint16_t half;
  std::memcpy(&half, plane + 2 * index, sizeof(half));
  return HalfToFloat(half);
}

// Where group `group` of a row's tile lies among the groups of the matrix.
size_t GroupIndex(const PackedMatrix& w, size_t row, size_t group) {
  return row / kTileRows * w.groups() + group;
}

// The codes of one row's group, in input order.
void UnpackGroup(const PackedMatrix& w, size_t row, size_t group, int8_t* codes) {
  const size_t size = w.layout.group_size;
  const std::byte* from =
      w.codes + GroupIndex(w, row, group) * w.layout.group_code_bytes() + row % kTileRows * 8;
  const size_t block_inputs = w.layout.type == PackedType::kU4 ? 16 : 8;
  for (size_t i = 0; i < size; i += block_inputs, from += 64) {
    for (size_t j = 0; j < 8; ++j) {
      const auto byte = static_cast<uint8_t>(from[j]);
      if (w.layout.type == PackedType::kU4) {
        codes[i + j] = static_cast<int8_t>(byte & 15);
        codes[i + 8 + j] = static_cast<int8_t>(byte >> 4);
      } else {
        codes[i + j] = static_cast<int8_t>(byte);
      }
    }
  }
}

void QuantizeGroup(const float* x, size_t size, int8_t* codes, float* scale, float* sum,
                   int32_t* code_sum) {
  uint32_t max_bits = 0;
  for (size_t i = 0; i < size; ++i)
    max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  *code_sum = 0;
  const float max = std::bit_cast<float>(max_bits);
  if (max_bits >= kInfinityBits || max < 0x1p-100f) {
    std::fill_n(codes, size, int8_t{0});
    *scale = *sum = max_bits >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    return;
  }
  const float inverse = 127.0f / max;
  for (size_t i = 0; i < size; ++i) {
    const float rounded = (x[i] * inverse + kRoundMagic) - kRoundMagic;
    codes[i] = static_cast<int8_t>(rounded);
    *code_sum += codes[i];
  }
  *scale = max / 127.0f;
  *sum = *scale * static_cast<float>(*code_sum);
}

// The running sums of one output.
struct Accumulators {
  float a = 0.0f;
  float b = 0.0f;
};

constexpr size_t kRowBlock = 64;  // rows of x that share each unpacked group

// y[r, n] for rows [row_begin, row_end) of x, at most kRowBlock, and one row n of w.
void ProductRow(const PackedProductArgs& args, size_t n, size_t row_begin, size_t row_end) {
  const PackedMatrix& w = *args.w;
  const size_t size = w.layout.group_size;
  Accumulators sums[kRowBlock];
  for (size_t g = 0; g < w.groups(); ++g) {
    int8_t codes[128];
    UnpackGroup(w, n, g, codes);
    const float scale = PackedScale(w, n, g);
    const float min = PackedMin(w, n, g);
    for (size_t r = row_begin; r < row_end; ++r) {
      const int8_t* x = args.x.codes + r * w.cols + g * size;
      const size_t at = r * w.groups() + g;
      int32_t dot = 0;
      for (size_t i = 0; i < size; ++i) dot += int32_t{codes[i]} * x[i];
      Accumulators& sum = sums[r - row_begin];
      sum.a = FusedMultiplyAdd(static_cast<float>(dot), scale * args.x.scales[at], sum.a);
      if (w.layout.type == PackedType::kU4) sum.b = FusedMultiplyAdd(min, args.x.sums[at], sum.b);
    }
  }
  for (size_t r = row_begin; r < row_end; ++r) {
    const Accumulators& sum = sums[r - row_begin];
    const float product = w.layout.type == PackedType::kU4 ? sum.a + sum.b : sum.a;
    float* y = args.y + r * args.y_stride + n - args.tile_begin * kTileRows;
    *y = args.accumulate ? *y + product : product;
  }
}

}  // namespace

int PackedCode(const PackedMatrix& w, size_t row, size_t col) {
  const size_t size = w.layout.group_size;
  int8_t codes[128];
  UnpackGroup(w, row, col / size, codes);
  return codes[col % size];
}

float PackedScale(const PackedMatrix& w, size_t row, size_t group) {
  return LoadHalf(w.scales, GroupIndex(w, row, group) * kTileRows + row % kTileRows);
}

float PackedMin(const PackedMatrix& w, size_t row, size_t group) {
  if (w.layout.type == PackedType::kI8) return 0.0f;
  const size_t index = GroupIndex(w, row, group);
  if (w.layout.offset == OffsetType::kMinF16)
    return LoadHalf(w.offsets, index * kTileRows + row % kTileRows);
  const float scale = PackedScale(w, row, group);
  if (w.layout.offset == OffsetType::kNone) return HalfToFloat(FloatToHalf(-8.0f * scale));
  const auto byte = static_cast<uint8_t>(w.offsets[index * 4 + row % kTileRows / 2]);
  const int zero = row % 2 == 0 ? byte & 15 : byte >> 4;
  return HalfToFloat(FloatToHalf(-(scale * static_cast<float>(zero))));
}

void UnpackRow(const PackedMatrix& w, size_t row, float* dst) {
  const size_t size = w.layout.group_size;
  for (size_t g = 0; g < w.groups(); ++g, dst += size) {
    int8_t codes[128];
    UnpackGroup(w, row, g, codes);
    const float scale = PackedScale(w, row, g);
    const float min = PackedMin(w, row, g);
    // Half times code is exact in float, so this rounds once, as the fused form does.
    for (size_t i = 0; i < size; ++i) dst[i] = scale * static_cast<float>(codes[i]) + min;
  }
}

void QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                 float* sums, int32_t* code_sums) {
  for (size_t g = 0; g < cols / group_size; ++g) {
    QuantizeGroup(x + g * group_size, group_size, codes + g * group_size, scales + g, sums + g,
                  code_sums + g);
  }
}

void PackedGemm(const PackedProductArgs& args) {
  const size_t end = std::min(args.tile_end * kTileRows, args.w->rows);
  for (size_t n = args.tile_begin * kTileRows; n < end; ++n) {
    for (size_t r = 0; r < args.x_rows; r += kRowBlock)
      ProductRow(args, n, r, std::min(args.x_rows, r + kRowBlock));
  }
}

}  // namespace pocketlm::reference
