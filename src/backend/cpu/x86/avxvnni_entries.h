// The kernels of kAvxVnniKernels that AVX2 lacks.
#pragma once

#include "backend/cpu/kernels.h"

namespace pocketlm {

// As documented in kernels.h.
namespace avxvnni {
void PackedProduct(const PackedProductArgs& args);  // packed_gemv and packed_gemm
void AttendBlock(const AttendBlockArgs& args, const AttentionState& state);
}  // namespace avxvnni

}  // namespace pocketlm
