// Products of many rows: weights unpacked into panels of 16 rows, then VPDPBUSD over the panels. Included as
// avx512_common.h, under the same conditions.
#pragma once

#include "backend/cpu/x86/avx512_common.h"

namespace pocketlm {
namespace {

inline __m512i Load(const std::byte* p) { return _mm512_load_si512(p); }

inline __m512i LowNibbles(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline __m512i HighNibbles(__m512i x) { return LowNibbles(_mm512_srli_epi16(x, 4)); }

// i8 codes as unsigned bytes with bias 128.
inline __m512i Biased(__m512i x) { return _mm512_xor_si512(x, _mm512_set1_epi8(-128)); }

inline __m512i Broadcast4(const int8_t* x) {
  int value;
  __builtin_memcpy(&value, x, 4);
  return _mm512_set1_epi32(value);
}

// Unpacked weights of 16 rows: codes as bytes, [cols / 4][16 rows][4 inputs], and floats [groups][16].
struct Panel {
  const std::byte* codes;
  const float* scales;
  const float* mins;
};

// Bytes of a panel; panels lie one after the other.
constexpr size_t PanelBytes(size_t cols, size_t groups) { return 16 * cols + 2 * groups * 64; }

inline Panel PanelAt(std::byte* memory, size_t index, size_t cols, size_t groups) {
  std::byte* at = memory + index * PanelBytes(cols, groups);
  auto* scales = reinterpret_cast<float*>(at + 16 * cols);
  return {at, scales, scales + 16 * groups};
}

// The 32-bit lanes of two tiles' rows apart: inputs 0–3 of 16 rows, then inputs 4–7.
inline void StoreInterleaved(__m512i a, __m512i b, std::byte* to) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  _mm512_store_si512(to, _mm512_permutex2var_epi32(a, even, b));
  _mm512_store_si512(to + 64, _mm512_permutex2var_epi32(a, odd, b));
}

template <PackedType kType, OffsetType kOffset>
void UnpackPanel(const PackedMatrix& w, const TilePair& pair, std::byte* to) {
  const size_t cols = w.cols, groups = w.groups();
  float* scales = reinterpret_cast<float*>(to + 16 * cols);
  for (size_t g = 0; g < groups; ++g) {
    const __m512 scale = pair.Scales(g);
    _mm512_store_ps(scales + 16 * g, scale);
    if constexpr (kType == PackedType::kU4)
      _mm512_store_ps(scales + 16 * (groups + g), pair.Mins<kOffset>(g, scale));
  }
  constexpr size_t kInputs = kType == PackedType::kU4 ? 16 : 8;  // of a block of 64 bytes
  for (size_t i = 0; i < cols / kInputs; ++i, to += 16 * kInputs) {
    const __m512i a = Load(pair.codes[0] + 64 * i), b = Load(pair.codes[1] + 64 * i);
    if constexpr (kType == PackedType::kU4) {
      StoreInterleaved(LowNibbles(a), LowNibbles(b), to);
      StoreInterleaved(HighNibbles(a), HighNibbles(b), to + 128);
    } else {
      StoreInterleaved(Biased(a), Biased(b), to);
    }
  }
}

// y for T rows of x and 16·P rows of w.
template <PackedType kType, int T, int P>
void Product(const Panel* panels, size_t cols, size_t size, const QuantizedRows& x, size_t row,
             __m512 (&y)[P][T]) {
  const size_t groups = cols / size;
  const int8_t* codes = x.codes + row * cols;
  const float* x_scales = x.scales + row * groups;
  __m512 a[P][T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) a[p][t] = _mm512_setzero_ps();
  }
  for (size_t g = 0; g < groups; ++g) {
    __m512i dot[P][T];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      __m512i start = _mm512_setzero_si512();
      if constexpr (kType == PackedType::kI8)
        start = _mm512_set1_epi32(-128 * x.code_sums[(row + t) * groups + g]);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) dot[p][t] = start;
    }
    for (size_t i = g * size; i < (g + 1) * size; i += 4) {
      __m512i w[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) w[p] = Load(panels[p].codes + 16 * i);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const __m512i broadcast = Broadcast4(codes + t * cols + i);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) dot[p][t] = _mm512_dpbusd_epi32(dot[p][t], w[p], broadcast);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512 scale = _mm512_load_ps(panels[p].scales + 16 * g);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[t * groups + g]));
        a[p][t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p][t]), both, a[p][t]);
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) y[p][t] = a[p][t];
  }
}

// Adds the offset term.
template <int T, int P>
void AddOffsets(const Panel* panels, size_t groups, const float* sums, __m512 (&y)[P][T]) {
  __m512 b[P][T];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) b[p][t] = _mm512_setzero_ps();
  }
  for (size_t g = 0; g < groups; ++g) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) {
      const __m512 min = _mm512_load_ps(panels[p].mins + 16 * g);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
        b[p][t] = _mm512_fmadd_ps(min, _mm512_set1_ps(sums[t * groups + g]), b[p][t]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) y[p][t] = _mm512_add_ps(y[p][t], b[p][t]);
  }
}

template <PackedType kType, int T, int P>
void Rows(const PackedProductArgs& args, const Panel* panels, size_t row, size_t n, size_t count) {
  const PackedMatrix& w = *args.w;
  __m512 y[P][T];
  Product<kType, T, P>(panels, w.cols, w.layout.group_size, args.x, row, y);
  if constexpr (kType == PackedType::kU4)
    AddOffsets<T, P>(panels, w.groups(), args.x.sums + row * w.groups(), y);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    float* to = args.y + (row + t) * args.y_stride + n;
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      StoreRows(to + 16 * p, y[p][t], count - 16 * static_cast<size_t>(p), args.accumulate);
  }
}

constexpr int kRowsAtOnce = 6;  // of x: 2·2·6 accumulators, and what feeds them, fit 32 registers

// y for rows of x from `row` on; `count` rows of w, of which the first is args' row n.
template <PackedType kType, int P>
void AllRows(const PackedProductArgs& args, const Panel* panels, size_t row, size_t n,
             size_t count) {
  for (; row + kRowsAtOnce <= args.x_rows; row += kRowsAtOnce)
    Rows<kType, kRowsAtOnce, P>(args, panels, row, n, count);
  switch (args.x_rows - row) {
    case 5:
      return Rows<kType, 5, P>(args, panels, row, n, count);
    case 4:
      return Rows<kType, 4, P>(args, panels, row, n, count);
    case 3:
      return Rows<kType, 3, P>(args, panels, row, n, count);
    case 2:
      return Rows<kType, 2, P>(args, panels, row, n, count);
    case 1:
      return Rows<kType, 1, P>(args, panels, row, n, count);
    default:
      return;
  }
}

}  // namespace
}  // namespace pocketlm
