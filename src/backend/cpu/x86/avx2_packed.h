// Products of packed weights with int8 activations on 256 bits, straight from the packed codes. Included only by
// avx2_packed.cc and avxvnni_packed.cc, each of which compiles its own copy.
//
// Within a register the rows of a tile lie in the order 0 1 4 5 2 3 6 7, which is what interleaving two registers
// of four rows gives; scales and offsets are brought to it when loaded, results back when stored.
#pragma once

#include "backend/cpu/x86/avx2_bytes.h"

namespace pocketlm {
namespace {

constexpr size_t kPrefetchBytes = 8192;  // how far ahead of their use codes are asked for

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
  *sum = kVnni ? DotAdd(*sum, Biased(codes), x) : AddSigned(*sum, codes, x);
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
      for (size_t line = 0; line < kBytes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T1);
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

}  // namespace
}  // namespace pocketlm
