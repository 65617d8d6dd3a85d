// Products of packed weights with int8 activations on 256 bits, for AVX2 and, where __AVXVNNI__ is defined, with
// VPDPBUSD. Included only by avx2_packed.cc and avxvnni_packed.cc, each of which compiles its own copy.
//
// Within a register the rows of a tile lie in the order 0 1 4 5 2 3 6 7, which is what interleaving two registers
// of four rows gives; scales and offsets are brought to it when loaded, results back when stored.
#pragma once

#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {
namespace {

#if defined(__AVXVNNI__)
constexpr bool kVnni = true;
inline __m256i DotAdd(__m256i sum, __m256i codes, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, codes, x);
}
#else
constexpr bool kVnni = false;
inline __m256i DotAdd(__m256i sum, __m256i, __m256i) { return sum; }  // not called
#endif

constexpr size_t kPrefetchBytes = 2048;  // how far ahead of their use codes are asked for

inline __m256i LoadBytes(const std::byte* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline void StoreBytes(std::byte* p, __m256i value) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(p), value);
}
inline __m256i LowNibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
inline __m256i HighNibbles(__m256i x) { return LowNibbles(_mm256_srli_epi16(x, 4)); }
// i8 codes as unsigned bytes with bias 128.
inline __m256i Biased(__m256i x) { return _mm256_xor_si256(x, _mm256_set1_epi8(-128)); }

// Pinned to a register: one load for all uses.
inline __m256i Broadcast8(const int8_t* x) {
  long long value;
  __builtin_memcpy(&value, x, 8);
  __m256i out = _mm256_set1_epi64x(value);
  asm("" : "+x"(out));
  return out;
}
inline __m256i Broadcast4(const int8_t* x) {
  int value;
  __builtin_memcpy(&value, x, 4);
  __m256i out = _mm256_set1_epi32(value);
  asm("" : "+x"(out));
  return out;
}

// Keeps the compiler from adding in another order, which takes more registers than there are.
inline void Pin(__m256i* sum) { asm("" : "+x"(*sum)); }

// sum + Σ code · x over pairs of bytes, in 16 bits; codes are nibbles.
inline __m256i AddPairs(__m256i sum, __m256i codes, __m256i x) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x));
  Pin(&sum);
  return sum;
}

inline __m256i WidenPairs(__m256i sums16) {
  return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1));
}

// 8 halves, one a row, as floats.
inline __m256 RowHalves(const std::byte* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtph_ps(_mm_shuffle_epi32(halves, _MM_SHUFFLE(3, 1, 2, 0)));
}

inline __m256 ThroughHalf(__m256 x) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

// The mins of a group whose offsets lie at p.
template <OffsetType kOffset>
inline __m256 RowMins(const std::byte* p, __m256 scale) {
  if constexpr (kOffset == OffsetType::kNone)
    return ThroughHalf(_mm256_mul_ps(scale, _mm256_set1_ps(-8.0f)));
  if constexpr (kOffset == OffsetType::kMinF16) return RowHalves(p);
  int word;
  __builtin_memcpy(&word, p, 4);
  const __m256i shifts = _mm256_setr_epi32(0, 4, 16, 20, 8, 12, 24, 28);
  const __m256i zeros =
      _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(word), shifts), _mm256_set1_epi32(15));
  const __m256 product = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(zeros));
  return ThroughHalf(_mm256_xor_ps(product, _mm256_set1_ps(-0.0f)));
}

// Sizes of a matrix, computed here because inline functions of headers must not be compiled for this instruction
// set.
template <PackedType kType, OffsetType kOffset>
struct Sizes {
  static constexpr size_t kOffsetBytes = kOffset == OffsetType::kNone    ? 0
                                         : kOffset == OffsetType::kZero4 ? 4
                                                                         : 16;
  size_t cols, group, groups, group_bytes;

  explicit Sizes(const PackedMatrix& w)
      : cols(w.cols),
        group(w.layout.group_size),
        groups(w.cols / w.layout.group_size),
        group_bytes(group * (kType == PackedType::kU4 ? 4 : 8)) {}
};

