#include "compress/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/half.h"

namespace pocketlm {
namespace {

constexpr size_t kLanes = 8;
constexpr float kMaxNoneScale = 65504.0f / 8.0f;  // beyond it -8 · scale is no half
constexpr size_t kMaxGroup = 128;
constexpr float kFactors[] = {1.0f, 0.95f, 0.9f, 0.85f};
constexpr float kWideFactors[] = {1.0f, 0.96f, 0.92f, 0.88f, 0.84f, 0.8f, 0.75f, 0.7f, 0.65f, 0.6f};

struct GroupCode {
  uint16_t scale = 0;
  uint16_t min = 0;
  uint8_t zero = 0;
};

// out[i] = the code of x[i], 0 … 15, in loops that compilers turn into vector instructions (one loop for both steps
// becomes branches).
void NearestCodes(std::span<const float> x, float scale, float min, int32_t* out) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  float positions[kMaxGroup];
  for (size_t i = 0; i < x.size(); ++i) {
    const float position = (x[i] - min) * inverse + 0.5f;
    positions[i] = std::min(std::max(position, 0.0f), 15.0f);
  }
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<int32_t>(positions[i]);
}

// The best code of a group so far.
class GroupSearch {
 public:
  GroupSearch(std::span<const float> x, std::span<const float> importance)
      : x_(x), importance_(importance) {}

  // Fractions of the plain range to try.
  std::span<const float> factors() const {
    return importance_.empty() ? std::span<const float>(kFactors) : kWideFactors;
  }

  // Considers a code; one whose scale or min is not finite is passed over.
  void Try(const GroupCode& code) {
    const float scale = HalfToFloat(code.scale);
    const float min = HalfToFloat(code.min);
    if (!std::isfinite(scale) || !std::isfinite(min)) return;
    const float error = SquaredError(scale, min);
    if (found_ && !(error < error_)) return;
    found_ = true;
    error_ = error;
    best_ = code;
  }

  // The nearest half, and the next larger one where halves are coarse.
  template <typename MakeCode>
  void TryScale(float scale, const MakeCode& make) {
    const uint16_t half = FloatToHalf(scale);
    Try(make(half));
    if ((half & 0x7FFFu) < 0x0400u) Try(make(static_cast<uint16_t>(half + 1)));
  }

  bool found() const { return found_; }
  const GroupCode& best() const { return best_; }

 private:
  float SquaredError(float scale, float min) const {
    int32_t codes[kMaxGroup];
    float squares[kMaxGroup];
    NearestCodes(x_, scale, min, codes);
    const size_t size = x_.size();
    for (size_t i = 0; i < size; ++i) {
      const float difference = scale * static_cast<float>(codes[i]) + min - x_[i];
      squares[i] = difference * difference;
    }
    if (!importance_.empty()) {
      for (size_t i = 0; i < size; ++i) squares[i] *= importance_[i];
    }
    float sums[kLanes] = {};
    for (size_t i = 0; i < size; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += squares[i + lane];
    }
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }

  std::span<const float> x_, importance_;
  bool found_ = false;
  float error_ = std::numeric_limits<float>::infinity();
  GroupCode best_;
};

struct Range {
  float low = 0.0f;
  float high = 0.0f;
  bool finite = true;
};

Range RangeOf(std::span<const float> x) {
  float low[kLanes], high[kLanes];
  uint32_t largest[kLanes] = {};
  std::fill_n(low, kLanes, x[0]);
  std::fill_n(high, kLanes, x[0]);
  for (size_t i = 0; i < x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
      largest[lane] = std::max(largest[lane], std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu);
    }
  }
  return {*std::min_element(low, low + kLanes), *std::max_element(high, high + kLanes),
          *std::max_element(largest, largest + kLanes) < 0x7F800000u};
}

void SearchMinF16(const Range& range, GroupSearch* search) {
  const float width = range.high - range.low;
  for (const float cut_low : {0.0f, 0.04f, 0.08f}) {
    for (const float cut_high : {0.0f, 0.04f, 0.08f}) {
      const uint16_t min = FloatToHalf(range.low + cut_low * width);
      search->TryScale((1.0f - cut_low - cut_high) * width / 15.0f, [&](uint16_t scale) {
        return GroupCode{scale, min, 0};
      });
    }
  }
}

void SearchZero4(const Range& range, GroupSearch* search) {
  const float low = std::min(range.low, 0.0f);
  const float high = std::max(range.high, 0.0f);
  const float step = (high - low) / 15.0f;
  const int nearest = step > 0.0f ? std::clamp(static_cast<int>(-low / step + 0.5f), 0, 15) : 0;
  const auto try_scale = [&](float scale, int zero) {
    search->TryScale(scale, [zero](uint16_t half) {
      const auto z = static_cast<uint8_t>(zero);
      return GroupCode{half, MinOfZero(half, z), z};
    });
  };
  try_scale(step, nearest);
  for (int zero = std::max(nearest - 1, 0); zero <= std::min(nearest + 1, 15); ++zero) {
    float covering = 0.0f;
    if (zero < 15) covering = high / static_cast<float>(15 - zero);
    if (zero > 0) covering = std::max(covering, -low / static_cast<float>(zero));
    for (const float factor : search->factors()) try_scale(factor * covering, zero);
  }
}

