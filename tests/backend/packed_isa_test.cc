// quantize_row and the products of packed weights, every instruction set against the reference, bit for bit.

#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"
#include "isa_tables.h"
#include "kernel_inputs.h"
#include "packed_inputs.h"

namespace pocketlm {
namespace {

using testing::AllPackedLayouts;
using testing::Describe;
using testing::ExtremeMix;
using testing::Fill;
using testing::Guarded;
using testing::PackedWeights;
using testing::QuantizedInput;
using testing::RandomFloats;
using testing::SameBits;

class QuantizeIsaTest : public testing::IsaTest {
 protected:
  void ExpectSame(const std::vector<float>& values, size_t group, const char* what) {
    const size_t groups = values.size() / group;
    Guarded<float> x(values);
    Guarded<int8_t> codes(values.size());
    Guarded<float> scales(groups), sums(groups);
    Guarded<int32_t> code_sums(groups);
    isa().quantize_row(x.data(), values.size(), group, codes.data(), scales.data(), sums.data(),
                       code_sums.data());
    std::vector<int8_t> want_codes(values.size());
    std::vector<float> want_scales(groups), want_sums(groups);
    std::vector<int32_t> want_code_sums(groups);
    reference().quantize_row(values.data(), values.size(), group, want_codes.data(),
                             want_scales.data(), want_sums.data(), want_code_sums.data());
    EXPECT_EQ(codes.Copy(), want_codes) << what << ", group " << group;
    EXPECT_TRUE(SameBits(scales.Copy(), want_scales)) << what << ", group " << group;
    EXPECT_TRUE(SameBits(sums.Copy(), want_sums)) << what << ", group " << group;
    EXPECT_EQ(code_sums.Copy(), want_code_sums) << what << ", group " << group;
  }
};
POCKETLM_INSTANTIATE_ISA(QuantizeIsaTest);

TEST_P(QuantizeIsaTest, EveryGroupSize) {
  for (size_t group = 4; group <= 256; group += 4) {
    for (size_t groups : {1, 2, 3, 7})
      ExpectSame(RandomFloats(groups * group, static_cast<uint32_t>(group)), group, "random");
  }
}

TEST_P(QuantizeIsaTest, SpecialGroups) {
  const float specials[] = {INFINITY,        -INFINITY, NAN,     -NAN,     0.0f,      -0.0f,
                            1e-45f,          1e-38f,    3.4e38f, -3.4e38f, 0x1p-100f, -0x1p-100f,
                            0x1.fffffep-101f};
  for (size_t group : {4, 8, 12, 20, 32, 64, 80, 128, 256}) {
    // One special value at each end of a group of ordinary, tiny and zero ones.
    for (float special : specials) {
      for (float size : {1.0f, 1e-35f, 0.0f}) {
        std::vector<float> x = RandomFloats(3 * group, 5, size);
        x[group] = special;
        ExpectSame(x, group, "first value");
        x = RandomFloats(3 * group, 6, size);
        x[2 * group - 1] = special;
        ExpectSame(x, group, "last value");
      }
    }
    ExpectSame(std::vector<float>(2 * group, -0.0f), group, "zeros");
    ExpectSame(std::vector<float>(2 * group, -7.25f), group, "constant");
    ExpectSame(ExtremeMix(5 * group, 7), group, "extremes");
    ExpectSame(RandomFloats(2 * group, 8, 1e37f), group, "huge");
    ExpectSame(RandomFloats(2 * group, 9, 1e-39f), group, "subnormal");
  }
}

// With a maximum of 127 the factor is 1, and k + 0.5 lies between two codes.
TEST_P(QuantizeIsaTest, TiesGoToTheEvenCode) {
  for (float unit : {1.0f, 0x1p-60f, 0x1p60f}) {
    for (size_t group : {32, 64, 128, 256}) {
      std::vector<float> x(2 * group);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = (static_cast<float>(i % 127) + 0.5f) * (i % 2 == 0 ? unit : -unit);
      x[0] = 127 * unit;
      x[group] = -127 * unit;
      ExpectSame(x, group, "ties");
    }
  }
}

TEST_P(QuantizeIsaTest, AnyAlignment) {
  const std::vector<float> values = RandomFloats(256, 3);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::vector<float> x(values.size() + shift);
    std::copy(values.begin(), values.end(), x.begin() + static_cast<std::ptrdiff_t>(shift));
    std::vector<int8_t> codes(256 + shift), want_codes(256);
    std::vector<float> scales(4 + shift), sums(4 + shift), want_scales(4), want_sums(4);
    std::vector<int32_t> code_sums(4 + shift), want_code_sums(4);
    isa().quantize_row(x.data() + shift, 256, 64, codes.data() + shift, scales.data() + shift,
                       sums.data() + shift, code_sums.data() + shift);
    reference().quantize_row(values.data(), 256, 64, want_codes.data(), want_scales.data(),
                             want_sums.data(), want_code_sums.data());
    EXPECT_TRUE(std::equal(want_codes.begin(), want_codes.end(), codes.data() + shift)) << shift;
    EXPECT_TRUE(SameBits(scales.data() + shift, want_scales.data(), 4)) << shift;
    EXPECT_TRUE(SameBits(sums.data() + shift, want_sums.data(), 4)) << shift;
    EXPECT_TRUE(std::equal(want_code_sums.begin(), want_code_sums.end(), code_sums.data() + shift));
  }
}

struct ProductCase {
  size_t x_rows = 1;
  size_t tile_begin = 0;
  size_t tile_end = 0;
  bool accumulate = false;
  size_t margin = 0;  // floats between the rows of y
};

class PackedIsaTest : public testing::IsaTest {
 protected:
  // Runs the kernel into memory that ends at an unreadable page and holds a pattern before, between and instead
  // of the outputs.
  std::vector<float> Run(const CpuKernels& kernels, const PackedMatrix& w, const QuantizedRows& x,
                         const ProductCase& c) {
    constexpr size_t kLead = 5;
    const size_t outputs = std::min(c.tile_end * kTileRows, w.rows) - c.tile_begin * kTileRows;
    const size_t stride = outputs + c.margin;
    Guarded<float> y(RandomFloats(kLead + (c.x_rows - 1) * stride + outputs, 77));
    Guarded<std::byte> panel(std::vector<std::byte>(PackedPanelBytes(w.cols), std::byte{0xFF}), 64);
    PackedProductArgs args;
    args.w = &w;
    args.tile_begin = c.tile_begin;
    args.tile_end = c.tile_end;
    args.x = x;
    args.x_rows = c.x_rows;
    args.y = y.data() + kLead;
    args.y_stride = stride;
    args.accumulate = c.accumulate;
    if (c.x_rows > 1) args.panel = panel.data();
    c.x_rows == 1 ? kernels.packed_gemv(args) : kernels.packed_gemm(args);
    return y.Copy();
  }

