// The NEON kernel table for CPUs with 8-bit matrix multiplication: products of many rows by SMMLA, everything else
// as kNeonDotprodKernels.

#include "backend/cpu/arm/neon_packed.h"

namespace pocketlm {
namespace {

constexpr size_t kPairs = 4;             // pairs of rows of x that are computed together
constexpr size_t kFewRows = 2 * kPairs;  // up to so many, weights are unpacked on the fly

// Rows of x two by two: codes [cols / 8][pairs][2 rows × 8 inputs], scales and sums [groups][pairs][4], each value
// twice as the products want it.
struct RowPairs {
  int8_t* codes;
  float* scales;
  float* sums;
};

inline RowPairs RowPairsAt(std::byte* memory, size_t cols, size_t groups) {
  auto* scales = reinterpret_cast<float*>(memory + 2 * kPairs * cols);
  return {reinterpret_cast<int8_t*>(memory), scales, scales + groups * kPairs * 4};
}

inline void StoreTwice(float first, float second, float* to) {
  vst1q_f32(to, vcombine_f32(vdup_n_f32(first), vdup_n_f32(second)));
}

// Pair `pair` of `pairs`; `second` is `first` again for an odd last row.
void InterleaveRows(const QuantizedRows& x, size_t cols, size_t groups, size_t first, size_t second,
                    size_t pair, size_t pairs, const RowPairs& to) {
  const int8_t* a = x.codes + first * cols;
  const int8_t* b = x.codes + second * cols;
  int8_t* codes = to.codes + 16 * pair;
  for (size_t i = 0; i < cols; i += 16, codes += 32 * pairs) {
    const int64x2_t low = vreinterpretq_s64_s8(vld1q_s8(a + i));
    const int64x2_t high = vreinterpretq_s64_s8(vld1q_s8(b + i));
    vst1q_s8(codes, vreinterpretq_s8_s64(vzip1q_s64(low, high)));
    vst1q_s8(codes + 16 * pairs, vreinterpretq_s8_s64(vzip2q_s64(low, high)));
  }
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = (g * pairs + pair) * 4, from0 = first * groups + g,
                 from1 = second * groups + g;
    StoreTwice(x.scales[from0], x.scales[from1], to.scales + at);
    StoreTwice(x.sums[from0], x.sums[from1], to.sums + at);
  }
}

// For each pair of rows of x and each pair of rows of a tile: (x0·w0, x0·w1, x1·w0, x1·w1).
template <typename V, int P>
struct Quads {
  V pair[P][4];
};

// Eight inputs of the eight rows in `w`.
template <int P>
inline void AddInputs(const int8x16_t (&w)[4], const int8_t* x, Quads<int32x4_t, P>* dot) {
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
    const int8x16_t rows = vld1q_s8(x + 16 * p);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) dot->pair[p][j] = vmmlaq_s32(dot->pair[p][j], rows, w[j]);
  }
}

// 16 inputs; kNibbles: packed two in a byte. Returns where the codes go on.
template <bool kNibbles, int P>
inline const std::byte* AddBlock(const std::byte* codes, const int8_t* x,
                                 Quads<int32x4_t, P>* dot) {
  int8x16_t w[4];
  if constexpr (kNibbles) {
    uint8x16_t packed[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) packed[j] = LoadBytes(codes + 16 * j);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) w[j] = LowNibbles(packed[j]);
    AddInputs<P>(w, x, dot);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) w[j] = HighNibbles(packed[j]);
    AddInputs<P>(w, x + 16 * P, dot);
    return codes + 64;
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) w[j] = LoadCodes(codes + 16 * j);
  AddInputs<P>(w, x, dot);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) w[j] = LoadCodes(codes + 64 + 16 * j);
  AddInputs<P>(w, x + 16 * P, dot);
  return codes + 128;
}

// Two values for a pair of rows of w, twice.
inline float32x4_t LoadPairTwice(const float* p) {
  const float32x2_t pair = vld1_f32(p);
  return vcombine_f32(pair, pair);
}

