// The AVX-512 VNNI kernel table.

#include "backend/cpu/reference/attention.h"
#include "backend/cpu/reference/packed.h"
#include "backend/cpu/x86/avx2_common.h"

namespace pocketlm {

const CpuKernels kAvx512VnniKernels = {
    .name = "avx512vnni",
    .dequantize = avx2::Dequantize,
    .gemv = avx2::Gemv,
    .gemm = avx2::Gemm,
    .quantize_row = reference::QuantizeRow,
    .packed_gemv = reference::PackedGemm,
    .packed_gemm = reference::PackedGemm,
    .attend_block = reference::AttendBlock,
    .merge_attention = reference::MergeAttention,
    .rotate_groups = reference::RotateGroups,
    .rms_norm = avx2::RmsNorm,
    .rope_halves = avx2::RopeHalves,
    .rope_interleaved = avx2::RopeInterleaved,
    .floats_to_halves = avx2::FloatsToHalves,
    .silu_mul = avx2::SiluMul,
    .gelu_mul = avx2::GeluMul,
    .add = avx2::Add,
    .scale = avx2::Scale,
};

}  // namespace pocketlm