  ::testing::AssertionResult Same(const PackedMatrix& w, const QuantizedRows& x,
                                  const ProductCase& c) {
    const auto result = SameBits(Run(isa(), w, x, c), Run(reference(), w, x, c));
    if (result) return result;
    return ::testing::AssertionFailure()
           << Describe(w.layout) << " [" << w.rows << ", " << w.cols << "], tiles [" << c.tile_begin
           << ", " << c.tile_end << "), " << c.x_rows << " rows of x, margin " << c.margin
           << (c.accumulate ? ", accumulated: " : ": ") << result.message();
  }
};
POCKETLM_INSTANTIATE_ISA(PackedIsaTest);

TEST_P(PackedIsaTest, EveryShape) {
  uint32_t seed = 0;
  for (const PackedLayout& layout : AllPackedLayouts()) {
    for (size_t rows : {1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40}) {
      for (size_t x_rows :
           {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 33, 64}) {
        if (x_rows > 20 && rows > 24) continue;
        const size_t cols = layout.group_size * (1 + ++seed % 5);
        const PackedWeights w(layout, rows, cols, seed);
        const QuantizedInput x(x_rows, cols, layout.group_size, seed);
        const ProductCase c = {x_rows, 0, w.matrix().tiles(), seed % 3 == 0, seed % 4};
        ASSERT_TRUE(Same(w.matrix(), x.rows(0, cols, layout.group_size), c));
      }
    }
  }
}

TEST_P(PackedIsaTest, EveryRangeOfTiles) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const size_t rows = 45, cols = 2 * layout.group_size;
    const PackedWeights w(layout, rows, cols, 3);
    const QuantizedInput x(5, cols, layout.group_size, 4);
    for (size_t begin = 0; begin < 6; ++begin) {
      for (size_t end = begin + 1; end <= 6; ++end) {
        for (size_t x_rows : {1, 5}) {
          const ProductCase c = {x_rows, begin, end, false, 1};
          ASSERT_TRUE(Same(w.matrix(), x.rows(0, cols, layout.group_size), c));
        }
      }
    }
  }
}

