// The NEON kernel table for CPUs with dot products, and its element-wise kernels.

#include "backend/cpu/arm/neon_common.h"

namespace pocketlm {
namespace {

inline float SquareRoot(float x) { return vget_lane_f32(vsqrt_f32(vdup_n_f32(x)), 0); }

inline float32x4_t Silu(float32x4_t g) {
  return vdivq_f32(g, vaddq_f32(vdupq_n_f32(1.0f), Exp4(vnegq_f32(g))));
}

inline float32x4_t Gelu(float32x4_t g) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  const float32x4_t inner = vfmaq_f32(one, vmulq_f32(vdupq_n_f32(0.044715f), g), g);
  const float32x4_t u = vmulq_f32(vmulq_f32(vdupq_n_f32(0.7978845608f), g), inner);
  return vdivq_f32(g, vaddq_f32(one, Exp4(vmulq_f32(vdupq_n_f32(-2.0f), u))));
}

template <float32x4_t (*kActivation)(float32x4_t)>
void ActivationMul(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; i += 4) {
    const float32x4_t value = kActivation(LoadFirst(gate + i, count - i));
    StoreFirst(gate + i, vmulq_f32(value, LoadFirst(up + i, count - i)), count - i);
  }
}

// a' = fma(a, cos, -(b · sin)), b' = fma(b, cos, a · sin).
inline void RotatePairs(float32x4_t* a, float32x4_t* b, float32x4_t cos, float32x4_t sin) {
  const float32x4_t a0 = *a, b0 = *b;
  *a = vfmaq_f32(vnegq_f32(vmulq_f32(b0, sin)), a0, cos);
  *b = vfmaq_f32(vmulq_f32(a0, sin), b0, cos);
}

}  // namespace

void neon::RmsNorm(const float* x, size_t cols, const float* weight, float eps, float* y) {
  Lanes lanes = ZeroLanes();
  size_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) FusedAdd(x + i, x + i, &lanes);
  if (i < cols) FusedAddTail(x + i, x + i, cols - i, &lanes);
  const float mean = ReduceLanes(lanes) / static_cast<float>(cols);
  const float factor = 1.0f / SquareRoot(mean + eps);
  for (i = 0; i < cols; i += 4) {
    const float32x4_t scaled = vmulq_n_f32(LoadFirst(x + i, cols - i), factor);
    StoreFirst(y + i, vmulq_f32(scaled, LoadFirst(weight + i, cols - i)), cols - i);
  }
}

void neon::RopeHalves(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin) {
  const size_t half = head_dim / 2;
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    for (size_t i = 0; i < half; i += 4) {
      const size_t count = half - i;
      float32x4_t a = LoadFirst(x + i, count), b = LoadFirst(x + half + i, count);
      RotatePairs(&a, &b, LoadFirst(cos + i, count), LoadFirst(sin + i, count));
      StoreFirst(x + i, a, count);
      StoreFirst(x + half + i, b, count);
    }
  }
}

void neon::RopeInterleaved(float* x, size_t heads, size_t head_dim, const float* cos,
                           const float* sin) {
  const size_t half = head_dim / 2;
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    size_t i = 0;
    for (; i + 4 <= half; i += 4) {
      float32x4x2_t pairs = vld2q_f32(x + 2 * i);
      RotatePairs(&pairs.val[0], &pairs.val[1], vld1q_f32(cos + i), vld1q_f32(sin + i));
      vst2q_f32(x + 2 * i, pairs);
    }
    for (; i < half; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = __builtin_fmaf(a, cos[i], -(b * sin[i]));
      x[2 * i + 1] = __builtin_fmaf(b, cos[i], a * sin[i]);
    }
  }
}

void neon::FloatsToHalves(const float* src, size_t count, uint16_t* dst) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4)
    vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
  if (i == count) return;
  uint16_t rest[4];
  vst1_u16(rest, vreinterpret_u16_f16(vcvt_f16_f32(LoadFirst(src + i, count - i))));
  for (size_t j = 0; i + j < count; ++j) dst[i + j] = rest[j];
}

void neon::SiluMul(float* gate, const float* up, size_t count) {
  ActivationMul<Silu>(gate, up, count);
}

void neon::GeluMul(float* gate, const float* up, size_t count) {
  ActivationMul<Gelu>(gate, up, count);
}

void neon::Add(float* y, const float* x, size_t count) {
  for (size_t i = 0; i < count; i += 4) {
    const size_t rest = count - i;
    StoreFirst(y + i, vaddq_f32(LoadFirst(y + i, rest), LoadFirst(x + i, rest)), rest);
  }
}

void neon::Scale(float* x, float factor, size_t count) {
  for (size_t i = 0; i < count; i += 4)
    StoreFirst(x + i, vmulq_n_f32(LoadFirst(x + i, count - i), factor), count - i);
}

const CpuKernels kNeonDotprodKernels = {
    .name = "neon_dotprod",
    .dequantize = neon::Dequantize,
    .gemv = neon::Gemv,
    .gemm = neon::Gemm,
    .quantize_row = neon::QuantizeRow,
    .packed_gemv = neon::PackedGemv,
    .packed_gemm = neon::PackedGemm,
    .attend_block = neon::AttendBlock,
    .merge_attention = neon::MergeAttention,
    .rotate_groups = neon::RotateGroups,
    .rms_norm = neon::RmsNorm,
    .rope_halves = neon::RopeHalves,
    .rope_interleaved = neon::RopeInterleaved,
    .floats_to_halves = neon::FloatsToHalves,
    .silu_mul = neon::SiluMul,
    .gelu_mul = neon::GeluMul,
    .add = neon::Add,
    .scale = neon::Scale,
};

}  // namespace pocketlm
