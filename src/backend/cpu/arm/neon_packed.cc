// quantize_row and the products of packed weights by SDOT. The largest sum of a group of bytes is 128·127·127, far
// from overflow.

#include "backend/cpu/arm/neon_packed.h"

namespace pocketlm {
namespace {

// Eight activations for the two rows of a register.
inline int8x16_t Broadcast8(const int8_t* x) {
  const int8x8_t eight = vld1_s8(x);
  return vcombine_s8(eight, eight);
}

// Adds code · x_code of 16 inputs to two sums for each of eight rows: (row 0, row 0, row 1, row 1), …
template <PackedType kType>
inline void AddBlock(const std::byte* codes, int8x16_t x0, int8x16_t x1, int32x4_t (&dot)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    if constexpr (kType == PackedType::kU4) {
      const uint8x16_t packed = LoadBytes(codes + 16 * i);
      dot[i] = vdotq_s32(dot[i], LowNibbles(packed), x0);
      dot[i] = vdotq_s32(dot[i], HighNibbles(packed), x1);
    } else {
      dot[i] = vdotq_s32(dot[i], LoadCodes(codes + 16 * i), x0);
      dot[i] = vdotq_s32(dot[i], LoadCodes(codes + 16 * i + 64), x1);
    }
  }
}

// The sums of one row of x.
struct RowSums {
  Rows8 a = ZeroRows8();
  Rows8 b = ZeroRows8();

  template <PackedType kType, OffsetType kOffset>
  void Add(const Tile& tile, size_t group, const int32x4_t (&dot)[4], float x_scale, float x_sum) {
    const Rows8 scale = tile.Scales(group);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const int32x4_t sums = vpaddq_s32(dot[2 * i], dot[2 * i + 1]);
      a.quad[i] = vfmaq_f32(a.quad[i], vcvtq_f32_s32(sums), vmulq_n_f32(scale.quad[i], x_scale));
    }
    if constexpr (kType == PackedType::kU4) {
      const Rows8 min = tile.Mins<kOffset>(group, scale);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) b.quad[i] = vfmaq_n_f32(b.quad[i], min.quad[i], x_sum);
    }
  }

  template <PackedType kType>
  Rows8 Result() const {
    if constexpr (kType == PackedType::kI8) return a;
    return {{vaddq_f32(a.quad[0], b.quad[0]), vaddq_f32(a.quad[1], b.quad[1])}};
  }
};

// Two tiles at a time, which share what is read of x. An odd last tile is read twice.
template <PackedType kType, OffsetType kOffset, int kSize>
void GemvOf(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const QuantizedRows& x = args.x;
  const size_t groups = w.groups();
  constexpr size_t kBytes = kTileRows * kSize / (kType == PackedType::kU4 ? 2 : 1);
  constexpr size_t kBlockBytes = kType == PackedType::kU4 ? 64 : 128;  // of 16 inputs
  float* y = args.y;
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += 2, y += 2 * kTileRows) {
    const bool has_second = tile + 1 < args.tile_end;
    const Tile first(w, tile), second(w, tile + (has_second ? 1 : 0));
    // What the next two tiles read, as far ahead as these are long: one forward stream.
    const std::byte* ahead = first.codes + 2 * groups * kBytes;
    RowSums first_sums, second_sums;
    for (size_t g = 0; g < groups; ++g) {
#pragma GCC unroll 32
      for (size_t line = 0; line < 2 * kBytes; line += 64)
        __builtin_prefetch(ahead + 2 * g * kBytes + line);
      const int32x4_t zero = vdupq_n_s32(0);
      int32x4_t dots0[4] = {zero, zero, zero, zero}, dots1[4] = {zero, zero, zero, zero};
#pragma GCC unroll 1
      for (size_t i = 0; i < kSize / 16; ++i) {
        const int8_t* codes = x.codes + g * kSize + 16 * i;
        const int8x16_t x0 = Broadcast8(codes), x1 = Broadcast8(codes + 8);
        const size_t at = g * kBytes + i * kBlockBytes;
        AddBlock<kType>(first.codes + at, x0, x1, dots0);
        AddBlock<kType>(second.codes + at, x0, x1, dots1);
      }
      first_sums.Add<kType, kOffset>(first, g, dots0, x.scales[g], x.sums[g]);
      second_sums.Add<kType, kOffset>(second, g, dots1, x.scales[g], x.sums[g]);
    }
    const size_t rows = Min(w.rows, args.tile_end * kTileRows) - tile * kTileRows;
    StoreRows(y, first_sums.Result<kType>(), rows, args.accumulate);
    if (has_second)
      StoreRows(y + kTileRows, second_sums.Result<kType>(), rows - kTileRows, args.accumulate);
  }
}

