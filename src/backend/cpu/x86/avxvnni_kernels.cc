// The AVX-VNNI kernel table: AVX2 with 256-bit dot products of bytes.

#include "backend/cpu/x86/avx2_entries.h"
#include "backend/cpu/x86/avxvnni_entries.h"

namespace pocketlm {

const CpuKernels kAvxVnniKernels = {
    .name = "avxvnni",
    .dequantize = avx2::Dequantize,
    .gemv = avx2::Gemv,
    .gemm = avx2::Gemm,
    .quantize_row = avx2::QuantizeRow,
    .packed_gemv = avxvnni::PackedProduct,
    .packed_gemm = avxvnni::PackedProduct,
    .attend_block = avxvnni::AttendBlock,
    .merge_attention = avx2::MergeAttention,
    .rotate_groups = avx2::RotateGroups,
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
