#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/dequantize.h"
#include "backend/cpu/reference/numerics.h"
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

float LoadKv(const std::byte* base, bool is_half, size_t i) {
  if (is_half) {
    uint16_t h;
    std::memcpy(&h, base + 2 * i, sizeof(h));
    return HalfToFloat(h);
  }
  float f;
  std::memcpy(&f, base + 4 * i, sizeof(f));
  return f;
}

float DotKey(const AttendArgs& args, const float* q, size_t position) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < args.head_dim; ++i) {
    const float k = LoadKv(args.k, args.k_is_half, position * args.head_dim + i);
    lanes[i % kLanes] = FusedMultiplyAdd(q[i], k, lanes[i % kLanes]);
  }
  return ReduceLanes(lanes);
}

// Turns scores into exp(score - max); their sum goes to `sum`, the maximum is returned.
float SoftmaxBlock(float* scores, size_t count, float* sum) {
  float max = scores[0];
  for (size_t n = 1; n < count; ++n) max = scores[n] > max ? scores[n] : max;
  float lanes[kLanes] = {};
  for (size_t n = 0; n < count; ++n) {
    scores[n] = Exp(scores[n] - max);
    lanes[n % kLanes] += scores[n];
  }
  *sum = ReduceLanes(lanes);
  return max;
}

void AttendHead(const AttendArgs& args, const float* q, float* out) {
  const size_t dim = args.head_dim;
  float max = 0.0f, sum = 0.0f;
  for (size_t begin = args.begin; begin < args.end;) {
    const size_t end = std::min(args.end, (begin / kAttentionBlock + 1) * kAttentionBlock);
    const size_t count = end - begin;
    float p[kAttentionBlock] = {};
    for (size_t n = 0; n < count; ++n) p[n] = DotKey(args, q, begin + n) * args.scale;
    float block_sum;
    const float block_max = SoftmaxBlock(p, count, &block_sum);
    const bool first = begin == args.begin;
    const float new_max = first || block_max > max ? block_max : max;
    const float c1 = Exp(max - new_max);
    const float c2 = Exp(block_max - new_max);
    for (size_t d = 0; d < dim; ++d) {
      float o = 0.0f;
      for (size_t n = 0; n < count; ++n)
        o = FusedMultiplyAdd(p[n], LoadKv(args.v, args.v_is_half, (begin + n) * dim + d), o);
      out[d] = first ? o : FusedMultiplyAdd(out[d], c1, o * c2);
    }
    sum = first ? block_sum : FusedMultiplyAdd(sum, c1, block_sum * c2);
    max = new_max;
    begin = end;
  }
  for (size_t d = 0; d < dim; ++d) out[d] /= sum;
}

void Attend(const AttendArgs& args) {
  for (size_t h = 0; h < args.heads; ++h)
    AttendHead(args, args.q + h * args.head_dim, args.out + h * args.head_dim);
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
    .rms_norm = reference::RmsNorm,
    .rope_halves = reference::RopeHalves,
    .rope_interleaved = reference::RopeInterleaved,
    .floats_to_halves = reference::FloatsToHalves,
    .attend = reference::Attend,
    .silu_mul = reference::SiluMul,
    .gelu_mul = reference::GeluMul,
    .add = reference::Add,
    .scale = reference::Scale,
};

}  // namespace pocketlm