// The two 8-input halves of each row apart: inputs 0–3 of rows 0–3 and 4–7, then inputs 4–7.
inline void StoreByFour(const int8x16_t (&codes)[4], int8_t* to) {
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const int32x4_t a = vreinterpretq_s32_s8(codes[2 * i]);
    const int32x4_t b = vreinterpretq_s32_s8(codes[2 * i + 1]);
    vst1q_s8(to + 16 * i, vreinterpretq_s8_s32(vuzp1q_s32(a, b)));
    vst1q_s8(to + 32 + 16 * i, vreinterpretq_s8_s32(vuzp2q_s32(a, b)));
  }
}

// Codes as [cols / 4][8 rows][4 inputs].
template <PackedType kType>
void UnpackCodes(const std::byte* from, size_t cols, int8_t* to) {
  constexpr size_t kInputs = kType == PackedType::kU4 ? 16 : 8;  // of a block of 64 bytes
  for (size_t i = 0; i < cols; i += kInputs, from += 64, to += kTileRows * kInputs) {
    int8x16_t low[4], high[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const uint8x16_t bytes = LoadBytes(from + 16 * j);
      low[j] = kType == PackedType::kU4 ? LowNibbles(bytes) : vreinterpretq_s8_u8(bytes);
      high[j] = HighNibbles(bytes);
    }
    StoreByFour(low, to);
    if constexpr (kType == PackedType::kU4) StoreByFour(high, to + 64);
  }
}

// Four inputs, number kInput of 16, of eight rows of w with T rows of x.
template <int kInput, int T>
inline void AddInputs(const std::byte* w, const int8x16_t (&x)[T], int32x4_t (&dot)[2][T]) {
  const int8x16_t low = LoadCodes(w + 32 * kInput), high = LoadCodes(w + 32 * kInput + 16);
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    dot[0][t] = vdotq_laneq_s32(dot[0][t], low, x[t], kInput);
    dot[1][t] = vdotq_laneq_s32(dot[1][t], high, x[t], kInput);
  }
}

// y for T rows of x and the eight rows of a tile.
template <PackedType kType, int T>
void TileProduct(const Panel& panel, const PackedMatrix& w, const QuantizedRows& x, size_t row,
                 Rows8 (&y)[T]) {
  const size_t cols = w.cols, groups = w.groups(), size = w.layout.group_size;
  const int8_t* codes = x.codes + row * cols;
  const float* x_scales = x.scales + row * groups;
  const std::byte* from = panel.codes;
  Rows8 a[T];
  for (int t = 0; t < T; ++t) a[t] = ZeroRows8();
  for (size_t g = 0; g < groups; ++g, ++x_scales) {
    int32x4_t dot[2][T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) dot[0][t] = dot[1][t] = vdupq_n_s32(0);
    for (size_t i = 0; i < size; i += 16, codes += 16, from += 128) {
      int8x16_t values[T];
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) values[t] = vld1q_s8(codes + static_cast<size_t>(t) * cols);
      AddInputs<0, T>(from, values, dot);
      AddInputs<1, T>(from, values, dot);
      AddInputs<2, T>(from, values, dot);
      AddInputs<3, T>(from, values, dot);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const float32x4_t scale = vld1q_f32(panel.scales + 8 * g + 4 * i);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const float32x4_t both = vmulq_n_f32(scale, x_scales[static_cast<size_t>(t) * groups]);
        a[t].quad[i] = vfmaq_f32(a[t].quad[i], vcvtq_f32_s32(dot[i][t]), both);
      }
    }
  }
  if constexpr (kType == PackedType::kU4) {
    Rows8 b[T];
    OffsetTerms<T>(panel, groups, x.sums + row * groups, b);
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < 2; ++i) a[t].quad[i] = vaddq_f32(a[t].quad[i], b[t].quad[i]);
    }
  }
  for (int t = 0; t < T; ++t) y[t] = a[t];
}

// T rows of x with the tiles from `tile` on, `count` rows of w.
template <PackedType kType, int T>
void Strip(const PackedProductArgs& args, size_t tile, size_t count, size_t row) {
  const PackedMatrix& w = *args.w;
  for (size_t i = 0; i * kTileRows < count; ++i) {
    Rows8 y[T];
    TileProduct<kType, T>(PanelAt(args.panel, i, w.cols, w.groups()), w, args.x, row, y);
    const size_t n = (tile - args.tile_begin + i) * kTileRows;
    for (int t = 0; t < T; ++t) {
      StoreRows(args.y + (row + static_cast<size_t>(t)) * args.y_stride + n, y[t],
                count - i * kTileRows, args.accumulate);
    }
  }
}