// y[0, rows) = or += value, rows in register order; rows ≤ 8.
inline void StoreRows(float* y, __m256 value, size_t rows, bool accumulate) {
  value = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(value), _MM_SHUFFLE(3, 1, 2, 0)));
  if (rows >= 8) {
    if (accumulate) value = _mm256_add_ps(_mm256_loadu_ps(y), value);
    _mm256_storeu_ps(y, value);
    return;
  }
  const __m256i mask = PrefixMask(rows);
  if (accumulate) value = _mm256_add_ps(_mm256_maskload_ps(y, mask), value);
  _mm256_maskstore_ps(y, mask, value);
}

// ---- Straight from the packed codes, for few rows of x: bound by memory ----

// Sums of the two 32-bit lanes of each row: a has rows 0–3, b rows 4–7.
inline __m256i SumLanePairs(__m256i a, __m256i b) { return _mm256_hadd_epi32(a, b); }

// Adds the products of 16 inputs, packed as nibbles, to sums of 16 bits or, with VNNI, 32 bits.
inline void AddNibbles(__m256i codes, __m256i x_low, __m256i x_high, __m256i* sum) {
  if constexpr (kVnni) {
    *sum = DotAdd(*sum, LowNibbles(codes), x_low);
    *sum = DotAdd(*sum, HighNibbles(codes), x_high);
  } else {
    *sum = AddPairs(*sum, LowNibbles(codes), x_low);
    *sum = AddPairs(*sum, HighNibbles(codes), x_high);
  }
}

// Adds the products of 8 inputs in int8 to sums of 32 bits; with VNNI of the biased codes.
inline void AddBytes(__m256i codes, __m256i x, __m256i* sum) {
  if constexpr (kVnni) {
    *sum = DotAdd(*sum, Biased(codes), x);
  } else {
    // |code| · 127 · 2 fits 16 bits.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
    *sum = _mm256_add_epi32(*sum, WidenPairs(pairs));
    Pin(sum);
  }
}

// dot[t] = Σ code · x_code of one group (biased codes for i8 with VNNI) for T rows of x, x_stride apart.
template <PackedType kType, int kSize, int T>
inline void GroupDots(const std::byte* codes, const int8_t* x, size_t x_stride, __m256i (&dot)[T]) {
  constexpr int kPart = kSize < 64 ? kSize : 64;  // inputs that sums of 16 bits can take
  __m256i total[2][T];
#pragma GCC unroll 2
  for (int part = 0; part < kSize; part += kPart) {
    __m256i sum[2][T];
    for (int t = 0; t < T; ++t) sum[0][t] = sum[1][t] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = part; i < part + kPart; i += 16) {
      if constexpr (kType == PackedType::kU4) {
        const __m256i first = LoadBytes(codes + 4 * i), second = LoadBytes(codes + 4 * i + 32);
        for (int t = 0; t < T; ++t) {
          const int8_t* from = x + static_cast<size_t>(t) * x_stride + i;
          const __m256i x_low = Broadcast8(from), x_high = Broadcast8(from + 8);
          AddNibbles(first, x_low, x_high, &sum[0][t]);
          AddNibbles(second, x_low, x_high, &sum[1][t]);
        }
      } else {
        for (int j = i; j < i + 16; j += 8) {
          const __m256i first = LoadBytes(codes + 8 * j), second = LoadBytes(codes + 8 * j + 32);
          for (int t = 0; t < T; ++t) {
            const __m256i x8 = Broadcast8(x + static_cast<size_t>(t) * x_stride + j);
            AddBytes(first, x8, &sum[0][t]);
            AddBytes(second, x8, &sum[1][t]);
          }
        }
      }
    }
    for (int half = 0; half < 2; ++half) {
      for (int t = 0; t < T; ++t) {
        if constexpr (kType == PackedType::kU4 && !kVnni) sum[half][t] = WidenPairs(sum[half][t]);
        total[half][t] = part == 0 ? sum[half][t] : _mm256_add_epi32(total[half][t], sum[half][t]);
      }
    }
  }
  for (int t = 0; t < T; ++t) dot[t] = SumLanePairs(total[0][t], total[1][t]);
}

