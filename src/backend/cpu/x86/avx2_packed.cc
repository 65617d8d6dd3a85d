// Products of packed weights with int8 activations in AVX2, and the quantization of activations.

#include "backend/cpu/x86/avx2_panel.h"

namespace pocketlm {
namespace {

// 8 values in -128 … 127 as bytes, the first `count` of them stored; count is 4 or at least 8.
inline void StoreCodes(int8_t* to, __m256i values, size_t count) {
  const __m128i words =
      _mm_packs_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  const long long bytes = _mm_cvtsi128_si64(_mm_packs_epi16(words, words));
  __builtin_memcpy(to, &bytes, count >= 8 ? 8 : 4);
}

inline uint32_t ReduceMax(__m256i x) {
  __m128i max = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  max = _mm_max_epu32(max, _mm_shuffle_epi32(max, _MM_SHUFFLE(1, 0, 3, 2)));
  max = _mm_max_epu32(max, _mm_shuffle_epi32(max, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(max));
}

inline int32_t ReduceAdd(__m256i x) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
  return _mm_cvtsi128_si32(sum);
}

inline __m256 LoadFirst(const float* x, size_t count) {
  return count >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, PrefixMask(count));
}

}  // namespace

void avx2::QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                       float* sums, int32_t* code_sums) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (size_t g = 0; g < cols / group_size; ++g, x += group_size, codes += group_size) {
    __m256i max_bits = _mm256_setzero_si256();
    for (size_t i = 0; i < group_size; i += 8) {
      const __m256i bits = _mm256_castps_si256(LoadFirst(x + i, group_size - i));
      max_bits = _mm256_max_epu32(max_bits, _mm256_and_si256(bits, magnitude));
    }
    const uint32_t bits = ReduceMax(max_bits);
    float max;
    __builtin_memcpy(&max, &bits, 4);
    const bool finite = bits < 0x7F800000u;
    const bool used = finite && max >= 0x1p-100f;
    const __m256 factor = _mm256_set1_ps(used ? 127.0f / max : 0.0f);
    __m256i sum = _mm256_setzero_si256();
    for (size_t i = 0; i < group_size; i += 8) {
      const __m256 v = used ? LoadFirst(x + i, group_size - i) : _mm256_setzero_ps();
      const __m256i rounded = _mm256_cvtps_epi32(_mm256_mul_ps(v, factor));
      StoreCodes(codes + i, rounded, group_size - i);
      sum = _mm256_add_epi32(sum, rounded);
    }
    code_sums[g] = ReduceAdd(sum);
    scales[g] = !finite ? __builtin_nanf("") : used ? max / 127.0f : 0.0f;
    sums[g] = scales[g] * static_cast<float>(code_sums[g]);
  }
}

void avx2::PackedProduct(const PackedProductArgs& args) { ::pocketlm::PackedProduct(args); }

}  // namespace pocketlm
