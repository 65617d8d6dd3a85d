// The AMX kernel table: AVX-512 VNNI with products of many rows on tiles of 16 × 16 × 64 bytes (Intel Architecture
// Instruction Set Extensions Programming Reference, chapter AMX).

#include "backend/cpu/x86/avx2_entries.h"
#include "backend/cpu/x86/avx512_panel.h"

namespace pocketlm {
namespace {

constexpr size_t kTokens = 16;  // rows of x in a tile

// Palette 1 of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tiles 0 and 1: sums of 16 tokens × 16 rows of w. 2 and 3: tokens × inputs. 4 and 5: inputs / 4 × rows of w.
void Configure(size_t inputs) {
  TileConfig config;
  for (int i = 0; i < 6; ++i) {
    config.rows[i] = 16;
    config.row_bytes[i] = 64;
  }
  for (int i = 2; i < 4; ++i) config.row_bytes[i] = static_cast<uint16_t>(inputs);
  for (int i = 4; i < 6; ++i) config.rows[i] = static_cast<uint8_t>(inputs / 4);
  // g++ 12 believes that the intrinsic reads 8 bytes of the 64 and may drop the stores of the rest.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// The sums of one group: `sums` [16 tokens][16 rows]. kOdd chooses the set of tiles, so that two groups can be in
// flight.
template <bool kOdd>
inline void GroupSums(const int8_t* x, size_t x_stride, const std::byte* codes, size_t size,
                      int32_t* sums) {
  constexpr size_t kMaxInputs = 64;
  if constexpr (kOdd) {
    _tile_zero(1);
  } else {
    _tile_zero(0);
  }
  for (size_t i = 0; i < size; i += kMaxInputs, x += kMaxInputs, codes += 16 * kMaxInputs) {
    if constexpr (kOdd) {
      _tile_loadd(3, x, x_stride);
      _tile_loadd(5, codes, 64);
      _tile_dpbsud(1, 3, 5);
    } else {
      _tile_loadd(2, x, x_stride);
      _tile_loadd(4, codes, 64);
      _tile_dpbsud(0, 2, 4);
    }
  }
  if constexpr (kOdd) {
    _tile_stored(1, sums, 64);
  } else {
    _tile_stored(0, sums, 64);
  }
}

// y += float(sum) · (w_scale · x_scale) for the 16 tokens.
inline void AddGroup(const int32_t* sums, const float* w_scales, const float* x_scales,
                     size_t groups, __m512 (&y)[kTokens]) {
  const __m512 scale = _mm512_load_ps(w_scales);
#pragma GCC unroll 16
  for (size_t t = 0; t < kTokens; ++t) {
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + 16 * t));
    y[t] = _mm512_fmadd_ps(sum, _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[t * groups])), y[t]);
  }
}

// y for 16 rows of x from `row` on and the rows of a panel.
void TileRows(const PackedProductArgs& args, const Panel& panel, size_t row, size_t n,
              size_t count) {
  alignas(64) int32_t sums[2][kTokens * 16];
  const PackedMatrix& w = *args.w;
  const size_t groups = w.groups(), size = w.layout.group_size;
  const int8_t* x = args.x.codes + row * w.cols;
  const float* x_scales = args.x.scales + row * groups;
  __m512 y[kTokens];
#pragma GCC unroll 16
  for (size_t t = 0; t < kTokens; ++t) y[t] = _mm512_setzero_ps();
  // The tiles work on the next group while the vectors take in the last one.
  GroupSums<false>(x, w.cols, panel.codes, size, sums[0]);
  for (size_t g = 0; g < groups; g += 2) {
    const size_t next = g + 1;
    if (next < groups)
      GroupSums<true>(x + next * size, w.cols, panel.codes + 16 * next * size, size, sums[1]);
    AddGroup(sums[0], panel.scales + 16 * g, x_scales + g, groups, y);
    if (next == groups) break;
    if (next + 1 < groups) {
      GroupSums<false>(x + (next + 1) * size, w.cols, panel.codes + 16 * (next + 1) * size, size,
                       sums[0]);
    }
    AddGroup(sums[1], panel.scales + 16 * next, x_scales + next, groups, y);
  }
  __m512 b[kTokens];
#pragma GCC unroll 16
  for (size_t t = 0; t < kTokens; ++t) b[t] = _mm512_setzero_ps();
  const float* x_sums = args.x.sums + row * groups;
  for (size_t g = 0; g < groups; ++g) {
    const __m512 min = _mm512_load_ps(panel.mins + 16 * g);
#pragma GCC unroll 16
    for (size_t t = 0; t < kTokens; ++t)
      b[t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x_sums[t * groups + g]), b[t]);
  }
#pragma GCC unroll 16
  for (size_t t = 0; t < kTokens; ++t) {
    StoreRows(args.y + (row + t) * args.y_stride + n, _mm512_add_ps(y[t], b[t]), count,
              args.accumulate);
  }
}

template <OffsetType kOffset>
void Gemm(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const size_t tile_rows = args.x_rows / kTokens * kTokens;
  Configure(Min(w.layout.group_size, 64));
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += 4) {
    const size_t end = Min(args.tile_end, tile + 4);
    const size_t first = (tile - args.tile_begin) * kTileRows;
    const size_t count = Min(w.rows, end * kTileRows) - tile * kTileRows;
    Panel panels[2];
    const size_t used = end - tile > 2 ? 2 : 1;
    for (size_t p = 0; p < used; ++p) {
      panels[p] = PanelAt(args.panel, p, w.cols, w.groups());
      UnpackPanel<PackedType::kU4, kOffset>(w, TilePair(w, tile + 2 * p, end),
                                            args.panel + p * PanelBytes(w.cols, w.groups()));
    }
    for (size_t row = 0; row < tile_rows; row += kTokens) {
      for (size_t p = 0; p < used; ++p)
        TileRows(args, panels[p], row, first + 16 * p, Min(count - 16 * p, 16));
    }
    if (used == 2) {
      AllRows<PackedType::kU4, 2>(args, panels, tile_rows, first, count);
    } else {
      AllRows<PackedType::kU4, 1>(args, panels, tile_rows, first, count);
    }
  }
  _tile_release();
}

void PackedGemm(const PackedProductArgs& args) {
  if (args.w->layout.type == PackedType::kI8 || args.x_rows < kTokens)
    return avx512::PackedGemm(args);
  switch (args.w->layout.offset) {
    case OffsetType::kNone:
      return Gemm<OffsetType::kNone>(args);
    case OffsetType::kZero4:
      return Gemm<OffsetType::kZero4>(args);
    default:
      return Gemm<OffsetType::kMinF16>(args);
  }
}

}  // namespace

const CpuKernels kAmxKernels = {
    .name = "amx",
    .dequantize = avx2::Dequantize,
    .gemv = avx2::Gemv,
    .gemm = avx2::Gemm,
    .quantize_row = avx512::QuantizeRow,
    .packed_gemv = avx512::PackedGemv,
    .packed_gemm = PackedGemm,
    .attend_block = avx512::AttendBlock,
    .merge_attention = avx512::MergeAttention,
    .rotate_groups = avx512::RotateGroups,
    .rms_norm = avx2::RmsNorm,
    .rope_halves = avx2::RopeHalves,
    .rope_interleaved = avx2::RopeInterleaved,
    .floats_to_halves = avx2::FloatsToHalves,
    .silu_mul = avx2::SiluMul,
    .gelu_mul = avx2::GeluMul,
    .add = avx2::Add,
    .scale = avx2::Scale,
};

}  // namespace pocketlm