template <PackedType kType, OffsetType kOffset>
void GemmOf(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const size_t cols = w.cols, groups = w.groups();
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += kPanelTiles) {
    const size_t end = Min(args.tile_end, tile + kPanelTiles);
    for (size_t i = tile; i < end; ++i) {
      std::byte* to = args.panel + (i - tile) * PanelBytes(cols, groups);
      const Tile from(w, i);
      UnpackCodes<kType>(from.codes, cols, reinterpret_cast<int8_t*>(to));
      UnpackScales<kType, kOffset>(from, groups,
                                   reinterpret_cast<float*>(to + PanelCodeBytes(cols)));
    }
    const size_t count = Min(w.rows, end * kTileRows) - tile * kTileRows;
    size_t row = 0;
    for (; row + 4 <= args.x_rows; row += 4) Strip<kType, 4>(args, tile, count, row);
    if (row + 3 == args.x_rows) Strip<kType, 3>(args, tile, count, row);
    if (row + 2 == args.x_rows) Strip<kType, 2>(args, tile, count, row);
    if (row + 1 == args.x_rows) Strip<kType, 1>(args, tile, count, row);
  }
}

template <PackedType kType, OffsetType kOffset>
void GemvOfSize(const PackedProductArgs& args) {
  switch (args.w->layout.group_size) {
    case 32:
      return GemvOf<kType, kOffset, 32>(args);
    case 64:
      return GemvOf<kType, kOffset, 64>(args);
    default:
      return GemvOf<kType, kOffset, 128>(args);
  }
}

inline uint32_t MaxAbsBits(const float* x, size_t count) {
  uint32x4_t max = vdupq_n_u32(0);
  for (size_t i = 0; i < count; i += 4)
    max = vmaxq_u32(max, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
  return vmaxvq_u32(max);
}

// Codes of `count` values, a multiple of 4, x · inverse rounded to even; returns their sum.
inline int32_t QuantizeValues(const float* x, size_t count, float inverse, int8_t* codes) {
  int32x4_t sum = vdupq_n_s32(0);
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    int32x4_t q[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      q[j] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4 * j), inverse));
      sum = vaddq_s32(sum, q[j]);
    }
    const int16x8_t low = vcombine_s16(vmovn_s32(q[0]), vmovn_s32(q[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(q[2]), vmovn_s32(q[3]));
    vst1q_s8(codes + i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  for (; i < count; i += 4) {
    const int32x4_t q = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
    sum = vaddq_s32(sum, q);
    const int16x4_t words = vmovn_s32(q);
    const int8x8_t bytes = vmovn_s16(vcombine_s16(words, words));
    __builtin_memcpy(codes + i, &bytes, 4);
  }
  return vaddvq_s32(sum);
}

}  // namespace

void neon::QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                       float* sums, int32_t* code_sums) {
  for (size_t g = 0; g < cols / group_size; ++g, x += group_size, codes += group_size) {
    const uint32_t bits = MaxAbsBits(x, group_size);
    float max;
    __builtin_memcpy(&max, &bits, 4);
    if (bits >= 0x7F800000u || max < 0x1p-100f) {
      __builtin_memset(codes, 0, group_size);
      code_sums[g] = 0;
      scales[g] = sums[g] = bits >= 0x7F800000u ? __builtin_nanf("") : 0.0f;
      continue;
    }
    code_sums[g] = QuantizeValues(x, group_size, 127.0f / max, codes);
    scales[g] = max / 127.0f;
    sums[g] = scales[g] * static_cast<float>(code_sums[g]);
  }
}

void neon::PackedGemv(const PackedProductArgs& args) {
  if (args.w->layout.type == PackedType::kI8)
    return GemvOfSize<PackedType::kI8, OffsetType::kNone>(args);
  switch (args.w->layout.offset) {
    case OffsetType::kNone:
      return GemvOfSize<PackedType::kU4, OffsetType::kNone>(args);
    case OffsetType::kZero4:
      return GemvOfSize<PackedType::kU4, OffsetType::kZero4>(args);
    default:
      return GemvOfSize<PackedType::kU4, OffsetType::kMinF16>(args);
  }
}

void neon::PackedGemm(const PackedProductArgs& args) {
  if (args.w->layout.type == PackedType::kI8)
    return GemmOf<PackedType::kI8, OffsetType::kNone>(args);
  switch (args.w->layout.offset) {
    case OffsetType::kNone:
      return GemmOf<PackedType::kU4, OffsetType::kNone>(args);
    case OffsetType::kZero4:
      return GemmOf<PackedType::kU4, OffsetType::kZero4>(args);
    default:
      return GemmOf<PackedType::kU4, OffsetType::kMinF16>(args);
  }
}

}  // namespace pocketlm
