// Products of many rows, bound by arithmetic: weights unpacked into panels of one tile each. Included as
// avx2_packed.h, under the same conditions, with the same order of rows within a register.
#pragma once

#include "backend/cpu/x86/avx2_packed.h"

namespace pocketlm {
namespace {

// A tile with its codes as bytes, [cols / 8][8 rows][8 inputs], and floats [groups][8], rows in register order.
struct Panel {
  const std::byte* codes;
  const float* scales;
  const float* mins;
};

constexpr size_t kPanelTiles = 4;  // whose codes the first-level cache holds

// Bytes of a panel; panels lie one after the other.
constexpr size_t PanelBytes(size_t cols, size_t groups) { return 8 * cols + 2 * groups * 32; }

inline Panel PanelAt(std::byte* memory, size_t index, size_t cols, size_t groups) {
  std::byte* at = memory + index * PanelBytes(cols, groups);
  auto* scales = reinterpret_cast<float*>(at + 8 * cols);
  return {at, scales, scales + 8 * groups};
}

template <OffsetType kOffset>
void UnpackTile(const PackedMatrix& w, size_t tile, std::byte* to) {
  const Sizes<PackedType::kU4, kOffset> sizes(w);
  const size_t groups = sizes.groups;
  const std::byte* codes = w.codes + tile * groups * sizes.group_bytes;
  const std::byte* scales = w.scales + tile * groups * 16;
  const std::byte* offsets = w.offsets + tile * groups * sizes.kOffsetBytes;
  float* floats = reinterpret_cast<float*>(to + 8 * sizes.cols);
  for (size_t g = 0; g < groups; ++g, offsets += sizes.kOffsetBytes) {
    const __m256 scale = RowHalves(scales + 16 * g);
    _mm256_store_ps(floats + 8 * g, scale);
    _mm256_store_ps(floats + 8 * (groups + g), RowMins<kOffset>(offsets, scale));
  }
  for (size_t i = 0; i < sizes.cols; i += 16, codes += 64, to += 128) {
    const __m256i first = LoadBytes(codes), second = LoadBytes(codes + 32);
    StoreBytes(to, LowNibbles(first));
    StoreBytes(to + 32, LowNibbles(second));
    StoreBytes(to + 64, HighNibbles(first));
    StoreBytes(to + 96, HighNibbles(second));
  }
}

// dot[t] = Σ code · x_code of one group for T rows of x, x_stride apart.
template <int kSize, int T>
inline void PanelDots(const std::byte* codes, const int8_t* x, size_t x_stride, __m256i (&dot)[T]) {
  constexpr int kPart = kSize < 64 ? kSize : 64;  // inputs that sums of 16 bits can take
  __m256i total[2][T];
#pragma GCC unroll 2
  for (int part = 0; part < kSize; part += kPart) {
    __m256i sum[2][T];
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) sum[0][t] = sum[1][t] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = part; i < part + kPart; i += 8) {
      const __m256i first = LoadBytes(codes + 8 * i), second = LoadBytes(codes + 8 * i + 32);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const __m256i x8 = Broadcast8(x + static_cast<size_t>(t) * x_stride + i);
        if constexpr (kVnni) {
          sum[0][t] = DotAdd(sum[0][t], first, x8);
          sum[1][t] = DotAdd(sum[1][t], second, x8);
        } else {
          sum[0][t] = AddPairs(sum[0][t], first, x8);
          sum[1][t] = AddPairs(sum[1][t], second, x8);
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      for (int half = 0; half < 2; ++half) {
        if constexpr (!kVnni) sum[half][t] = WidenPairs(sum[half][t]);
        total[half][t] = part == 0 ? sum[half][t] : _mm256_add_epi32(total[half][t], sum[half][t]);
      }
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) dot[t] = SumLanePairs(total[0][t], total[1][t]);
}

// y of T rows of x from `row` on and the rows of one tile.
template <int kSize, int T>
void PanelRows(const PackedProductArgs& args, const Panel& panel, size_t row, size_t n,
               size_t count) {
  const size_t cols = args.w->cols, groups = cols / kSize;
  const int8_t* x = args.x.codes + row * cols;
  const float* x_scales = args.x.scales + row * groups;
  const float* x_sums = args.x.sums + row * groups;
  __m256 a[T];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) a[t] = _mm256_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    __m256i dot[T];
    PanelDots<kSize, T>(panel.codes + g * 8 * kSize, x + g * kSize, cols, dot);
    const __m256 scale = _mm256_load_ps(panel.scales + 8 * g);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const float* x_scale = x_scales + static_cast<size_t>(t) * groups + g;
      const __m256 both = _mm256_mul_ps(scale, _mm256_broadcast_ss(x_scale));
      a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t]), both, a[t]);
    }
  }
  __m256 b[T];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) b[t] = _mm256_setzero_ps();
  for (size_t g = 0; g < groups; ++g) {
    const __m256 min = _mm256_load_ps(panel.mins + 8 * g);
#pragma GCC unroll 4
    for (int t = 0; t < T; ++t) {
      const float* x_sum = x_sums + static_cast<size_t>(t) * groups + g;
      b[t] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(x_sum), b[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    float* y = args.y + (row + static_cast<size_t>(t)) * args.y_stride + n;
    StoreRows(y, _mm256_add_ps(a[t], b[t]), count, args.accumulate);
  }
}

// Rows of x from which on unpacking pays.
constexpr size_t kMinPanelRows = 16;

// Rows of x at once: what 16 registers hold with their sums of two registers each.
constexpr size_t kRowsAtOnce = 4;

template <int kSize>
void AllPanelRows(const PackedProductArgs& args, size_t tile, size_t tiles) {
  const size_t cols = args.w->cols, groups = cols / kSize;
  for (size_t row = 0; row < args.x_rows; row += kRowsAtOnce) {
    for (size_t i = 0; i < tiles; ++i) {
      const Panel panel = PanelAt(args.panel, i, cols, groups);
      const size_t n = (tile + i - args.tile_begin) * kTileRows;
      const size_t count = args.w->rows - (tile + i) * kTileRows;
      switch (Min(args.x_rows - row, kRowsAtOnce)) {
        case 1:
          PanelRows<kSize, 1>(args, panel, row, n, count);
          break;
        case 2:
          PanelRows<kSize, 2>(args, panel, row, n, count);
          break;
        case 3:
          PanelRows<kSize, 3>(args, panel, row, n, count);
          break;
        default:
          PanelRows<kSize, 4>(args, panel, row, n, count);
          break;
      }
    }
  }
}

template <OffsetType kOffset>
void PanelProduct(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const Sizes<PackedType::kU4, kOffset> sizes(w);
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += kPanelTiles) {
    const size_t tiles = Min(args.tile_end - tile, kPanelTiles);
    for (size_t i = 0; i < tiles; ++i) {
      UnpackTile<kOffset>(w, tile + i, args.panel + i * PanelBytes(sizes.cols, sizes.groups));
    }
    switch (sizes.group) {
      case 32:
        AllPanelRows<32>(args, tile, tiles);
        break;
      case 64:
        AllPanelRows<64>(args, tile, tiles);
        break;
      default:
        AllPanelRows<128>(args, tile, tiles);
        break;
    }
  }
}

