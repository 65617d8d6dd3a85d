// Stored rows to floats, in plain C++ (see CpuKernels::dequantize for the contract).
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace pocketlm::reference {

void Dequantize(DType type, const std::byte* src, size_t values, float* dst);

}  // namespace pocketlm::reference
