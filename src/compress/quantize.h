// Round-to-nearest quantization of weights to the layouts of base/packed_layout.h.
//
// Every group is judged by what the kernels will reconstruct: half scale, half min, scale · code + min. Among a few
// ranges around the group's own, and for zero4 a few zero points, the one with the least squared error wins; the
// plain choice (range from the least to the largest value) is among them, so that the error is never above it.
// The result depends on the values alone: no libm, the same on every machine.
#pragma once

#include <span>

#include "compress/row_codes.h"

namespace pocketlm {

enum class QuantizeFault {
  kNone,
  kNotFinite,  // NaN or infinity
  kTooLarge,   // a scale or min would be beyond half precision
};

// Quantizes one row; x.size() is a whole number of groups. Any offset type for u4; u4 with `none` uses scales of
// either sign, as Q4_0 does; i8 uses codes -127 … 127. Groups of zeros give scale 0 and zeros back. On a fault *out
// holds nothing of use.
QuantizeFault QuantizeWeights(std::span<const float> x, const PackedLayout& layout, RowCodes* out);

// Quantizes one group of a row that has the right layout and size: x, its group_size values. With `importance`, as many
// factors ≥ 0 of the squared errors, 4-bit scales are chosen for the sum of those, among narrower ranges too.
QuantizeFault QuantizeGroup(std::span<const float> x, size_t group, RowCodes* row,
                            std::span<const float> importance = {});

// The code of the group's scale that comes nearest to x, which is finite.
uint8_t NearestCode(float x, size_t group, const RowCodes& row);

}  // namespace pocketlm
