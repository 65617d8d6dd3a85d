// Round-to-nearest quantization against naive oracles and at the edges of half precision.
#include "compress/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "gmock/gmock.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using ::testing::Each;

std::vector<PackedLayout> Layouts() {
  return {{PackedType::kU4, OffsetType::kNone, 64},
          {PackedType::kU4, OffsetType::kZero4, 64},
          {PackedType::kU4, OffsetType::kMinF16, 64},
          {PackedType::kI8, OffsetType::kNone, 64}};
}

std::vector<float> Quantized(const std::vector<float>& x, const PackedLayout& layout) {
  RowCodes row;
  EXPECT_EQ(QuantizeWeights(x, layout, &row), QuantizeFault::kNone) << LayoutName(layout);
  std::vector<float> out(x.size());
  DecodeCodes(row, out.data());
  return out;
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

// The textbook quantizer of one group: the whole range, no search.
std::vector<float> Naive(const std::vector<float>& x, const PackedLayout& layout) {
  const auto [low_at, high_at] = std::minmax_element(x.begin(), x.end());
  float low = *low_at, high = *high_at;
  uint16_t scale_half = 0, min_half = 0;
  float limit_low = 0.0f, limit_high = 15.0f;
  if (layout.type == PackedType::kI8) {
    scale_half = FloatToHalf(std::max(-low, high) / 127.0f);
    limit_low = -127.0f;
    limit_high = 127.0f;
  } else if (layout.offset == OffsetType::kMinF16) {
    scale_half = FloatToHalf((high - low) / 15.0f);
    min_half = FloatToHalf(low);
  } else if (layout.offset == OffsetType::kZero4) {
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    scale_half = FloatToHalf((high - low) / 15.0f);
    const float zero = std::clamp(std::round(-low / ((high - low) / 15.0f)), 0.0f, 15.0f);
    min_half = FloatToHalf(-(HalfToFloat(scale_half) * zero));
  } else {
    scale_half = FloatToHalf((-low > high ? low : high) / -8.0f);
    min_half = FloatToHalf(-8.0f * HalfToFloat(scale_half));
  }
  const float scale = HalfToFloat(scale_half), min = HalfToFloat(min_half);
  std::vector<float> out;
  for (const float value : x) {
    const float code = std::clamp(std::round((value - min) / scale), limit_low, limit_high);
    out.push_back(std::fma(scale, code, min));
  }
  return out;
}

TEST(Quantize, NeverWorseThanNaive) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  double better = 0, all = 0;
  for (const PackedLayout& layout : Layouts()) {
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<float> x(64);
      const float size = std::pow(10.0f, static_cast<float>(trial % 8 - 4));
      const float shift = trial % 3 == 0 ? 0.0f : normal(random);
      for (float& value : x) value = size * (normal(random) + shift);
      if (trial % 5 == 0) x[7] *= 8.0f;  // an outlier
      const double ours = SquaredError(Quantized(x, layout), x);
      const double naive = SquaredError(Naive(x, layout), x);
      // Codes half way between two values may go either way.
      EXPECT_LE(ours, naive * (1 + 1e-4)) << LayoutName(layout) << ", trial " << trial;
      better += ours < naive * 0.999;
      ++all;
    }
  }
  EXPECT_GT(better / all, 0.5);
}

TEST(Quantize, ErrorIsAtMostHalfAStepOfTheWholeRange) {
  // The search may clip, but the sum of squares stays below that of half steps.
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (const PackedLayout& layout : Layouts()) {
    std::vector<float> x(256);
    for (float& value : x) value = uniform(random);
    const double levels = layout.type == PackedType::kI8       ? 254
                          : layout.offset == OffsetType::kNone ? 14
                                                               : 15;
    const double step = 2.0 / levels;
    const double rms = std::sqrt(SquaredError(Quantized(x, layout), x) / 256);
    EXPECT_LT(rms, step / 2) << LayoutName(layout);
    EXPECT_GT(rms, step / 20) << LayoutName(layout);
  }
}

TEST(Quantize, ZerosAndTinyGroups) {
  for (const PackedLayout& layout : Layouts()) {
    SCOPED_TRACE(LayoutName(layout));
    EXPECT_THAT(Quantized(std::vector<float>(64, 0.0f), layout), Each(0.0f));
    EXPECT_THAT(Quantized(std::vector<float>(64, -0.0f), layout), Each(0.0f));
    for (const float value : {1e-12f, -1e-12f, 1e-40f, 3e-8f, 1e-6f, 6.1e-5f}) {
      for (const float back : Quantized(std::vector<float>(64, value), layout)) {
        EXPECT_TRUE(std::isfinite(back));
        // Halves are multiples of 6e-8 there.
        EXPECT_LE(std::abs(back - value), std::max(std::abs(value) * 0.04f, 6e-8f)) << value;
      }
    }
  }
}

