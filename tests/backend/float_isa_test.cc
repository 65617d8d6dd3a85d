// The float kernels of every instruction set against the reference, bit for bit.

#include <gtest/gtest.h>

#include "backend/cpu/kernels.h"
#include "isa_tables.h"
#include "kernel_inputs.h"

namespace pocketlm {
namespace {

using testing::AllDTypes;
using testing::ExtremeFloats;
using testing::ExtremeMix;
using testing::Guarded;
using testing::RandomFloats;
using testing::RandomRows;
using testing::SameBits;
using testing::TestWidths;

class FloatIsaTest : public testing::IsaTest {};
POCKETLM_INSTANTIATE_ISA(FloatIsaTest);

TEST_P(FloatIsaTest, DequantizeEveryTypeWidthAndExtreme) {
  for (DType type : AllDTypes()) {
    for (size_t cols : TestWidths(type)) {
      for (bool extreme : {false, true}) {
        Guarded<std::byte> row(RandomRows(type, 1, cols, 7 + static_cast<uint32_t>(cols), extreme));
        Guarded<float> got(cols);
        std::vector<float> want(cols);
        isa().dequantize(type, row.data(), cols, got.data());
        reference().dequantize(type, row.data(), cols, want.data());
        EXPECT_TRUE(SameBits(got.Copy(), want))
            << GetDTypeInfo(type).name << " " << cols << " extreme " << extreme;
      }
    }
  }
}

TEST_P(FloatIsaTest, DequantizeAllHalvesAndBfloats) {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  for (DType type : {DType::kF16, DType::kBF16}) {
    std::vector<float> got(words.size()), want(words.size());
    isa().dequantize(type, reinterpret_cast<const std::byte*>(words.data()), words.size(),
                     got.data());
    reference().dequantize(type, reinterpret_cast<const std::byte*>(words.data()), words.size(),
                           want.data());
    EXPECT_TRUE(SameBits(got, want)) << GetDTypeInfo(type).name;
  }
}

TEST_P(FloatIsaTest, GemvEveryTypeWidthAndExtreme) {
  for (DType type : AllDTypes()) {
    for (size_t cols : TestWidths(type)) {
      for (size_t rows : {1, 2, 3, 5}) {
        const bool extreme = rows == 3;
        Guarded<std::byte> w(
            RandomRows(type, rows, cols, 11 + static_cast<uint32_t>(cols), extreme));
        Guarded<float> x(extreme ? ExtremeMix(cols, 3) : RandomFloats(cols, 3));
        Guarded<float> got(rows);
        std::vector<float> want(rows);
        isa().gemv(type, w.data(), rows, cols, x.data(), got.data());
        reference().gemv(type, w.data(), rows, cols, x.data(), want.data());
        EXPECT_TRUE(SameBits(got.Copy(), want))
            << GetDTypeInfo(type).name << " [" << rows << ", " << cols << "]";
      }
    }
  }
}

TEST_P(FloatIsaTest, GemvOfRowsAlignedToTwoBytes) {
  for (DType type : AllDTypes()) {
    const size_t cols = 256;
    const std::vector<std::byte> rows = RandomRows(type, 3, cols, 5);
    const std::vector<float> x = RandomFloats(cols, 6);
    std::vector<float> want(3), got(3);
    reference().gemv(type, rows.data(), 3, cols, x.data(), want.data());
    for (size_t offset = 2; offset < 16; offset += 2) {
      std::vector<std::byte> shifted(rows.size() + offset);
      std::memcpy(shifted.data() + offset, rows.data(), rows.size());
      isa().gemv(type, shifted.data() + offset, 3, cols, x.data(), got.data());
      EXPECT_TRUE(SameBits(got, want)) << GetDTypeInfo(type).name << " at " << offset;
    }
  }
}

// A sum of products that underflow must not lose or gain a sign or a subnormal: with `same_sign`
// every lane is -0, and so is the sum, unless a tail adds +0 to a lane that it does not have.
TEST_P(FloatIsaTest, GemvOfSubnormals) {
  for (bool same_sign : {false, true}) {
    for (size_t cols : {1, 5, 13, 16, 20, 28, 40}) {
      std::vector<float> w(cols, -0x1p-100f);
      std::vector<float> x(cols, 0x1p-60f);
      for (size_t i = 0; i < cols && !same_sign; ++i) {
        if (i % 3 != 0) x[i] = i % 2 ? 0x1p-45f : -0x1p-45f;
      }
      float got, want;
      const auto* bytes = reinterpret_cast<const std::byte*>(w.data());
      isa().gemv(DType::kF32, bytes, 1, cols, x.data(), &got);
      reference().gemv(DType::kF32, bytes, 1, cols, x.data(), &want);
      EXPECT_TRUE(SameBits(got, want)) << cols << " columns, same sign " << same_sign;
      if (same_sign && cols >= 16) {
        EXPECT_TRUE(SameBits(want, -0.0f));
      }
    }
  }
}

TEST_P(FloatIsaTest, GemmEqualsReferenceAndGemv) {
  for (size_t cols : {1, 8, 15, 16, 17, 31, 33, 48, 100, 256, 577}) {
    for (size_t panel_rows : {1, 2, 3, 4, 7}) {
      for (size_t x_rows : {1, 2, 3, 4, 5, 6, 7, 11}) {
        const bool extreme = x_rows == 5;
        Guarded<float> panel(RandomFloats(panel_rows * cols, 21));
        Guarded<float> x(extreme ? ExtremeMix(x_rows * cols, 22) : RandomFloats(x_rows * cols, 22));
        const size_t stride = panel_rows + 3;
        std::vector<float> got(x_rows * stride, -7.0f), want(x_rows * stride, -7.0f);
        isa().gemm(panel.data(), panel_rows, cols, x.data(), x_rows, got.data(), stride);
        reference().gemm(panel.data(), panel_rows, cols, x.data(), x_rows, want.data(), stride);
        EXPECT_TRUE(SameBits(got, want)) << panel_rows << " x " << x_rows << " over " << cols;
        std::vector<float> row(panel_rows);
        isa().gemv(DType::kF32, reinterpret_cast<const std::byte*>(panel.data()), panel_rows, cols,
                   x.data(), row.data());
        EXPECT_TRUE(SameBits(row.data(), got.data(), panel_rows)) << "gemv, " << cols;
      }
    }
  }
}

TEST_P(FloatIsaTest, RmsNorm) {
  for (size_t cols : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 576, 641}) {
    for (bool extreme : {false, true}) {
      Guarded<float> x(extreme ? ExtremeMix(cols, 31) : RandomFloats(cols, 31));
      Guarded<float> weight(RandomFloats(cols, 32));
      std::vector<float> want(cols);
      reference().rms_norm(x.data(), cols, weight.data(), 1e-5f, want.data());
      Guarded<float> got(cols);
      isa().rms_norm(x.data(), cols, weight.data(), 1e-5f, got.data());
      EXPECT_TRUE(SameBits(got.Copy(), want)) << cols;
      isa().rms_norm(x.data(), cols, weight.data(), 1e-5f, x.data());
      EXPECT_TRUE(SameBits(x.Copy(), want)) << cols << " in place";
    }
  }
}

TEST_P(FloatIsaTest, RopeBothLayouts) {
  for (size_t head_dim : {2, 4, 6, 8, 10, 14, 16, 18, 22, 32, 64, 80, 128}) {
    for (size_t heads : {1, 3}) {
      const std::vector<float> x = ExtremeMix(heads * head_dim, 41);
      Guarded<float> cos(RandomFloats(head_dim / 2, 42)), sin(RandomFloats(head_dim / 2, 43));
      for (auto rope : {&CpuKernels::rope_halves, &CpuKernels::rope_interleaved}) {
        Guarded<float> got(x);
        std::vector<float> want = x;
        (isa().*rope)(got.data(), heads, head_dim, cos.data(), sin.data());
        (reference().*rope)(want.data(), heads, head_dim, cos.data(), sin.data());
        EXPECT_TRUE(SameBits(got.Copy(), want)) << heads << " x " << head_dim;
      }
    }
  }
}

// Every half, its neighbours in float and the ties between halves.
TEST_P(FloatIsaTest, FloatsToHalvesAroundEveryHalf) {
  std::vector<float> values = ExtremeFloats();
  for (uint32_t h = 0; h < (1u << 16); ++h) {
    const float value = HalfToFloat(static_cast<uint16_t>(h));
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    for (uint32_t delta : {0u, 1u, 0xFFFu, 0x1000u, 0x1001u})
      values.push_back(std::bit_cast<float>(bits + delta));
    if ((bits & 0x7FFFFFFFu) != 0) values.push_back(std::bit_cast<float>(bits - 1));
    values.push_back(value + 0x1p-25f);
    values.push_back(value + 0x1.000002p-25f);
  }
  while (values.size() % 8 != 5) values.push_back(1.0f);
  Guarded<uint16_t> got(values.size());
  isa().floats_to_halves(values.data(), values.size(), got.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], FloatToHalf(values[i])) << std::hexfloat << values[i];
  }
}

