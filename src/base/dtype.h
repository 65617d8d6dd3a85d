// Element types of stored tensors. Names and block layouts are GGML's; the numbers here are our own.
#pragma once

#include <cstdint>
#include <optional>

namespace pocketlm {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

inline constexpr int kNumDTypes = 11;

struct DTypeInfo {
  const char* name;       // as in GGUF tools, for example "Q4_K"
  uint32_t block_values;  // values per block; a row is a whole number of blocks
  uint32_t block_bytes;
};

// Layout facts of each type, indexed by DType (GGUF specification and ggml-common.h).
inline constexpr DTypeInfo kDTypeInfo[kNumDTypes] = {
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q4_K", 256, 144}, {"Q5_K", 256, 176}, {"Q6_K", 256, 210},
};

inline constexpr const DTypeInfo& GetDTypeInfo(DType type) {
  return kDTypeInfo[static_cast<int>(type)];
}

// Bytes of a row of `values` elements; nullopt if `values` is not a whole number of blocks.
inline constexpr std::optional<uint64_t> RowBytes(DType type, uint64_t values) {
  const DTypeInfo& info = GetDTypeInfo(type);
  if (values % info.block_values != 0) return std::nullopt;
  const uint64_t blocks = values / info.block_values;
  if (blocks > UINT64_MAX / info.block_bytes) return std::nullopt;
  return blocks * info.block_bytes;
}

}  // namespace pocketlm