// Rows [row, row + rows) of x alone.
inline PackedProductArgs SomeRows(const PackedProductArgs& args, size_t row, size_t rows,
                                  size_t cols, size_t groups) {
  PackedProductArgs out = args;
  out.x.codes += row * cols;
  out.x.scales += row * groups;
  out.x.sums += row * groups;
  out.x.code_sums += row * groups;
  out.x_rows = rows;
  out.y += row * args.y_stride;
  return out;
}

template <PackedType kType, OffsetType kOffset>
void Product(const PackedProductArgs& args) {
  const Sizes<kType, kOffset> sizes(*args.w);
  if (kType == PackedType::kU4 && args.x_rows >= kMinPanelRows) return PanelProduct<kOffset>(args);
  for (size_t row = 0; row < args.x_rows; row += kMaxDirectRows) {
    DirectProduct<kType, kOffset>(
        SomeRows(args, row, Min(args.x_rows - row, kMaxDirectRows), sizes.cols, sizes.groups));
  }
}

// packed_gemv and packed_gemm.
inline void PackedProduct(const PackedProductArgs& args) {
  if (args.w->layout.type == PackedType::kI8)
    return Product<PackedType::kI8, OffsetType::kNone>(args);
  switch (args.w->layout.offset) {
    case OffsetType::kNone:
      return Product<PackedType::kU4, OffsetType::kNone>(args);
    case OffsetType::kZero4:
      return Product<PackedType::kU4, OffsetType::kZero4>(args);
    default:
      return Product<PackedType::kU4, OffsetType::kMinF16>(args);
  }
}

}  // namespace
}  // namespace pocketlm
