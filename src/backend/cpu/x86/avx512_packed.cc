// Products of packed weights with int8 activations, by VPDPBUSD on 512 bits.

#include "backend/cpu/x86/avx512_panel.h"

namespace pocketlm {
namespace {

// Eight activations for all rows of a tile.
inline __m512i Broadcast8(const int8_t* x) {
  long long value;
  __builtin_memcpy(&value, x, 8);
  return _mm512_set1_epi64(value);
}

// Sums of the two 32-bit lanes of each row of two tiles: 16 rows.
inline __m512i SumLanePairs(__m512i a, __m512i b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                          _mm512_permutex2var_epi32(a, odd, b));
}

// Σ code · x_code of one group for 16 rows; kSize inputs.
template <PackedType kType, int kSize>
inline __m512i GroupDot(const std::byte* first, const std::byte* second, const int8_t* x) {
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, b0 = a0, b1 = a0;
#pragma GCC unroll 8
  for (int i = 0; i < kSize; i += 16) {
    const __m512i x0 = Broadcast8(x + i), x1 = Broadcast8(x + i + 8);
    if constexpr (kType == PackedType::kU4) {
      const __m512i a = Load(first + 4 * i), b = Load(second + 4 * i);
      a0 = _mm512_dpbusd_epi32(a0, LowNibbles(a), x0);
      b0 = _mm512_dpbusd_epi32(b0, LowNibbles(b), x0);
      a1 = _mm512_dpbusd_epi32(a1, HighNibbles(a), x1);
      b1 = _mm512_dpbusd_epi32(b1, HighNibbles(b), x1);
    } else {
      a0 = _mm512_dpbusd_epi32(a0, Biased(Load(first + 8 * i)), x0);
      b0 = _mm512_dpbusd_epi32(b0, Biased(Load(second + 8 * i)), x0);
      a1 = _mm512_dpbusd_epi32(a1, Biased(Load(first + 8 * i + 64)), x1);
      b1 = _mm512_dpbusd_epi32(b1, Biased(Load(second + 8 * i + 64)), x1);
    }
  }
  return SumLanePairs(_mm512_add_epi32(a0, a1), _mm512_add_epi32(b0, b1));
}

template <PackedType kType, OffsetType kOffset, int kSize>
void Gemv(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const QuantizedRows& x = args.x;
  const size_t groups = w.groups();
  constexpr size_t kBytes = kTileRows * kSize / (kType == PackedType::kU4 ? 2 : 1);
  float* y = args.y;
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += 2, y += 16) {
    const TilePair pair(w, tile, args.tile_end);
    // What the next two tiles read, as far ahead as these are long: one forward stream.
    const char* ahead = reinterpret_cast<const char*>(pair.codes[0]) + 2 * groups * kBytes;
    __m512 a = _mm512_setzero_ps(), b = a;
    for (size_t g = 0; g < groups; ++g) {
      for (size_t line = 0; line < 2 * kBytes; line += 64)
        _mm_prefetch(ahead + 2 * g * kBytes + line, _MM_HINT_T0);
      __m512i dot = GroupDot<kType, kSize>(pair.codes[0] + g * kBytes, pair.codes[1] + g * kBytes,
                                           x.codes + g * kSize);
      const __m512 scale = pair.Scales(g);
      if constexpr (kType == PackedType::kI8) {
        dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(128 * x.code_sums[g]));
      } else {
        b = _mm512_fmadd_ps(pair.Mins<kOffset>(g, scale), _mm512_set1_ps(x.sums[g]), b);
      }
      a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot),
                          _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[g])), a);
    }
    if constexpr (kType == PackedType::kU4) a = _mm512_add_ps(a, b);
    StoreRows(y, a, PairRows(w, tile, args.tile_end), args.accumulate);
  }
}

template <PackedType kType, OffsetType kOffset>
void Gemm(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const size_t cols = w.cols, groups = w.groups();
  for (size_t tile = args.tile_begin; tile < args.tile_end; tile += 4) {
    const size_t end = Min(args.tile_end, tile + 4);
    const size_t n = (tile - args.tile_begin) * kTileRows;
    const size_t count = Min(w.rows, end * kTileRows) - tile * kTileRows;
    Panel panels[2];
    const size_t used = end - tile > 2 ? 2 : 1;
    for (size_t p = 0; p < used; ++p) {
      panels[p] = PanelAt(args.panel, p, cols, groups);
      UnpackPanel<kType, kOffset>(w, TilePair(w, tile + 2 * p, end),
                                  args.panel + p * PanelBytes(cols, groups));
    }
    if (used == 2) {
      AllRows<kType, 2>(args, panels, 0, n, count);
    } else {
      AllRows<kType, 1>(args, panels, 0, n, count);
    }
  }
}

template <PackedType kType, OffsetType kOffset>
void GemvOfSize(const PackedProductArgs& args) {
  switch (args.w->layout.group_size) {
    case 32:
      return Gemv<kType, kOffset, 32>(args);
    case 64:
      return Gemv<kType, kOffset, 64>(args);
    default:
      return Gemv<kType, kOffset, 128>(args);
  }
}

inline __m512i AbsBits(__m512 x) {
  return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
}

}  // namespace

void avx512::QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes,
                         float* scales, float* sums, int32_t* code_sums) {
  for (size_t g = 0; g < cols / group_size; ++g, x += group_size, codes += group_size) {
    __m512i max_bits = _mm512_setzero_si512();
    for (size_t i = 0; i < group_size; i += 16) {
      const __m512 v = _mm512_maskz_loadu_ps(FirstLanes(group_size - i), x + i);
      max_bits = _mm512_max_epu32(max_bits, AbsBits(v));
    }
    const uint32_t bits = _mm512_reduce_max_epu32(max_bits);
    float max;
    __builtin_memcpy(&max, &bits, 4);
    const bool finite = bits < 0x7F800000u;
    const float inverse = finite && max >= 0x1p-100f ? 127.0f / max : 0.0f;
    const __m512 factor = _mm512_set1_ps(inverse);
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < group_size; i += 16) {
      const __mmask16 lanes = FirstLanes(group_size - i);
      const __mmask16 used = inverse == 0.0f ? __mmask16{0} : lanes;
      const __m512 v = _mm512_maskz_loadu_ps(used, x + i);
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v, factor));
      _mm512_mask_cvtepi32_storeu_epi8(codes + i, lanes, rounded);
      sum = _mm512_add_epi32(sum, rounded);
    }
    code_sums[g] = _mm512_reduce_add_epi32(sum);
    scales[g] = !finite ? __builtin_nanf("") : inverse == 0.0f ? 0.0f : max / 127.0f;
    sums[g] = scales[g] * static_cast<float>(code_sums[g]);
  }
}

void avx512::PackedGemv(const PackedProductArgs& args) {
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

void avx512::PackedGemm(const PackedProductArgs& args) {
  if (args.w->layout.type == PackedType::kI8) return Gemm<PackedType::kI8, OffsetType::kNone>(args);
  switch (args.w->layout.offset) {
    case OffsetType::kNone:
      return Gemm<PackedType::kU4, OffsetType::kNone>(args);
    case OffsetType::kZero4:
      return Gemm<PackedType::kU4, OffsetType::kZero4>(args);
    default:
      return Gemm<PackedType::kU4, OffsetType::kMinF16>(args);
  }
}

}  // namespace pocketlm