// y of rows [row, row + T) of x.
template <PackedType kType, OffsetType kOffset, int kSize, int T>
void DirectRows(const PackedProductArgs& args, size_t row) {
  const PackedMatrix& w = *args.w;
  const Sizes<kType, kOffset> sizes(w);
  const size_t cols = sizes.cols, groups = sizes.groups;
  constexpr size_t kBytes = kTileRows * kSize / (kType == PackedType::kU4 ? 2 : 1);
  const std::byte* codes = w.codes + args.tile_begin * groups * kBytes;
  const std::byte* scales = w.scales + args.tile_begin * groups * 16;
  const std::byte* offsets = w.offsets + args.tile_begin * groups * sizes.kOffsetBytes;
  const int8_t* x = args.x.codes + row * cols;
  const float* x_scales = args.x.scales + row * groups;
  const float* x_sums = args.x.sums + row * groups;
  const int32_t* x_code_sums = args.x.code_sums + row * groups;
  float* y = args.y + row * args.y_stride;
  for (size_t tile = args.tile_begin; tile < args.tile_end; ++tile, y += kTileRows) {
    __m256 a[T], b[T];
    for (int t = 0; t < T; ++t) a[t] = b[t] = _mm256_setzero_ps();
    for (size_t g = 0; g < groups; ++g) {
      const char* ahead = reinterpret_cast<const char*>(codes) + kPrefetchBytes;
#pragma GCC unroll 16
      for (size_t line = 0; line < kBytes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
      __m256i dot[T];
      GroupDots<kType, kSize, T>(codes, x + g * kSize, cols, dot);
      const __m256 scale = RowHalves(scales);
      [[maybe_unused]] __m256 min;
      if constexpr (kType == PackedType::kU4) min = RowMins<kOffset>(offsets, scale);
      for (int t = 0; t < T; ++t) {
        const size_t at = static_cast<size_t>(t) * groups + g;
        if constexpr (kType == PackedType::kI8 && kVnni)
          dot[t] = _mm256_sub_epi32(dot[t], _mm256_set1_epi32(128 * x_code_sums[at]));
        const __m256 both = _mm256_mul_ps(scale, _mm256_broadcast_ss(x_scales + at));
        a[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t]), both, a[t]);
        if constexpr (kType == PackedType::kU4)
          b[t] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(x_sums + at), b[t]);
      }
      codes += kBytes;
      scales += 16;
      offsets += sizes.kOffsetBytes;
    }
    for (int t = 0; t < T; ++t) {
      if constexpr (kType == PackedType::kU4) a[t] = _mm256_add_ps(a[t], b[t]);
      StoreRows(y + static_cast<size_t>(t) * args.y_stride, a[t], w.rows - tile * kTileRows,
                args.accumulate);
    }
  }
}

constexpr size_t kMaxDirectRows = 4;  // at once

template <PackedType kType, OffsetType kOffset, int kSize>
void DirectOfSize(const PackedProductArgs& args) {
  switch (args.x_rows) {
    case 1:
      return DirectRows<kType, kOffset, kSize, 1>(args, 0);
    case 2:
      return DirectRows<kType, kOffset, kSize, 2>(args, 0);
    case 3:
      return DirectRows<kType, kOffset, kSize, 3>(args, 0);
    case kMaxDirectRows:
      return DirectRows<kType, kOffset, kSize, 4>(args, 0);
    default:
      return;
  }
}

template <PackedType kType, OffsetType kOffset>
void DirectProduct(const PackedProductArgs& args) {
  switch (args.w->layout.group_size) {
    case 32:
      return DirectOfSize<kType, kOffset, 32>(args);
    case 64:
      return DirectOfSize<kType, kOffset, 64>(args);
    default:
      return DirectOfSize<kType, kOffset, 128>(args);
  }
}

// ---- From unpacked panels, for many rows of x: bound by arithmetic ----

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
