// Attention with 256-bit dot products of bytes.

#include "backend/cpu/x86/avx2_attention.h"
#include "backend/cpu/x86/avxvnni_entries.h"

namespace pocketlm {

void avxvnni::AttendBlock(const AttendBlockArgs& args, const AttentionState& state) {
  AttendAllHeads(args, state);
}

}  // namespace pocketlm
