#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/attention.h"
#include "backend/cpu/reference/dequantize.h"
#include "backend/cpu/reference/numerics.h"
#include "backend/cpu/reference/packed.h"
#include "base/half.h"

// The plain C++ kernels that define the results; see kernels.h for every contract.

namespace pocketlm {
namespace reference {
namespace {

void Gemv(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y) {
  constexpr size_t kChunk = 256;  // a multiple of 16 and of every block
  const DTypeInfo& info = GetDTypeInfo(type);
  for (size_t n = 0; n < rows; ++n) {
    float lanes[kLanes] = {};
    for (size_t i = 0; i < cols; i += kChunk) {
      float values[kChunk];
      const size_t count = std::min(kChunk, cols - i);
      Dequantize(type, w, count, values);
      AccumulateDot(values, x + i, count, lanes);
      w += count / info.block_values * info.block_bytes;
    }
    y[n] = ReduceLanes(lanes);
  }
}

void Gemm(const float* panel, size_t panel_rows, size_t cols, const float* x, size_t x_rows,
          float* y, size_t y_stride) {
  for (size_t r = 0; r < x_rows; ++r) {
    for (size_t n = 0; n < panel_rows; ++n)
      y[r * y_stride + n] = Dot(panel + n * cols, x + r * cols, cols);
  }
}

void RmsNorm(const float* x, size_t cols, const float* weight, float eps, float* y) {
  const float mean = Dot(x, x, cols) / static_cast<float>(cols);
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (size_t i = 0; i < cols; ++i) y[i] = x[i] * factor * weight[i];
}

void RotatePair(float* a, float* b, float cos, float sin) {
  const float a0 = *a, b0 = *b;
  *a = FusedMultiplyAdd(a0, cos, -(b0 * sin));
  *b = FusedMultiplyAdd(b0, cos, a0 * sin);
}

void RopeHalves(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin) {
  const size_t half = head_dim / 2;
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    for (size_t i = 0; i < half; ++i) RotatePair(x + i, x + i + half, cos[i], sin[i]);
  }
}

void RopeInterleaved(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin) {
  for (size_t h = 0; h < heads; ++h, x += head_dim) {
    for (size_t i = 0; i < head_dim / 2; ++i) RotatePair(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
  }
}

void FloatsToHalves(const float* src, size_t count, uint16_t* dst) {
  for (size_t i = 0; i < count; ++i) dst[i] = FloatToHalf(src[i]);
}

void SiluMul(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; ++i) gate[i] = gate[i] / (1.0f + Exp(-gate[i])) * up[i];
}

void GeluMul(float* gate, const float* up, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const float u = kGelu1 * g * FusedMultiplyAdd(kGelu0 * g, g, 1.0f);
    gate[i] = g / (1.0f + Exp(-2.0f * u)) * up[i];
  }
}

void Add(float* y, const float* x, size_t count) {
  for (size_t i = 0; i < count; ++i) y[i] += x[i];
}

void Scale(float* x, float factor, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace
}  // namespace reference

const CpuKernels kReferenceKernels = {
    .name = "reference",
    .dequantize = reference::Dequantize,
    .gemv = reference::Gemv,
    .gemm = reference::Gemm,
    .quantize_row = reference::QuantizeRow,
    .packed_gemv = reference::PackedGemm,
    .packed_gemm = reference::PackedGemm,
    .attend_block = reference::AttendBlock,
    .merge_attention = reference::MergeAttention,
    .rotate_groups = reference::RotateGroups,
    .rms_norm = reference::RmsNorm,
    .rope_halves = reference::RopeHalves,
    .rope_interleaved = reference::RopeInterleaved,
    .floats_to_halves = reference::FloatsToHalves,
    .silu_mul = reference::SiluMul,
    .gelu_mul = reference::GeluMul,
    .add = reference::Add,
    .scale = reference::Scale,
};

}  // namespace pocketlm