template <int P>
inline void ZeroQuads(Quads<float32x4_t, P>* quads) {
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) quads->pair[p][j] = vdupq_n_f32(0.0f);
  }
}

// b = fma(min, x_sum, b) over the groups, added to `a`.
template <int P>
void AddOffsets(const Panel& panel, size_t groups, const float* sums, Quads<float32x4_t, P>* a) {
  Quads<float32x4_t, P> b;
  ZeroQuads<P>(&b);
  for (size_t g = 0; g < groups; ++g, sums += 4 * P) {
    float32x4_t min[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) min[j] = LoadPairTwice(panel.mins + 8 * g + 2 * j);
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const float32x4_t sum = vld1q_f32(sums + 4 * p);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) b.pair[p][j] = vfmaq_f32(b.pair[p][j], min[j], sum);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) a->pair[p][j] = vaddq_f32(a->pair[p][j], b.pair[p][j]);
  }
}

// Σ float(code · x_code) · (scale · x_scale) over the groups.
template <bool kNibbles, int P>
void ScaledSums(const Panel& panel, const PackedMatrix& w, const RowPairs& x,
                Quads<float32x4_t, P>* a) {
  const size_t size = w.layout.group_size, groups = w.groups();
  const std::byte* codes = panel.codes;
  const int8_t* rows = x.codes;
  const float* x_scales = x.scales;
  ZeroQuads<P>(a);
  for (size_t g = 0; g < groups; ++g, x_scales += 4 * P) {
    Quads<int32x4_t, P> dot;
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) dot.pair[p][j] = vdupq_n_s32(0);
    }
    for (size_t i = 0; i < size; i += 16, rows += 32 * P)
      codes = AddBlock<kNibbles, P>(codes, rows, &dot);
      // The float sums stay in memory: 16 registers hold the integer ones.
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float32x4_t scale = LoadPairTwice(panel.scales + 8 * g + 2 * j);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const float32x4_t both = vmulq_f32(scale, vld1q_f32(x_scales + 4 * p));
        a->pair[p][j] = vfmaq_f32(a->pair[p][j], vcvtq_f32_s32(dot.pair[p][j]), both);
      }
    }
  }
}

inline Rows8 RowOfPair(const float32x4_t (&quads)[4], bool second) {
  Rows8 out;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const float64x2_t a = vreinterpretq_f64_f32(quads[2 * i]);
    const float64x2_t b = vreinterpretq_f64_f32(quads[2 * i + 1]);
    out.quad[i] = vreinterpretq_f32_f64(second ? vzip2q_f64(a, b) : vzip1q_f64(a, b));
  }
  return out;
}

// What a product of one range of tiles works on.
struct Work {
  const PackedProductArgs& args;
  size_t tile;   // the first of up to kPanelTiles
  size_t count;  // rows of w
  RowPairs x;
};

// `rows` ≤ 2·P rows of x from `row` on with all tiles.
template <PackedType kType, bool kNibbles, int P>
void Strip(const Work& work, size_t row, size_t rows) {
  const PackedProductArgs& args = work.args;
  const PackedMatrix& w = *args.w;
  for (size_t p = 0; p < P; ++p) {
    const size_t first = row + 2 * p, second = Min(first + 1, row + rows - 1);
    InterleaveRows(args.x, w.cols, w.groups(), first, second, p, P, work.x);
  }
  for (size_t i = 0; i * kTileRows < work.count; ++i) {
    Panel panel = PanelAt(args.panel, i, w.cols, w.groups());
    if (kNibbles || kType == PackedType::kI8) panel.codes = Tile(w, work.tile + i).codes;
    Quads<float32x4_t, P> y;
    ScaledSums<kNibbles, P>(panel, w, work.x, &y);
    if constexpr (kType == PackedType::kU4) AddOffsets<P>(panel, w.groups(), work.x.sums, &y);
    const size_t n = (work.tile - args.tile_begin + i) * kTileRows;
    for (size_t t = 0; t < rows; ++t) {
      StoreRows(args.y + (row + t) * args.y_stride + n, RowOfPair(y.pair[t / 2], t % 2 != 0),
                work.count - i * kTileRows, args.accumulate);
    }
  }
}

