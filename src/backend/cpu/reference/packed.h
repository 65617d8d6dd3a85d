// Reading packed weights (base/packed_layout.h) one value at a time, and the reference products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace pocketlm::reference {

// The code of row `row` (counted from the matrix's first), input `col`.
int PackedCode(const PackedMatrix& w, size_t row, size_t col);

// Scale and offset of a row's group, as floats; the offset of a type without one is 0.
float PackedScale(const PackedMatrix& w, size_t row, size_t group);
float PackedMin(const PackedMatrix& w, size_t row, size_t group);

// dst[0, w.cols) = fma(scale, code, min) of one row. Any tables' weights; plain C++.
void UnpackRow(const PackedMatrix& w, size_t row, float* dst);

// The entries of kReferenceKernels.
void QuantizeRow(const float* x, size_t cols, size_t group_size, int8_t* codes, float* scales,
                 float* sums, int32_t* code_sums);
// packed_gemv and packed_gemm.
void PackedGemm(const PackedProductArgs& args);

}  // namespace pocketlm::reference