TEST(Quantize, Constants) {
  for (const PackedLayout& layout : Layouts()) {
    for (const float value : {1.0f, -1.0f, 0.017f, -0.3f, 1000.0f, -40000.0f}) {
      for (const float back : Quantized(std::vector<float>(64, value), layout)) {
        // Half precision of the scale; `none` reaches a positive constant in steps of 7.
        EXPECT_NEAR(back, value, std::abs(value) * 0.001f) << LayoutName(layout);
      }
    }
  }
}

TEST(Quantize, OneSidedGroups) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0.5f, 1.0f);
  for (const float sign : {1.0f, -1.0f}) {
    std::vector<float> x(64);
    for (float& value : x) value = sign * uniform(random);
    for (const PackedLayout& layout : Layouts()) {
      const double rms = std::sqrt(SquaredError(Quantized(x, layout), x) / 64);
      // min_f16 spends its 16 codes on [0.5, 1]; the others reach to 0, `none` on both sides of it.
      const double step = layout.type == PackedType::kI8         ? 1.0 / 127
                          : layout.offset == OffsetType::kMinF16 ? 0.5 / 15
                          : layout.offset == OffsetType::kZero4  ? 1.0 / 15
                                                                 : 1.0 / 7;
      EXPECT_LT(rms, step / 2) << LayoutName(layout);
    }
  }
}

TEST(Quantize, LargeValuesFitOrAreAFault) {
  for (const PackedLayout& layout : Layouts()) {
    SCOPED_TRACE(LayoutName(layout));
    std::vector<float> x(64, 0.0f);
    x[3] = 30000.0f;
    EXPECT_NEAR(Quantized(x, layout)[3], 30000.0f, 3000.0f);
    for (const float value : {1e9f, 1e30f, std::numeric_limits<float>::max()}) {
      for (const float sign : {1.0f, -1.0f}) {
        x[3] = sign * value;
        x[4] = -value;
        RowCodes row;
        EXPECT_EQ(QuantizeWeights(x, layout, &row), QuantizeFault::kTooLarge) << x[3];
      }
    }
  }
}

TEST(Quantize, NotFiniteIsAFault) {
  for (const PackedLayout& layout : Layouts()) {
    for (const float value :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      for (const size_t at : {0u, 63u, 64u, 127u}) {
        std::vector<float> x(128, 0.5f);
        x[at] = value;
        RowCodes row;
        EXPECT_EQ(QuantizeWeights(x, layout, &row), QuantizeFault::kNotFinite)
            << LayoutName(layout) << " at " << at;
      }
    }
  }
}

TEST(Quantize, FinerTypesAreFiner) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.01f, 0.02f);
  std::vector<float> x(4096);
  for (float& value : x) value = normal(random);
  const auto error = [&x](const PackedLayout& layout) {
    return SquaredError(Quantized(x, layout), x);
  };
  EXPECT_LT(error({PackedType::kU4, OffsetType::kZero4, 32}),
            error({PackedType::kU4, OffsetType::kZero4, 64}));
  EXPECT_LT(error({PackedType::kU4, OffsetType::kZero4, 64}),
            error({PackedType::kU4, OffsetType::kZero4, 128}));
  EXPECT_LT(error({PackedType::kU4, OffsetType::kMinF16, 64}),
            error({PackedType::kU4, OffsetType::kNone, 64}));
  EXPECT_LT(error({PackedType::kI8, OffsetType::kNone, 64}) * 100,
            error({PackedType::kU4, OffsetType::kMinF16, 64}));
}

TEST(Quantize, CodesOfAGridComeBack) {
  // Values that lie on a grid of halves are found exactly.
  RowCodes row;
  row.Resize({PackedType::kU4, OffsetType::kZero4, 64}, 64);
  for (size_t i = 0; i < 64; ++i) row.codes[i] = static_cast<uint8_t>(i % 16);
  row.scales[0] = FloatToHalf(0.0123f);
  row.zeros[0] = 6;
  row.mins[0] = MinOfZero(row.scales[0], 6);
  std::vector<float> x(64);
  DecodeCodes(row, x.data());
  RowCodes again;
  ASSERT_EQ(QuantizeWeights(x, row.layout, &again), QuantizeFault::kNone);
  EXPECT_EQ(again.codes, row.codes);
  EXPECT_EQ(again.zeros, row.zeros);
}

}  // namespace
}  // namespace pocketlm
