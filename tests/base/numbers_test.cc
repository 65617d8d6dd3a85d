// Halves, checked arithmetic, type sizes.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/half.h"

namespace pocketlm {
namespace {

TEST(HalfTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < (1u << 16); ++h) {
    const uint16_t half = static_cast<uint16_t>(h);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      EXPECT_EQ(h & 0x7C00u, 0x7C00u);
      EXPECT_EQ(FloatToHalf(value), half | 0x200u) << h;  // quiet, sign and payload kept
    } else {
      ASSERT_EQ(FloatToHalf(value), half) << h;
    }
  }
}

TEST(HalfTest, KnownValues) {
  EXPECT_EQ(HalfToFloat(0x3C00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xC000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7BFF), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_EQ(HalfToFloat(0x03FF), 0x1.FF8p-15f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(HalfToFloat(0x7C00), INFINITY);
  EXPECT_EQ(BFloat16ToFloat(0x3F80), 1.0f);
  EXPECT_EQ(BFloat16ToFloat(0xFF80), -INFINITY);
}

// Between two neighbouring halves: below the tie goes down, above goes up, the tie to the even one.
TEST(HalfTest, RoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const double low = HalfToFloat(static_cast<uint16_t>(h));
    const double high = HalfToFloat(static_cast<uint16_t>(h + 1));
    const float tie = static_cast<float>((low + high) / 2);  // exact: one bit more than a half
    ASSERT_EQ(FloatToHalf(tie), h + (h & 1)) << h;
    ASSERT_EQ(FloatToHalf(std::nextafter(tie, 0.0f)), h) << h;
    ASSERT_EQ(FloatToHalf(std::nextafter(tie, INFINITY)), h + 1) << h;
    ASSERT_EQ(FloatToHalf(-tie), 0x8000u | (h + (h & 1))) << h;
  }
}

TEST(HalfTest, OverflowAndUnderflow) {
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xFC00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xFC00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0x0000);  // tie to even
  EXPECT_EQ(FloatToHalf(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(FloatToHalf(-0x1p-149f), 0x8000);
  EXPECT_EQ(FloatToHalf(NAN) & 0x7E00, 0x7E00);
}

TEST(CheckedMathTest, SeesEveryOverflow) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(CheckedMul(0, kMax), 0u);
  EXPECT_EQ(CheckedMul(1, kMax), kMax);
  EXPECT_EQ(CheckedMul(2, kMax), std::nullopt);
  EXPECT_EQ(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(CheckedMul((uint64_t{1} << 32) - 1, (uint64_t{1} << 32) + 1), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 0), kMax);
  EXPECT_EQ(CheckedAdd(kMax, 1), std::nullopt);
  EXPECT_EQ(CheckedAlignUp(0, 32), 0u);
  EXPECT_EQ(CheckedAlignUp(1, 32), 32u);
  EXPECT_EQ(CheckedAlignUp(32, 32), 32u);
  EXPECT_EQ(CheckedAlignUp(kMax - 31, 32), kMax - 31);
  EXPECT_EQ(CheckedAlignUp(kMax - 30, 32), std::nullopt);
}

TEST(DTypeTest, RowBytesNeedsWholeBlocks) {
  EXPECT_EQ(RowBytes(DType::kF32, 3), 12u);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(RowBytes(DType::kQ8_0, 33), std::nullopt);
  EXPECT_EQ(RowBytes(DType::kQ6_K, 256), 210u);
  EXPECT_EQ(RowBytes(DType::kQ4_K, 128), std::nullopt);
  EXPECT_EQ(RowBytes(DType::kQ4_1, 0), 0u);
  EXPECT_EQ(RowBytes(DType::kF32, std::numeric_limits<uint64_t>::max()), std::nullopt);
}

}  // namespace
}  // namespace pocketlm
