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
// shapes), and need no alignment beyond the element's own, for quantized rows 2 bytes, for packed planes,
// panels and the codes of the key-value cache 64 bytes, for its scales 32. Outputs alias no input except where a kernel says so. Calls on
// disjoint outputs may run at the same time.
//
// Included by files compiled for wide instruction sets: keep it free of anything that emits code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kv_layout.h"
#include "base/dtype.h"
#include "base/packed_layout.h"

namespace pocketlm {

// Keys are read in blocks that begin at absolute multiples of this many positions.
inline constexpr size_t kAttentionBlock = 256;

// Rows of activations as int8 codes, in groups of `group_size` values along a row. See quantize_row.
struct QuantizedRows {
  const int8_t* codes = nullptr;       // [rows, cols]
  const float* scales = nullptr;       // [rows, cols / group_size]
  const float* sums = nullptr;         // as scales: scale · Σ codes
  const int32_t* code_sums = nullptr;  // as scales: Σ codes
};

// The matrix product of packed weights with int8 activations, for tiles [tile_begin, tile_end).
struct PackedProductArgs {
  const PackedMatrix* w = nullptr;
  size_t tile_begin = 0;
  size_t tile_end = 0;
  QuantizedRows x;
  size_t x_rows = 1;
  // y[r * y_stride + n]: row r of x, row tile_begin * kTileRows + n of w, which must be below w->rows.
  float* y = nullptr;
  size_t y_stride = 0;      // floats
  bool accumulate = false;  // y += product instead of y = product
  // Scratch of PackedPanelBytes() for products of many rows; may be null for one row.
  std::byte* panel = nullptr;
};

// Scratch that a product of many rows needs for weights of `cols` inputs: unpacked codes of 64 rows, their scales
// and offsets as floats.
constexpr size_t PackedPanelBytes(size_t cols) {
  return 64 * cols + 2 * 64 * 4 * (cols / 32 + 1) + 16384;
}

// The query heads of one row that read the same key-value head, and one block of its cache.
struct AttendBlockArgs {
  const float* q =
      nullptr;  // [heads, head_dim], already multiplied by the attention scale; float keys
  const int8_t* q_codes = nullptr;       // [heads, head_dim]; quantized keys
  const float* q_scales = nullptr;       // [heads, groups]
  const int32_t* q_code_sums = nullptr;  // [heads, groups]
  size_t heads = 0;
  size_t head_dim = 0;
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  // Of the block's first position, in the layout of kv_layout.h.
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const uint16_t* k_scales = nullptr;
  const uint16_t* v_scales = nullptr;
  // Visible positions within the block, 0 ≤ begin < end ≤ kAttentionBlock.
  size_t begin = 0;
  size_t end = 0;
};

// A softmax over part of the positions: out = Σ exp(s - max) · v, not yet divided by sum.
struct AttentionState {
  float* max = nullptr;  // [heads]
  float* sum = nullptr;  // [heads]
  float* out = nullptr;  // [heads, head_dim]
};

struct CpuKernels {
  const char* name;

  // ---- Plain weights, float activations ----

  // dst[0, values) = the stored row `src`. Requires RowBytes(type, values).
  // Scale times code is exact in float for every type, so only the final addition of the types with
  // an offset (Q4_1, Q5_1, Q4_K, Q5_K) rounds. src is not read beyond its row.
  void (*dequantize)(DType type, const std::byte* src, size_t values, float* dst);

  // y[n] = dot(dequantized w[n], x): w [rows, cols] stored, x [cols], y [rows].
  void (*gemv)(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y);

  // y[r * y_stride + n] = dot(panel[n], x[r]): panel [panel_rows, cols] and x [x_rows, cols] float.
  void (*gemm)(const float* panel, size_t panel_rows, size_t cols, const float* x, size_t x_rows,
               float* y, size_t y_stride);

  // ---- Packed weights, int8 activations ----

  // For each group of x [cols]: a = max |x|, codes = x · (127 / a) rounded half to even, scale = a / 127,
  // code_sum = Σ codes, sum = scale · code_sum. A group with a < 2^-100 has scale 0 and codes 0; a group with a
  // NaN or an infinity has scale and sum NaN and codes 0. cols is a multiple of group_size; group_size is a
  // multiple of 4, up to 256.
  void (*quantize_row)(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                       float* sums, int32_t* code_sums);

  // y[r, n] for all rows of x and rows n < w.rows of the tiles; with groups g ascending and from +0:
  //   i = Σ w_code · x_code (exact), t = w_scale · x_scale, a = fma(float(i), t, a)
  //   b = fma(w_min, x_sum, b) where the weights have an offset (packed_layout.h)
  //   y = a + b, or a for i8; accumulate: y = y_old + that
  // packed_gemv takes one row of x.
  void (*packed_gemv)(const PackedProductArgs& args);
  void (*packed_gemm)(const PackedProductArgs& args);

  // ---- Attention ----

  // Softmax attention over the visible positions n of a block, per head:
  //   float keys: s[n] = Σ q[d] · k[n][d], fma, ascending d from +0
  //   quantized keys: with groups g ascending, i = Σ q_code · k_code (exact),
  //     s = fma(float(i) · q_scale, k_scale, s) from +0
  //   m = max of -inf and all s but NaNs, p[n] = exp(s[n] - m), l = sum(p) in lanes n mod 16,
  //   w[n] = p[n], or p[n] · v_scale[n] for quantized values (of each group),
  //   o[d] = fma(w[n], v[n][d], o[d]) from +0, ascending n; codes of quantized values enter as floats.
  // A NaN or +inf score makes the whole head NaN; its maximum, and the sign of a zero maximum, mean nothing.
  void (*attend_block)(const AttendBlockArgs& args, const AttentionState& state);

  // Takes a later block (m2, l2, o2) into what came before (m1, l1, o1): m = max(m1, m2),
  //   c1 = exp(m1 - m), c2 = exp(m2 - m), l = fma(l1, c1, l2 * c2), o = fma(o1, c1, o2 * c2).
  void (*merge_attention)(const AttentionState& block, size_t heads, size_t head_dim,
                          const AttentionState& into);

  // Multiplies each group of `group` values, a power of two, by the Hadamard matrix of that order in place,
  // divided by sqrt(group): butterflies (a + b, a - b) at distances 1, 2, 4 …, then one multiplication.
  void (*rotate_groups)(float* x, size_t count, size_t group);

  // ---- Element-wise ----

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

// The tables that this build holds; each may be used only where the CPU has what its name says (base/cpu_info.h).
extern const CpuKernels kReferenceKernels;
#if defined(POCKETLM_HAVE_X86)
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvxVnniKernels;
extern const CpuKernels kAvx512VnniKernels;
extern const CpuKernels kAmxKernels;
#endif
#if defined(POCKETLM_HAVE_NEON)
extern const CpuKernels kNeonDotprodKernels;
extern const CpuKernels kNeonI8mmKernels;
#endif

}  // namespace pocketlm
