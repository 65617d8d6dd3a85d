// Float panel times token rows in NEON, for prefill.

#include "backend/cpu/arm/neon_common.h"

namespace pocketlm {
namespace {

// N weight rows × T token rows, each pair with its own 16 lanes: 2 × 3 takes 24 accumulators of the 32 registers.
template <int N, int T>
void Tile(const float* w, const float* x, size_t cols, float* y, size_t y_stride) {
  Lanes lanes[N][T];
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) lanes[n][t] = ZeroLanes();
  }
  size_t i = 0;
  for (; i + kLanes <= cols; i += kLanes) {
#pragma GCC unroll 4
    for (int quad = 0; quad < 4; ++quad) {
      asm volatile("" ::: "memory");  // loads stay near their use: registers are short
      float32x4_t weights[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n)
        weights[n] = vld1q_f32(w + static_cast<size_t>(n) * cols + i + 4 * quad);
#pragma GCC unroll 3
      for (int t = 0; t < T; ++t) {
        const float32x4_t token = vld1q_f32(x + static_cast<size_t>(t) * cols + i + 4 * quad);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n)
          lanes[n][t].quad[quad] = vfmaq_f32(lanes[n][t].quad[quad], weights[n], token);
      }
    }
  }
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 3
    for (int t = 0; t < T; ++t) {
      const float* w_rest = w + static_cast<size_t>(n) * cols + i;
      if (i < cols)
        FusedAddTail(w_rest, x + static_cast<size_t>(t) * cols + i, cols - i, &lanes[n][t]);
      y[static_cast<size_t>(t) * y_stride + static_cast<size_t>(n)] = ReduceLanes(lanes[n][t]);
    }
  }
}

// All panel rows for T tokens, whose rows stay in the first-level cache meanwhile.
template <int T>
void Strip(const float* panel, size_t panel_rows, size_t cols, const float* x, float* y,
           size_t y_stride) {
  size_t n = 0;
  for (; n + 2 <= panel_rows; n += 2) Tile<2, T>(panel + n * cols, x, cols, y + n, y_stride);
  if (n < panel_rows) Tile<1, T>(panel + n * cols, x, cols, y + n, y_stride);
}

}  // namespace

void neon::Gemm(const float* panel, size_t panel_rows, size_t cols, const float* x, size_t x_rows,
                float* y, size_t y_stride) {
  size_t t = 0;
  for (; t + 3 <= x_rows; t += 3)
    Strip<3>(panel, panel_rows, cols, x + t * cols, y + t * y_stride, y_stride);
  if (t + 2 == x_rows) Strip<2>(panel, panel_rows, cols, x + t * cols, y + t * y_stride, y_stride);
  if (t + 1 == x_rows) Strip<1>(panel, panel_rows, cols, x + t * cols, y + t * y_stride, y_stride);
}

}  // namespace pocketlm