template <PackedType kType, bool kNibbles>
void AllRows(const Work& work) {
  const size_t rows = work.args.x_rows;
  size_t row = 0;
  for (; row + 2 * kPairs <= rows; row += 2 * kPairs)
    Strip<kType, kNibbles, kPairs>(work, row, 2 * kPairs);
  const size_t rest = rows - row;
  switch ((rest + 1) / 2) {
    case 4:
      return Strip<kType, kNibbles, 4>(work, row, rest);
    case 3:
      return Strip<kType, kNibbles, 3>(work, row, rest);
    case 2:
      return Strip<kType, kNibbles, 2>(work, row, rest);
    case 1:
      return Strip<kType, kNibbles, 1>(work, row, rest);
    default:
      return;
  }
}

// Codes as int8, in the order in which i8 weights are stored: [cols / 8][8 rows][8 inputs].
void UnpackNibbles(const std::byte* from, size_t cols, std::byte* memory) {
  auto* to = reinterpret_cast<int8_t*>(memory);
  for (size_t i = 0; i < cols; i += 16, from += 64, to += 128) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const uint8x16_t packed = LoadBytes(from + 16 * j);
      vst1q_s8(to + 16 * j, LowNibbles(packed));
      vst1q_s8(to + 64 + 16 * j, HighNibbles(packed));
    }
  }
}

template <PackedType kType, OffsetType kOffset>
void GemmOf(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const size_t cols = w.cols, groups = w.groups();
  const RowPairs x = RowPairsAt(args.panel + kPanelTiles * PanelBytes(cols, groups), cols, groups);
  const bool few = args.x_rows <= kFewRows;
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += kPanelTiles) {
    const size_t end = Min(args.tile_end, tile + kPanelTiles);
    for (size_t i = tile; i < end; ++i) {
      std::byte* to = args.panel + (i - tile) * PanelBytes(cols, groups);
      const Tile from(w, i);
      if (kType == PackedType::kU4 && !few) UnpackNibbles(from.codes, cols, to);
      UnpackScales<kType, kOffset>(from, groups,
                                   reinterpret_cast<float*>(to + PanelCodeBytes(cols)));
    }
    const Work work{args, tile, Min(w.rows, end * kTileRows) - tile * kTileRows, x};
    if (kType == PackedType::kU4 && few) {
      AllRows<kType, kType == PackedType::kU4>(work);
    } else {
      AllRows<kType, false>(work);
    }
  }
}

void PackedGemm(const PackedProductArgs& args) {
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

}  // namespace

const CpuKernels kNeonI8mmKernels = {
    .name = "neon_i8mm",
    .dequantize = neon::Dequantize,
    .gemv = neon::Gemv,
    .gemm = neon::Gemm,
    .quantize_row = neon::QuantizeRow,
    .packed_gemv = neon::PackedGemv,
    .packed_gemm = PackedGemm,
    .attend_block = neon::AttendBlock,
    .merge_attention = neon::MergeAttention,
    .rotate_groups = neon::RotateGroups,
    .rms_norm = neon::RmsNorm,
    .rope_halves = neon::RopeHalves,
    .rope_interleaved = neon::RopeInterleaved,
    .floats_to_halves = neon::FloatsToHalves,
    .silu_mul = neon::SiluMul,
    .gelu_mul = neon::GeluMul,
    .add = neon::Add,
    .scale = neon::Scale,
};

// All of a product's scratch, with the smallest groups.
static_assert(kPanelTiles * PanelBytes(4096, 128) + 2 * kPairs * 4096 + 128 * kPairs * 32 <=
              PackedPanelBytes(4096));

}  // namespace pocketlm
