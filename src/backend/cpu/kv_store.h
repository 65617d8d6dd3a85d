// Writes one position of the key-value cache in the layout of backend/kv_layout.h.
//
// Quantized types, per group: i8: scale = half(max |x| / 127), code = x / scale rounded half to even, within ±127.
// i4: the group rotated; scale = half(m / -8) where m is the value of largest magnitude (the negative one of two), so
// that m has code -8; code = x / scale rounded, within -8 … 7. A scale of zero gives zero codes, a group
// with a NaN or infinity the scale NaN.
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace pocketlm {

// x [kv.head_dim] is scratch afterwards.
void StoreKey(const CpuKernels& kernels, const KvLayer& kv, size_t head, size_t position, float* x);
void StoreValue(const CpuKernels& kernels, const KvLayer& kv, size_t head, size_t position,
                float* x);

}  // namespace pocketlm
