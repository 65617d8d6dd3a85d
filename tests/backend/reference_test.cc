// The reference kernels against textbook formulas in double, with bounds that follow from the
// arithmetic. u = 2^-24 is the largest relative error of one float operation.

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/numerics.h"
#include "format/gguf.h"
#include "kernel_inputs.h"
#include "support/test_support.h"

namespace pocketlm {
namespace {

using reference::FusedMultiplyAdd;
using testing::AllDTypes;
using testing::RandomFloats;
using testing::RandomRows;
using testing::SameBits;

constexpr double kU = 0x1p-24;

TEST(FusedMultiplyAddTest, EqualsTheLibraryOnRandomBits) {
  std::mt19937 rng(1);
  for (int i = 0; i < 2000000; ++i) {
    const float a = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    const float b = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    // Addends of random size, of the product's size, and its negation, where cancellation is.
    float c = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (i % 4 == 1) c = -(a * b);
    if (i % 4 == 2)
      c = std::bit_cast<float>(std::bit_cast<uint32_t>(a * b) ^
                               (static_cast<uint32_t>(rng()) & 0x8000000Fu));
    if (i % 4 == 3) c = a * b * std::ldexp(1.0f, static_cast<int>(rng() % 64) - 32);
    ASSERT_TRUE(SameBits(FusedMultiplyAdd(a, b, c), std::fma(a, b, c)))
        << std::hexfloat << a << " " << b << " " << c;
  }
}

TEST(FusedMultiplyAddTest, RoundsOnceWhereTwoRoundingsDiffer) {
  // a·b = 1 + 2^-12 + … lies a hair beside a tie of floats after adding c: double alone rounds to
  // the tie.
  const float a = 1.0f + 0x1p-12f, b = 1.0f + 0x1p-12f, c = 0x1p-60f;
  EXPECT_EQ(FusedMultiplyAdd(a, b, c), std::fma(a, b, c));
  EXPECT_NE(FusedMultiplyAdd(a, b, c), FusedMultiplyAdd(a, b, -c));
  for (float x : testing::ExtremeFloats()) {
    for (float y : testing::ExtremeFloats()) {
      for (float z : testing::ExtremeFloats()) {
        ASSERT_TRUE(SameBits(FusedMultiplyAdd(x, y, z), std::fma(x, y, z)))
            << x << " " << y << " " << z;
      }
    }
  }
}

TEST(ExpTest, WithinOneUlpOverTheWholeRange) {
  double worst = 0;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(104.0f); bits += 1009) {
    for (float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double exact = std::exp(static_cast<double>(x));
      const float got = reference::Exp(x);
      if (exact > 0x1.fffffep127) {
        ASSERT_TRUE(std::isinf(got) || got == 0x1.fffffep127f) << x;
        continue;
      }
      int exponent;
      std::frexp(exact, &exponent);
      const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
      worst = std::max(worst, std::abs(got - exact) / ulp);
      ASSERT_LE(std::abs(got - exact), ulp) << std::hexfloat << x;
    }
  }
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(ExpTest, SpecialValues) {
  EXPECT_EQ(reference::Exp(0.0f), 1.0f);
  EXPECT_EQ(reference::Exp(-0.0f), 1.0f);
  EXPECT_TRUE(SameBits(reference::Exp(-INFINITY), 0.0f));
  EXPECT_TRUE(SameBits(reference::Exp(-3e38f), 0.0f));
  EXPECT_EQ(reference::Exp(INFINITY), INFINITY);
  EXPECT_EQ(reference::Exp(3e38f), INFINITY);
  EXPECT_TRUE(std::isnan(reference::Exp(NAN)));
  EXPECT_TRUE(std::isnan(reference::Exp(-NAN)));
}

// Each lane makes ⌈n/16⌉ roundings and the tree four more.
TEST(ReferenceTest, DotWithinItsBound) {
  for (size_t n : {1, 15, 16, 17, 100, 1536}) {
    const std::vector<float> a = RandomFloats(n, 1), b = RandomFloats(n, 2);
    double exact = 0, magnitude = 0;
    for (size_t i = 0; i < n; ++i) {
      const double product = static_cast<double>(a[i]) * b[i];
      exact += product;
      magnitude += std::abs(product);
    }
    const double roundings = static_cast<double>((n + 15) / 16 + 4);
    EXPECT_NEAR(reference::Dot(a.data(), b.data(), n), exact, 1.01 * roundings * kU * magnitude)
        << n;
  }
}

TEST(ReferenceTest, DotUsesLanesAndTree) {
  // Huge values in lanes 0 and 8 cancel in the first step of the tree; a sum in order would lose
  // the ones.
  std::vector<float> a(17, 1.0f);
  a[0] = 1e30f;
  a[8] = -1e30f;
  const std::vector<float> ones(17, 1.0f);
  // Element 16 goes to lane 0, where 1e30 swallows it.
  EXPECT_EQ(reference::Dot(a.data(), ones.data(), 17), 14.0f);
}

TEST(ReferenceTest, GemvIsTheDotOfTheDequantizedRow) {
  for (DType type : AllDTypes()) {
    for (size_t cols : {256, 768}) {
      const auto row = RandomRows(type, 2, cols, 9);
      const std::vector<float> x = RandomFloats(cols, 10);
      float y[2];
      kReferenceKernels.gemv(type, row.data(), 2, cols, x.data(), y);
      for (size_t n = 0; n < 2; ++n) {
        std::vector<float> w(cols);
        DequantizeRow(type, row.data() + n * *RowBytes(type, cols), cols, w.data());
        EXPECT_EQ(y[n], reference::Dot(w.data(), x.data(), cols)) << GetDTypeInfo(type).name;
      }
    }
  }
}

// 1/sqrt: error of the mean u·(n/16 + 6) / 2, then root, reciprocal and two products.
TEST(ReferenceTest, RmsNormWithinItsBound) {
  for (size_t n : {1, 3, 16, 576}) {
    const std::vector<float> x = RandomFloats(n, 3, 5.0f), weight = RandomFloats(n, 4);
    double squares = 0;
    for (float v : x) squares += static_cast<double>(v) * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5f);
    std::vector<float> y(n);
    kReferenceKernels.rms_norm(x.data(), n, weight.data(), 1e-5f, y.data());
    const double relative = (static_cast<double>(n) / 32 + 8) * kU;
    for (size_t i = 0; i < n; ++i) {
      const double exact = x[i] * factor * weight[i];
      EXPECT_NEAR(y[i], exact, relative * std::abs(exact)) << n;
    }
  }
}

TEST(ReferenceTest, RmsNormOfZerosIsZero) {
  const std::vector<float> zeros(20, 0.0f), ones(20, 1.0f);
  std::vector<float> y(20, 5.0f);
  kReferenceKernels.rms_norm(zeros.data(), 20, ones.data(), 1e-6f, y.data());
  EXPECT_EQ(y, zeros);
}

TEST(ReferenceTest, RopeRotatesThePairsOfItsLayout) {
  const size_t dim = 8;
  const std::vector<float> x = RandomFloats(2 * dim, 5);
  std::vector<float> cos(dim / 2), sin(dim / 2);
  for (size_t i = 0; i < dim / 2; ++i) {
    cos[i] = std::cos(0.3f * static_cast<float>(i + 1));
    sin[i] = std::sin(0.3f * static_cast<float>(i + 1));
  }
  for (bool interleaved : {false, true}) {
    std::vector<float> y = x;
    auto rope = interleaved ? kReferenceKernels.rope_interleaved : kReferenceKernels.rope_halves;
    rope(y.data(), 2, dim, cos.data(), sin.data());
    for (size_t h = 0; h < 2; ++h) {
      for (size_t i = 0; i < dim / 2; ++i) {
        const size_t a = h * dim + (interleaved ? 2 * i : i);
        const size_t b = h * dim + (interleaved ? 2 * i + 1 : i + dim / 2);
        const double size = std::abs(x[a]) + std::abs(x[b]);
        EXPECT_NEAR(y[a], static_cast<double>(x[a]) * cos[i] - static_cast<double>(x[b]) * sin[i],
                    2 * kU * size);
        EXPECT_NEAR(y[b], static_cast<double>(x[b]) * cos[i] + static_cast<double>(x[a]) * sin[i],
                    2 * kU * size);
      }
    }
  }
}

// exp's argument carries a relative error of 4u at most (GELU), which exp turns into 4u·|2u(x)|;
// the quotient hides it wherever exp is small. Beyond that, a handful of roundings.
TEST(ReferenceTest, ActivationsWithinTheirBounds) {
  for (float x = -110.0f; x <= 110.0f; x += 0.037f) {
    float silu = x, gelu = x;
    const float up = 1.0f;
    const double flushed = std::abs(x) * 0x1p-128;  // where exp overflows
    kReferenceKernels.silu_mul(&silu, &up, 1);
    kReferenceKernels.gelu_mul(&gelu, &up, 1);
    const double exact_silu = x / (1 + std::exp(-static_cast<double>(x)));
    EXPECT_NEAR(silu, exact_silu, 5 * kU * std::abs(exact_silu) + flushed) << x;
    const double inner = 0.7978845608028654 * (x + 0.044715 * std::pow(static_cast<double>(x), 3));
    const double exact_gelu = x / (1 + std::exp(-2 * inner));
    EXPECT_NEAR(gelu, exact_gelu, (6 + 12 * std::abs(inner)) * kU * std::abs(exact_gelu) + flushed)
        << x;
  }
}

TEST(ReferenceTest, ActivationsOfHugeInputsAreSafe) {
  for (auto kernel : {kReferenceKernels.silu_mul, kReferenceKernels.gelu_mul}) {
    float x[] = {1e30f, -1e30f, 3e38f, -3e38f, 200.0f, -200.0f, 0.0f, INFINITY, NAN};
    const float up[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    kernel(x, up, 9);
    const float want[] = {1e30f, -0.0f, 3e38f, -0.0f, 200.0f, -0.0f, 0.0f, INFINITY, NAN};
    EXPECT_TRUE(SameBits(x, want, 9));
  }
}

// The published reader (gguf-py) multiplies and adds in float, as we do: its values are ours bit
// for bit.
TEST(ReferenceTest, DequantizeEqualsGgufPy) {
  auto file = GgufFile::Open(testing::SourceDir() + "/tests/format/goldens/quants.gguf");
  ASSERT_OK(file);
  for (DType type : AllDTypes()) {
    const std::string name = GetDTypeInfo(type).name;
    auto stored = file->GetTensor("t." + name);
    auto expected = file->GetTensor("f." + name);
    ASSERT_OK(stored);
    ASSERT_OK(expected);
    ASSERT_EQ((*stored)->type, type);
    const size_t count = static_cast<size_t>((*stored)->shape[0] * (*stored)->shape[1]);
    ASSERT_GE(count, 2048u);
    std::vector<float> got(count), want(count);
    DequantizeRow(type, (*stored)->data.data(), count, got.data());
    ASSERT_EQ((*expected)->data.size(), count * sizeof(float));
    std::memcpy(want.data(), (*expected)->data.data(), count * sizeof(float));
    EXPECT_TRUE(SameBits(got, want)) << name;
  }
}

}  // namespace
}  // namespace pocketlm
