// Packed weights and quantized rows for kernel tests, each plane before an unreadable page.
#pragma once

#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/half.h"
#include "base/packed_layout.h"
#include "kernel_inputs.h"

namespace pocketlm::testing {

enum class Fill {
  kOrdinary,
  kWorst,    // codes of the largest magnitude everywhere, so that narrow sums would overflow
  kExtreme,  // any half as scale and offset: infinite, NaN, subnormal, negative ones
};

inline std::vector<PackedLayout> AllPackedLayouts() {
  std::vector<PackedLayout> out;
  for (uint32_t group : {32u, 64u, 128u}) {
    for (OffsetType offset : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16})
      out.push_back({PackedType::kU4, offset, group});
    out.push_back({PackedType::kI8, OffsetType::kNone, group});
  }
  return out;
}

inline std::string Describe(const PackedLayout& layout) {
  return std::string(PackedTypeName(layout.type)) + " " + OffsetTypeName(layout.offset) + " g" +
         std::to_string(layout.group_size);
}

// Halves of ordinary size, or any bits in one of four.
inline std::vector<std::byte> RandomHalves(size_t bytes, Fill fill, float size, std::mt19937* rng) {
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i + 2 <= bytes; i += 2) {
    uint16_t half = FloatToHalf(fill == Fill::kWorst ? size : normal(*rng));
    if (fill == Fill::kExtreme && (*rng)() % 4 == 0) half = static_cast<uint16_t>((*rng)());
    std::memcpy(out.data() + i, &half, 2);
  }
  return out;
}

// Packed weights with random content; what pads the last tile is random too, since no result may depend on it.
class PackedWeights {
 public:
  PackedWeights(const PackedLayout& layout, size_t rows, size_t cols, uint32_t seed,
                Fill fill = Fill::kOrdinary)
      : rng_(seed),
        planes_(*PlaneBytes(layout, rows, cols)),
        codes_(RandomCodes(layout, fill), 64),
        scales_(RandomHalves(planes_.scales, fill, 0.02f, &rng_), 64),
        offsets_(RandomOffsets(layout, fill), 64) {
    matrix_.layout = layout;
    matrix_.rows = rows;
    matrix_.cols = cols;
    matrix_.codes = codes_.data();
    matrix_.scales = scales_.data();
    if (layout.offset != OffsetType::kNone) matrix_.offsets = offsets_.data();
  }

  const PackedMatrix& matrix() const { return matrix_; }

 private:
  std::vector<std::byte> RandomCodes(const PackedLayout& layout, Fill fill) {
    std::vector<std::byte> out(planes_.codes);
    const bool i8 = layout.type == PackedType::kI8;
    for (std::byte& b : out) {
      const auto random = static_cast<int>(rng_() % 255) - 127;
      const int worst = i8 ? (rng_() % 8 == 0 ? -127 : 127) : 0xFF;
      b = static_cast<std::byte>(fill == Fill::kWorst ? worst
                                 : i8                 ? random
                                                      : static_cast<int>(rng_() & 0xFF));
    }
    return out;
  }
  std::vector<std::byte> RandomOffsets(const PackedLayout& layout, Fill fill) {
    if (layout.offset == OffsetType::kMinF16)
      return RandomHalves(planes_.offsets, fill, 0.1f, &rng_);
    std::vector<std::byte> out(planes_.offsets);
    for (std::byte& b : out) b = static_cast<std::byte>(rng_());
    return out;
  }

  std::mt19937 rng_;
  PackedPlanes planes_;
  Guarded<std::byte> codes_, scales_, offsets_;
  PackedMatrix matrix_;
};

// Rows of activations as int8 codes. The sums belong to the codes, as quantize_row leaves them.
class QuantizedInput {
 public:
  QuantizedInput(size_t rows, size_t cols, size_t group_size, uint32_t seed,
                 Fill fill = Fill::kOrdinary)
      : codes_(rows * cols),
        scales_(rows * cols / group_size),
        sums_(scales_.size()),
        code_sums_(scales_.size()) {
    std::mt19937 rng(seed);
    for (size_t i = 0; i < codes_.size(); ++i) {
      const int worst = i / cols % 2 == 0 ? 127 : -127;
      codes_[i] =
          static_cast<int8_t>(fill == Fill::kWorst ? worst : static_cast<int>(rng() % 255) - 127);
    }
    const std::vector<float> scales =
        fill == Fill::kExtreme ? ExtremeMix(scales_.size(), seed) : RandomFloats(scales_.size(), 1);
    for (size_t g = 0; g < scales_.size(); ++g) {
      code_sums_[g] = 0;
      for (size_t i = 0; i < group_size; ++i) code_sums_[g] += codes_[g * group_size + i];
      scales_[g] = fill == Fill::kExtreme ? scales[g] : std::abs(scales[g]);
      sums_[g] = scales_[g] * static_cast<float>(code_sums_[g]);
    }
  }

  // Rows from `row` on.
  QuantizedRows rows(size_t row, size_t cols, size_t group_size) const {
    const size_t groups = row * (cols / group_size);
    return {codes_.data() + row * cols, scales_.data() + groups, sums_.data() + groups,
            code_sums_.data() + groups};
  }

 private:
  Guarded<int8_t> codes_;
  Guarded<float> scales_, sums_;
  Guarded<int32_t> code_sums_;
};

}  // namespace pocketlm::testing
