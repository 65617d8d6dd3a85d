// Attention in AVX2: blocks of the cache, their merging, the rotation of groups.

#include "backend/cpu/x86/avx2_attention.h"

namespace pocketlm {

void avx2::AttendBlock(const AttendBlockArgs& args, const AttentionState& state) {
  AttendAllHeads(args, state);
}

void avx2::MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                          const AttentionState& into) {
  for (size_t h = 0; h < heads; ++h) {
    const float max = block.max[h] > into.max[h] ? block.max[h] : into.max[h];
    const __m128 factors = _mm256_castps256_ps128(
        Exp8(_mm256_setr_ps(into.max[h] - max, block.max[h] - max, 0, 0, 0, 0, 0, 0)));
    const __m256 c1 = _mm256_broadcastss_ps(factors);
    const __m256 c2 = _mm256_broadcastss_ps(_mm_movehdup_ps(factors));
    for (size_t d = 0; d < head_dim; d += 8) {
      const __m256i mask = PrefixMask(Min(head_dim - d, 8));
      float* to = into.out + h * head_dim + d;
      const __m256 added =
          _mm256_mul_ps(_mm256_maskload_ps(block.out + h * head_dim + d, mask), c2);
      _mm256_maskstore_ps(to, mask, _mm256_fmadd_ps(_mm256_maskload_ps(to, mask), c1, added));
    }
    const __m128 added = _mm_mul_ss(_mm_set_ss(block.sum[h]), _mm_movehdup_ps(factors));
    into.sum[h] = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(into.sum[h]), factors, added));
    into.max[h] = max;
  }
}

void avx2::RotateGroups(float* x, size_t count, size_t group) {
  if (group != 64) return reference::RotateGroups(x, count, group);
  const __m256 factor = _mm256_set1_ps(0.125f);
  for (size_t begin = 0; begin < count; begin += 64, x += 64) {
    // Distances 1, 2 and 4 within a register: a + b in the lower lane, a - b in the upper one.
    __m256 v[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      __m256 other = _mm256_permute_ps(v[i], 0xB1);
      v[i] = _mm256_blend_ps(_mm256_add_ps(v[i], other), _mm256_sub_ps(other, v[i]), 0xAA);
      other = _mm256_permute_ps(v[i], 0x4E);
      v[i] = _mm256_blend_ps(_mm256_add_ps(v[i], other), _mm256_sub_ps(other, v[i]), 0xCC);
      other = _mm256_permute2f128_ps(v[i], v[i], 1);
      v[i] = _mm256_blend_ps(_mm256_add_ps(v[i], other), _mm256_sub_ps(other, v[i]), 0xF0);
    }
    for (int distance = 1; distance < 8; distance *= 2) {
      for (int i = 0; i < 8; ++i) {
        if ((i & distance) != 0) continue;
        const __m256 a = v[i], b = v[i + distance];
        v[i] = _mm256_add_ps(a, b);
        v[i + distance] = _mm256_sub_ps(a, b);
      }
    }
    for (int i = 0; i < 8; ++i) _mm256_storeu_ps(x + 8 * i, _mm256_mul_ps(v[i], factor));
  }
}

}  // namespace pocketlm
