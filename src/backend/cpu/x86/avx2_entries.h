// The kernels of kAvx2Kernels, which tables of wider instruction sets share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace pocketlm {

// As documented in kernels.h.
namespace avx2 {
void Dequantize(DType type, const std::byte* src, size_t values, float* dst);
void Gemv(DType type, const std::byte* w, size_t rows, size_t cols, const float* x, float* y);
void Gemm(const float* panel, size_t panel_rows, size_t cols, const float* x, size_t x_rows,
          float* y, size_t y_stride);
void QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                 float* sums, int32_t* code_sums);
void PackedProduct(const PackedProductArgs& args);  // packed_gemv and packed_gemm
void AttendBlock(const AttendBlockArgs& args, const AttentionState& state);
void MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                    const AttentionState& into);
void RotateGroups(float* x, size_t count, size_t group);
void RmsNorm(const float* x, size_t cols, const float* weight, float eps, float* y);
void RopeHalves(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin);
void RopeInterleaved(float* x, size_t heads, size_t head_dim, const float* cos, const float* sin);
void FloatsToHalves(const float* src, size_t count, uint16_t* dst);
void SiluMul(float* gate, const float* up, size_t count);
void GeluMul(float* gate, const float* up, size_t count);
void Add(float* y, const float* x, size_t count);
void Scale(float* x, float factor, size_t count);
}  // namespace avx2

}  // namespace pocketlm
