// Inputs for kernel tests: seeded random numbers, stored rows, guarded memory, bitwise comparison.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "base/half.h"

namespace pocketlm::testing {

// `count` values of T that end before an unreadable page: reading or writing past the end crashes. They begin at
// a multiple of `alignment` bytes; if they do not end at one, up to alignment - 1 bytes of 0xFF follow.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t count, size_t alignment = 1) : count_(count) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t bytes = (count * sizeof(T) + alignment - 1) / alignment * alignment;
    const size_t size = (bytes + page - 1) / page * page;
    mapped_bytes_ = size + page;
    void* base =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED ||
        ::mprotect(static_cast<std::byte*>(base) + size, page, PROT_NONE) != 0)
      std::abort();
    base_ = static_cast<std::byte*>(base);
    data_ = reinterpret_cast<T*>(base_ + size - bytes);
    std::memset(data_ + count, 0xFF, bytes - count * sizeof(T));
  }
  explicit Guarded(const std::vector<T>& values, size_t alignment = 1)
      : Guarded(values.size(), alignment) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ::munmap(base_, mapped_bytes_); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  std::vector<T> Copy() const { return std::vector<T>(data_, data_ + count_); }

 private:
  size_t count_ = 0;
  size_t mapped_bytes_ = 0;
  std::byte* base_ = nullptr;
  T* data_ = nullptr;
};

inline std::vector<float> RandomFloats(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(count);
  for (float& v : out) v = normal(rng);
  return out;
}

// Zeros of both signs, subnormals, the ends of the range, infinities, NaN.
inline const std::vector<float>& ExtremeFloats() {
  static const std::vector<float> values = {
      0.0f,     -0.0f,      0x1p-149f, -0x1p-149f, 0x1.8p-140f, 0x1p-126f, -0x1p-126f, 0x1p-24f,
      0x1p-25f, 0x1.8p-25f, 1.0f,      -1.0f,      65504.0f,    65519.9f,  65520.0f,   -65536.0f,
      1e30f,    -1e30f,     3.4e38f,   -3.4e38f,   INFINITY,    -INFINITY, NAN};
  return values;
}

// Random values with some extremes strewn in.
inline std::vector<float> ExtremeMix(size_t count, uint32_t seed) {
  std::vector<float> out = RandomFloats(count, seed);
  std::mt19937 rng(seed + 1);
  for (float& v : out) {
    if (rng() % 7 == 0) v = ExtremeFloats()[rng() % ExtremeFloats().size()];
  }
  return out;
}

// Offsets of the halves in a block of the quantized types.
inline std::vector<size_t> ScaleOffsets(DType type) {
  switch (type) {
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ5_0:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

// `rows` stored rows with random codes. Ordinary scales, or with `extreme` zero, subnormal, huge,
// infinite and NaN ones too.
inline std::vector<std::byte> RandomRows(DType type, size_t rows, size_t cols, uint32_t seed,
                                         bool extreme = false) {
  std::mt19937 rng(seed);
  const DTypeInfo& info = GetDTypeInfo(type);
  std::vector<std::byte> out(rows * *RowBytes(type, cols));
  const auto put16 = [&](size_t at, uint16_t v) { std::memcpy(out.data() + at, &v, 2); };
  std::normal_distribution<float> normal(0.0f, 1.0f);
  const auto value = [&] {
    return extreme && rng() % 5 == 0 ? ExtremeFloats()[rng() % ExtremeFloats().size()]
                                     : normal(rng);
  };
  if (info.block_values == 1) {
    for (size_t i = 0; i < rows * cols; ++i) {
      const float v = value();
      if (type == DType::kF32) std::memcpy(out.data() + 4 * i, &v, 4);
      if (type == DType::kF16) put16(2 * i, FloatToHalf(v));
      if (type == DType::kBF16)
        put16(2 * i, static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    }
    return out;
  }
  for (std::byte& b : out) b = static_cast<std::byte>(rng());
  for (size_t block = 0; block < out.size(); block += info.block_bytes) {
    for (size_t offset : ScaleOffsets(type))
      put16(block + offset, FloatToHalf(value() * (extreme ? 1.0f : 0.02f)));
  }
  return out;
}

inline bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Equality bit for bit; any NaN equals any other.
inline ::testing::AssertionResult SameBits(const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!SameBits(a[i], b[i])) {
      return ::testing::AssertionFailure()
             << "at " << i << ": " << std::hexfloat << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}
inline ::testing::AssertionResult SameBits(const std::vector<float>& a,
                                           const std::vector<float>& b) {
  if (a.size() != b.size())
    return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  return SameBits(a.data(), b.data(), a.size());
}

inline std::vector<DType> AllDTypes() {
  std::vector<DType> out;
  for (int i = 0; i < kNumDTypes; ++i) out.push_back(static_cast<DType>(i));
  return out;
}

// Lengths around the kernels' steps of 8, 16, 32 that are whole blocks of `type`.
inline std::vector<size_t> TestWidths(DType type) {
  const size_t block = GetDTypeInfo(type).block_values;
  if (block > 1) return {block, 2 * block, 3 * block, 7 * block};
  return {1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48, 63, 64, 65, 255, 256, 257, 576};
}

}  // namespace pocketlm::testing
