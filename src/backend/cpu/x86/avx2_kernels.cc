// The AVX2 + FMA + F16C kernel table and its element-wise kernels.

#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {

void avx2::RmsNorm(const float* x, size_t cols, const float* weight, float eps, float* y) {
  Lanes lanes = ZeroLanes();
  size_t i = 0;
  for (; i + kLanes <= cols; i += kLanes)
    FusedAdd(_mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + 8), x + i, &lanes);
  if (i < cols) FusedAddTail(x + i, x + i, cols - i, &lanes);
  const float mean = ReduceLanes(lanes) / static_cast<float>(cols);
  const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
  const float factor = 1.0f / root;
  const __m256 factor8 = _mm256_set1_ps(factor);
  for (i = 0; i + 8 <= cols; i += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), factor8);
    _mm256_storeu_ps(y + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(weight + i)));
  }
  for (; i < cols; ++i) y[i] = x[i] * factor * weight[i];
}

void avx2::RopeHalves(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin) {
  const size_t half = head_dim / 2;
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    for (size_t i = 0; i < half; i += 8) {
      const __m256i mask = PrefixMask(Min(half - i, 8));
      const __m256 a = _mm256_maskload_ps(x + i, mask);
      const __m256 b = _mm256_maskload_ps(x + half + i, mask);
      const __m256 c = _mm256_maskload_ps(cos + i, mask);
      const __m256 s = _mm256_maskload_ps(sin + i, mask);
      _mm256_maskstore_ps(x + i, mask, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
      _mm256_maskstore_ps(x + half + i, mask, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
  }
}

void avx2::RopeInterleaved(float* x, size_t heads, size_t head_dim, const float* cos,
                           const float* sin) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    for (size_t i = 0; i < head_dim; i += 8) {
      const size_t count = Min(head_dim - i, 8);
      const __m256i mask = PrefixMask(count);
      const __m256i pair_mask = PrefixMask(count / 2);
      const __m256 v = _mm256_maskload_ps(x + i, mask);
      const __m256 swapped = _mm256_permute_ps(v, 0xB1);
      const __m256 c = _mm256_permutevar8x32_ps(_mm256_maskload_ps(cos + i / 2, pair_mask), twice);
      const __m256 s = _mm256_permutevar8x32_ps(_mm256_maskload_ps(sin + i / 2, pair_mask), twice);
      _mm256_maskstore_ps(x + i, mask, _mm256_fmaddsub_ps(v, c, _mm256_mul_ps(swapped, s)));
    }
  }
}

void avx2::FloatsToHalves(const float* src, size_t count, uint16_t* dst) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), halves);
  }
  for (; i < count; ++i) dst[i] = _cvtss_sh(src[i], _MM_FROUND_TO_NEAREST_INT);
}

namespace {

inline __m256 Silu(__m256 g) {
  const __m256 negated = _mm256_xor_ps(g, _mm256_set1_ps(-0.0f));
  return _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), Exp8(negated)));
}

inline __m256 Gelu(__m256 g) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 inner = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(0.044715f), g), g, one);
  const __m256 u = _mm256_mul_ps(_mm256_mul_ps(_mm256_set1_ps(0.7978845608f), g), inner);
  return _mm256_div_ps(g, _mm256_add_ps(one, Exp8(_mm256_mul_ps(_mm256_set1_ps(-2.0f), u))));
}

template <__m256 (*kActivation)(__m256)>
void ActivationMul(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; i += 8) {
    const __m256i mask = PrefixMask(Min(count - i, 8));
    const __m256 value = kActivation(_mm256_maskload_ps(gate + i, mask));
    _mm256_maskstore_ps(gate + i, mask, _mm256_mul_ps(value, _mm256_maskload_ps(up + i, mask)));
  }
}

}  // namespace

void avx2::SiluMul(float* gate, const float* up, size_t count) {
  ActivationMul<Silu>(gate, up, count);
}

void avx2::GeluMul(float* gate, const float* up, size_t count) {
  ActivationMul<Gelu>(gate, up, count);
}

void avx2::Add(float* y, const float* x, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
  for (; i < count; ++i) y[i] += x[i];
}

void avx2::Scale(float* x, float factor, size_t count) {
  const __m256 factor8 = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), factor8));
  for (; i < count; ++i) x[i] *= factor;
}

const CpuKernels kAvx2Kernels = {
    .name = "avx2",
    .dequantize = avx2::Dequantize,
    .gemv = avx2::Gemv,
    .gemm = avx2::Gemm,
    .quantize_row = avx2::QuantizeRow,
    .packed_gemv = avx2::PackedProduct,
    .packed_gemm = avx2::PackedProduct,
    .attend_block = avx2::AttendBlock,
    .merge_attention = avx2::MergeAttention,
    .rotate_groups = avx2::RotateGroups,
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
