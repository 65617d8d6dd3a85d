// The CPU kernels: one table of function pointers per instruction set, chosen once at start.
//
// Every table gives the same bits (NaN payloads excepted) because every kernel spells out its
// arithmetic:
//   dot product  16 lanes, element i in lane i mod 16, ascending i, lane = fma(a, b, lane) from +0;
//                then the tree l[i] += l[i+8], l[i] += l[i+4], l[i] += l[i+2], l[0] + l[1]
//   sum          the same lanes and tree, lane = lane + a
//   exp          the polynomial of reference/numerics.h: within 1 ulp; -inf → 0,
//                overflow → inf, NaN → NaN
// Kernels run on the calling thread, allocate nothing, check nothing (the callers guarantee the
// shapes), and need no alignment beyond the element's own, for quantized rows 2 bytes. Outputs
// alias no input except where a kernel says so. Calls on disjoint outputs may run at the same time.
//
// Included by files compiled for wide instruction sets: keep it free of anything that emits code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace pocketlm {

// Keys are read in blocks that begin at absolute multiples of this many positions.
inline constexpr size_t kAttentionBlock = 256;

// The query heads of one row that read the same key-value head.
struct AttendArgs {
  const float* q = nullptr;  // [heads, head_dim]
  float* out = nullptr;      // [heads, head_dim]
  size_t heads = 0;
  size_t head_dim = 0;
  const std::byte* k = nullptr;  // [positions, head_dim], float or IEEE half
  const std::byte* v = nullptr;  // [positions, head_dim]
  bool k_is_half = false;
  bool v_is_half = false;
  size_t begin = 0;  // visible positions [begin, end), not empty
  size_t end = 0;
  float scale = 1.0f;
};

struct CpuKernels {
  const char* name;

  // dst[0, values) = the stored row `src`. Requires RowBytes(type, values).
  // Scale times code is exact in float for every type, so only the final addition of the types with
  // an offset (Q4_1, Q5_1, Q4_K, Q5_K) rounds. src is not read beyond its row.
  void (*dequantize)(DType type, const std::byte* src, size_t values, float* dst);

  // y[n] = dot(dequantized w[n], x): w [rows, cols] stored, x [cols], y [rows].
  void (*gemv)(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y);

  // y[r * y_stride + n] = dot(panel[n], x[r]): panel [panel_rows, cols] and x [x_rows, cols] float.
  void (*gemm)(const float* panel, size_t panel_rows, size_t cols, const float* x, size_t x_rows,
               float* y, size_t y_stride);

  // y[n] = x[n] * (1 / sqrt(dot(x, x) / cols + eps)) * weight[n], left to right. y may be x.
  void (*rms_norm)(const float* x, size_t cols, const float* weight, float eps, float* y);

  // Rotates the pairs (i, i + head_dim / 2) of each head in place:
  //   a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin).
  // x [heads, head_dim], cos and sin [head_dim / 2]; head_dim is even.
  void (*rope_halves)(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin);
  // The same with pairs (2i, 2i + 1).
  void (*rope_interleaved)(float* x, size_t heads, size_t head_dim, const float* cos,
                           const float* sin);

  // IEEE half, to nearest even, as FloatToHalf (base/half.h).
  void (*floats_to_halves)(const float* src, size_t count, uint16_t* dst);

  // Softmax attention of one row. In each block, with n counting from its first visible position:
  //   s[n] = dot(q, k[n]) * scale, m = max s, p[n] = exp(s[n] - m), l = sum(p),
  //   o[d] = fma(p[n], v[n][d], o[d]) from +0, ascending n.
  // A later block (m2, l2, o2) is merged into what came before (m1, l1, o1) as m = max(m1, m2),
  //   c1 = exp(m1 - m), c2 = exp(m2 - m), l = fma(l1, c1, l2 * c2), o = fma(o1, c1, o2 * c2);
  // at the end out = o / l. A NaN or +inf score makes the whole head NaN.
  void (*attend)(const AttendArgs& args);

  // gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i]: within 5 roundings of the exact SiLU;
  // activations smaller than |gate[i]| * 2^-128 become zero.
  void (*silu_mul)(float* gate, const float* up, size_t count);
  // GELU, tanh form, with g = gate[i]:
  //   u = kGelu1 * g * fma(kGelu0 * g, g, 1), gate[i] = g / (1 + exp(-2u)) * up[i].
  // (1 + tanh u) / 2 = 1 / (1 + exp(-2u)): the usual formula without its cancellation. The error
  // grows with |u|: within 6 + 12·|u| roundings. Small activations as in SiLU.
  void (*gelu_mul)(float* gate, const float* up, size_t count);

  void (*add)(float* y, const float* x, size_t count);  // y[i] += x[i]
  void (*scale)(float* x, float factor, size_t count);  // x[i] *= factor
};

// The tables that this build holds. kAvx2Kernels exists where CMake defines POCKETLM_HAVE_AVX2 and
// may be used only if GetCpuFeatures().avx2_fma_f16c.
extern const CpuKernels kReferenceKernels;
#if defined(POCKETLM_HAVE_AVX2)
extern const CpuKernels kAvx2Kernels;
#endif

}  // namespace pocketlm
