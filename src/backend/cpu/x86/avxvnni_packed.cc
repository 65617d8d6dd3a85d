// Products of packed weights with 256-bit dot products of bytes.

#include "backend/cpu/x86/avx2_panel.h"
#include "backend/cpu/x86/avxvnni_entries.h"

namespace pocketlm {

void avxvnni::PackedProduct(const PackedProductArgs& args) { ::pocketlm::PackedProduct(args); }

}  // namespace pocketlm
