// The reference attention kernels; contracts in kernels.h.
#pragma once

#include "backend/cpu/kernels.h"

namespace pocketlm::reference {

void AttendBlock(const AttendBlockArgs& args, const AttentionState& state);
void MergeAttention(const AttentionState& block, size_t heads, size_t head_dim,
                    const AttentionState& into);
void RotateGroups(float* x, size_t count, size_t group);

}  // namespace pocketlm::reference