TEST_P(FloatIsaTest, ElementwiseKernels) {
  for (size_t count : {1, 7, 8, 9, 16, 31, 100}) {
    const std::vector<float> a =
        count == 100 ? ExtremeMix(count, 51) : RandomFloats(count, 51, 20.0f);
    Guarded<float> b(RandomFloats(count, 52));
    for (auto kernel : {&CpuKernels::silu_mul, &CpuKernels::gelu_mul, &CpuKernels::add}) {
      Guarded<float> got(a);
      std::vector<float> want = a;
      (isa().*kernel)(got.data(), b.data(), count);
      (reference().*kernel)(want.data(), b.data(), count);
      EXPECT_TRUE(SameBits(got.Copy(), want)) << count;
    }
    Guarded<float> got(a);
    std::vector<float> want = a;
    isa().scale(got.data(), 0.37f, count);
    reference().scale(want.data(), 0.37f, count);
    EXPECT_TRUE(SameBits(got.Copy(), want)) << count;
  }
}

// The exp of both, seen through SiLU with up = 1, over the whole range of inputs.
TEST_P(FloatIsaTest, ActivationsOverAllExponents) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 4999) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-std::bit_cast<float>(bits));
  }
  const std::vector<float> ones(values.size(), 1.0f);
  for (auto kernel : {&CpuKernels::silu_mul, &CpuKernels::gelu_mul}) {
    std::vector<float> got = values, want = values;
    (isa().*kernel)(got.data(), ones.data(), got.size());
    (reference().*kernel)(want.data(), ones.data(), want.size());
    EXPECT_TRUE(SameBits(got, want));
  }
}

}  // namespace
}  // namespace pocketlm
