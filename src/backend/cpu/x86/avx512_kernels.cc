// The AVX-512 VNNI kernel table.

#include "backend/cpu/x86/avx2_entries.h"
#include "backend/cpu/x86/avx512_common.h"

namespace pocketlm {

const CpuKernels kAvx512VnniKernels = {
    .name = "avx512vnni",
    .dequantize = avx2::Dequantize,
    .gemv = avx2::Gemv,
    .gemm = avx2::Gemm,
    .quantize_row = avx512::QuantizeRow,
    .packed_gemv = avx512::PackedGemv,
    .packed_gemm = avx512::PackedGemm,
    .attend_block = avx512::AttendBlock,
    .merge_attention = avx512::MergeAttention,
    .rotate_groups = avx512::RotateGroups,
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
