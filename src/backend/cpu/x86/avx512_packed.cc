// Products of packed weights with int8 activations, by VPDPBUSD on 512 bits.

#include "backend/cpu/x86/avx512_panel.h"

namespace pocketlm {
namespace {

constexpr size_t kPrefetchBytes = 8192;  // how far ahead of their use codes are asked for

// Scales and mins of tiles that lie one after the other.
class TileRows {
 public:
  TileRows(const PackedMatrix& w, size_t tile)
      : scales_(w.scales + tile * w.groups() * PackedLayout::group_scale_bytes()),
        offsets_(w.offsets + tile * w.groups() * w.layout.group_offset_bytes()) {}

  // Of 8 rows; `group` counts on through the tiles.
  __m256 Scales(size_t group) const { return Halves(scales_ + 16 * group); }

  template <OffsetType kOffset>
  __m256 Mins(size_t group, __m256 scale) const {
    if constexpr (kOffset == OffsetType::kMinF16) return Halves(offsets_ + 16 * group);
    if constexpr (kOffset == OffsetType::kNone)
      return ThroughHalf(_mm256_mul_ps(scale, _mm256_set1_ps(-8.0f)));
    int word;
    __builtin_memcpy(&word, offsets_ + 4 * group, 4);
    const __m256i zeros = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
        _mm256_set1_epi32(15));
    const __m256 product = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(zeros));
    return ThroughHalf(_mm256_xor_ps(product, _mm256_set1_ps(-0.0f)));
  }

 private:
  static __m256 Halves(const std::byte* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Rounded to half and back.
  static __m256 ThroughHalf(__m256 x) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  const std::byte* scales_;
  const std::byte* offsets_;
};

// Eight activations for all rows of a tile.
inline __m512i Broadcast8(const int8_t* x) {
  long long value;
  __builtin_memcpy(&value, x, 8);
  return _mm512_set1_epi64(value);
}

// Sums of the two 32-bit lanes of each row of a tile: 8 rows.
inline __m256i SumLanePairs(__m512i x) {
  return _mm512_cvtepi64_epi32(_mm512_add_epi32(x, _mm512_srli_epi64(x, 32)));
}

// Σ code · x_code of one group for the 8 rows of a tile; kSize inputs.
template <PackedType kType, int kSize>
inline __m256i GroupDot(const std::byte* codes, const int8_t* x) {
  __m512i a = _mm512_setzero_si512(), b = a;
#pragma GCC unroll 8
  for (int i = 0; i < kSize; i += 16) {
    const __m512i x0 = Broadcast8(x + i), x1 = Broadcast8(x + i + 8);
    if constexpr (kType == PackedType::kU4) {
      const __m512i block = Load(codes + 4 * i);
      a = _mm512_dpbusd_epi32(a, LowNibbles(block), x0);
      b = _mm512_dpbusd_epi32(b, HighNibbles(block), x1);
    } else {
      a = _mm512_dpbusd_epi32(a, Biased(Load(codes + 8 * i)), x0);
      b = _mm512_dpbusd_epi32(b, Biased(Load(codes + 8 * i + 64)), x1);
    }
  }
  return SumLanePairs(_mm512_add_epi32(a, b));
}

// Tile after tile, so that codes, scales and offsets are one forward stream each: processors read one stream
// faster than two that take turns.
template <PackedType kType, OffsetType kOffset, int kSize>
void Gemv(const PackedProductArgs& args) {
  const PackedMatrix& w = *args.w;
  const QuantizedRows& x = args.x;
  const size_t groups = w.groups();
  constexpr size_t kBytes = kTileRows * kSize / (kType == PackedType::kU4 ? 2 : 1);
  const std::byte* codes = w.codes + args.tile_begin * groups * kBytes;
  const TileRows rows(w, args.tile_begin);
  float* y = args.y;
  size_t at = 0;  // of the group among those from tile_begin on
  for (size_t tile = args.tile_begin; tile < args.tile_end; ++tile, y += kTileRows) {
    __m256 a = _mm256_setzero_ps(), b = a;
    for (size_t g = 0; g < groups; ++g, ++at, codes += kBytes) {
      for (size_t line = 0; line < kBytes; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(codes + kPrefetchBytes + line), _MM_HINT_T1);
      __m256i dot = GroupDot<kType, kSize>(codes, x.codes + g * kSize);
      const __m256 scale = rows.Scales(at);
      if constexpr (kType == PackedType::kI8) {
        dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(128 * x.code_sums[g]));
      } else {
        b = _mm256_fmadd_ps(rows.Mins<kOffset>(at, scale), _mm256_set1_ps(x.sums[g]), b);
      }
      a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot),
                          _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[g])), a);
    }
    if constexpr (kType == PackedType::kU4) a = _mm256_add_ps(a, b);
    const __mmask8 mask = static_cast<__mmask8>((1u << Min(w.rows - tile * kTileRows, 8)) - 1);
    if (args.accumulate) a = _mm256_add_ps(_mm256_maskz_loadu_ps(mask, y), a);
    _mm256_mask_storeu_ps(y, mask, a);
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