// More tiles than a panel holds, and longer rows.
TEST_P(PackedIsaTest, LargeMatrices) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    for (size_t x_rows : {1, 3, 70}) {
      const size_t rows = 150, cols = 1152;
      const PackedWeights w(layout, rows, cols, 5);
      const QuantizedInput x(x_rows, cols, layout.group_size, 6);
      ASSERT_TRUE(Same(w.matrix(), x.rows(0, cols, layout.group_size),
                       {x_rows, 0, w.matrix().tiles(), false, 0}));
    }
  }
}

TEST_P(PackedIsaTest, LargestCodesDoNotOverflow) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    for (size_t groups : {1, 2, 9}) {
      const size_t cols = groups * layout.group_size;
      const PackedWeights w(layout, 19, cols, 7, Fill::kWorst);
      const QuantizedInput x(6, cols, layout.group_size, 8, Fill::kWorst);
      for (size_t x_rows : {1, 2, 6}) {
        const ProductCase c = {x_rows, 0, 3, false, 0};
        ASSERT_TRUE(Same(w.matrix(), x.rows(0, cols, layout.group_size), c));
      }
      // The odd rows are negative.
      ASSERT_TRUE(Same(w.matrix(), x.rows(1, cols, layout.group_size), {1, 0, 3, false, 0}));
    }
  }
}

TEST_P(PackedIsaTest, ExtremeScalesAndOffsets) {
  uint32_t seed = 100;
  for (const PackedLayout& layout : AllPackedLayouts()) {
    for (size_t x_rows : {1, 1, 1, 2, 7, 16, 17}) {
      for (Fill x_fill : {Fill::kOrdinary, Fill::kExtreme}) {
        const size_t cols = layout.group_size * (1 + ++seed % 3);
        const PackedWeights w(layout, 29, cols, seed, Fill::kExtreme);
        const QuantizedInput x(x_rows, cols, layout.group_size, seed, x_fill);
        const ProductCase c = {x_rows, 0, 4, seed % 2 == 0, 0};
        ASSERT_TRUE(Same(w.matrix(), x.rows(0, cols, layout.group_size), c));
      }
    }
  }
}

// Every zero point with every code; scales for which scale · zero is not a half, so that the offset is rounded.
TEST_P(PackedIsaTest, ZeroPointsAreRoundedToHalf) {
  for (uint32_t group : {32u, 64u, 128u}) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const PackedLayout layout{PackedType::kU4, OffsetType::kZero4, group};
      const PackedWeights w(layout, 32, group, seed);
      const QuantizedInput x(1, group, group, seed);
      ASSERT_TRUE(Same(w.matrix(), x.rows(0, group, group), {1, 0, 4, false, 0}));
    }
  }
}

// Rows of x that begin at any byte; only the planes and the panel are aligned.
TEST_P(PackedIsaTest, UnalignedRows) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const size_t group = layout.group_size, cols = 2 * group;
    const PackedWeights w(layout, 16, cols, 9);
    const QuantizedInput input(3, cols, group, 10);
    const QuantizedRows x = input.rows(0, cols, group);
    for (size_t shift : {1, 2, 3, 17}) {
      std::vector<int8_t> codes(3 * cols + shift);
      std::copy_n(x.codes, 3 * cols, codes.data() + shift);
      QuantizedRows shifted = x;
      shifted.codes = codes.data() + shift;
      for (size_t x_rows : {1, 3}) {
        const ProductCase c = {x_rows, 0, 2, false, 0};
        EXPECT_TRUE(
            SameBits(Run(isa(), w.matrix(), shifted, c), Run(reference(), w.matrix(), x, c)))
            << Describe(layout) << " at byte " << shift;
      }
    }
  }
}

// What a row gives alone, it gives among others.
TEST_P(PackedIsaTest, GemmOfManyRowsIsGemvOfEach) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const size_t group = layout.group_size, cols = 3 * group, x_rows = 21;
    const PackedWeights w(layout, 27, cols, 11);
    const QuantizedInput x(x_rows, cols, group, 12);
    const std::vector<float> all =
        Run(isa(), w.matrix(), x.rows(0, cols, group), {x_rows, 0, 4, false, 0});
    for (size_t r = 0; r < x_rows; ++r) {
      const std::vector<float> one =
          Run(isa(), w.matrix(), x.rows(r, cols, group), {1, 0, 4, false, 0});
      EXPECT_TRUE(SameBits(one.data() + 5, all.data() + 5 + r * 27, 27)) << Describe(layout) << r;
    }
  }
}

}  // namespace
}  // namespace pocketlm