void SearchNone(const Range& range, GroupSearch* search) {
  // Code 0 stands for 8 steps, code 15 for 7: the larger end takes code 0.
  const float largest = -range.low > range.high ? range.low : range.high;
  for (const float covering : {largest / -8.0f, largest / 7.0f}) {
    for (const float factor : search->factors()) {
      if (std::abs(factor * covering) > kMaxNoneScale) continue;
      search->TryScale(factor * covering, [](uint16_t scale) {
        return GroupCode{scale, MinOfNone(scale), 0};
      });
    }
  }
}

void AssignCodes4(std::span<const float> x, const GroupCode& code, uint8_t* out) {
  int32_t codes[kMaxGroup];
  NearestCodes(x, HalfToFloat(code.scale), HalfToFloat(code.min), codes);
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<uint8_t>(codes[i]);
}

// Assigns the codes of a scale and returns the squared error.
float AssignCodes8(std::span<const float> x, float scale, uint8_t* out) {
  const float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
  float error = 0.0f;
  for (size_t i = 0; i < x.size(); ++i) {
    const float position = std::min(std::max(x[i] * inverse, -127.0f), 127.0f);
    const float half_away = position < 0.0f ? position - 0.5f : position + 0.5f;
    const auto code = static_cast<int8_t>(static_cast<int>(half_away));
    const float difference = scale * static_cast<float>(code) - x[i];
    error += difference * difference;
    out[i] = static_cast<uint8_t>(code);
  }
  return error;
}

bool QuantizeGroup8(std::span<const float> x, const Range& range, uint16_t* scale_half,
                    uint8_t* out) {
  const float largest = std::max(-range.low, range.high);
  uint16_t half = FloatToHalf(largest / 127.0f);
  if ((half & 0x7C00u) == 0x7C00u) return false;
  const float error = AssignCodes8(x, HalfToFloat(half), out);
  *scale_half = half;
  // A scale that was rounded down so far that it clips, which happens among subnormal halves only.
  if (largest <= 127.5f * HalfToFloat(half)) return true;
  if (AssignCodes8(x, HalfToFloat(++half), out) < error) {
    *scale_half = half;
  } else {
    AssignCodes8(x, HalfToFloat(*scale_half), out);
  }
  return true;
}

}  // namespace

QuantizeFault QuantizeGroup(std::span<const float> x, size_t group, RowCodes* row,
                            std::span<const float> importance) {
  const PackedLayout& layout = row->layout;
  uint8_t* codes = row->codes.data() + group * layout.group_size;
  const Range range = RangeOf(x);
  if (!range.finite) return QuantizeFault::kNotFinite;
  if (layout.type == PackedType::kI8) {
    const bool fits = QuantizeGroup8(x, range, &row->scales[group], codes);
    return fits ? QuantizeFault::kNone : QuantizeFault::kTooLarge;
  }
  GroupSearch search(x, importance);
  if (layout.offset == OffsetType::kMinF16) {
    SearchMinF16(range, &search);
  } else if (layout.offset == OffsetType::kZero4) {
    SearchZero4(range, &search);
  } else {
    SearchNone(range, &search);
  }
  if (!search.found()) return QuantizeFault::kTooLarge;
  row->scales[group] = search.best().scale;
  row->mins[group] = search.best().min;
  if (layout.offset == OffsetType::kZero4) row->zeros[group] = search.best().zero;
  AssignCodes4(x, search.best(), codes);
  return QuantizeFault::kNone;
}

uint8_t NearestCode(float x, size_t group, const RowCodes& row) {
  uint8_t code = 0;
  if (row.layout.type == PackedType::kI8) {
    AssignCodes8({&x, 1}, HalfToFloat(row.scales[group]), &code);
  } else {
    AssignCodes4({&x, 1}, {row.scales[group], row.mins[group], 0}, &code);
  }
  return code;
}

QuantizeFault QuantizeWeights(std::span<const float> x, const PackedLayout& layout, RowCodes* out) {
  out->Resize(layout, x.size());
  const size_t size = layout.group_size;
  for (size_t group = 0; group < out->groups(); ++group) {
    const QuantizeFault fault = QuantizeGroup(x.subspan(group * size, size), group, out);
    if (fault != QuantizeFault::kNone) return fault;
  }
  return QuantizeFault::kNone;
}

}  // namespace pocketlm
