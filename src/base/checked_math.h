// Arithmetic on sizes that come from files: every overflow is seen, never wrapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pocketlm {

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Rounds up to a multiple of `alignment`, a power of two.
inline std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment) {
  auto sum = CheckedAdd(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace pocketlm
