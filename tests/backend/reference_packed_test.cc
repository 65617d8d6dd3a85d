// The reference kernels of packed weights and of attention against textbook formulas in double, with bounds that
// follow from the arithmetic. u = 2^-24 is the largest relative error of one float operation.

#include <gtest/gtest.h>

#include <algorithm>

#include "attention_inputs.h"
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "kernel_inputs.h"
#include "kv_cache.h"
#include "packed_inputs.h"

namespace pocketlm {
namespace {

using testing::AllPackedLayouts;
using testing::AttendCase;
using testing::AttendInput;
using testing::Describe;
using testing::GuardedState;
using testing::kAllKvTypes;
using testing::PackedWeights;
using testing::QuantizedInput;
using testing::RandomFloats;
using testing::SameBits;

constexpr double kU = 0x1p-24;

double LoadHalf(const std::byte* plane, size_t index) {
  return testing::LoadAs<uint16_t>(plane + 2 * index);
}

// A weight taken apart by the bytes that packed_layout.h describes.
struct Weight {
  Weight(const PackedMatrix& w, size_t row, size_t col) {
    const size_t size = w.layout.group_size, r = row % 8, i = col % size;
    const size_t index = row / 8 * (w.cols / size) + col / size;
    scale = LoadHalf(w.scales, index * 8 + r);
    if (w.layout.type == PackedType::kI8) {
      code = static_cast<int8_t>(w.codes[index * 8 * size + i / 8 * 64 + 8 * r + i % 8]);
      return;
    }
    const auto byte =
        static_cast<unsigned>(w.codes[index * 4 * size + i / 16 * 64 + 8 * r + i % 8]);
    code = static_cast<int>(i % 16 < 8 ? byte & 15 : byte >> 4);
    double exact = -8 * scale;
    if (w.layout.offset == OffsetType::kMinF16) exact = LoadHalf(w.offsets, index * 8 + r);
    if (w.layout.offset == OffsetType::kZero4) {
      uint32_t word = 0;
      for (size_t b = 0; b < 4; ++b)
        word |= static_cast<uint32_t>(w.offsets[index * 4 + b]) << (8 * b);
      exact = -scale * (word >> (4 * r) & 15);
    }
    // Exact in float: 11 bits of scale times 4 of code.
    min = HalfToFloat(FloatToHalf(static_cast<float>(exact)));
  }

  int code;
  double scale, min = 0;
};

// Scale · code and the sum are exact in double, so one rounding to float is all that remains.
TEST(UnpackRowTest, IsTheWrittenFormula) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const size_t rows = 19, cols = 3 * layout.group_size;
    const PackedWeights w(layout, rows, cols, 1);
    std::vector<float> got(cols);
    for (size_t row = 0; row < rows; ++row) {
      UnpackRow(w.matrix(), row, got.data());
      for (size_t col = 0; col < cols; ++col) {
        const Weight weight(w.matrix(), row, col);
        ASSERT_EQ(got[col], static_cast<float>(weight.scale * weight.code + weight.min))
            << Describe(layout) << " " << row << ", " << col;
      }
    }
  }
}

// One tile written out by hand.
TEST(UnpackRowTest, ReadsTheBytesOfOneTile) {
  alignas(64) std::byte codes[128] = {}, scales[16] = {}, offsets[4] = {};
  codes[8 * 3 + 2] = std::byte{0x5A};       // row 3: input 2 is 10, input 10 is 5
  codes[64 + 8 * 3 + 7] = std::byte{0xF0};  // input 23 is 0, input 31 is 15
  scales[2 * 3 + 1] = std::byte{0x40};      // 0x4000 = 2
  offsets[1] = std::byte{0x30};             // row 3: zero point 3
  PackedMatrix w;
  w.layout = {PackedType::kU4, OffsetType::kZero4, 32};
  w.rows = 8;
  w.cols = 32;
  w.codes = codes;
  w.scales = scales;
  w.offsets = offsets;
  std::vector<float> row(32), want(32, -6.0f);
  want[2] = 14.0f;
  want[10] = 4.0f;
  want[31] = 24.0f;
  UnpackRow(w, 3, row.data());
  EXPECT_EQ(row, want);
  UnpackRow(w, 2, row.data());
  EXPECT_EQ(row, std::vector<float>(32, 0.0f));
}

// x · (127 / a) is off by 2 roundings of at most 127, scale · code by one more of a / 127.
TEST(QuantizeRowTest, IsWithinHalfAStep) {
  for (size_t group : {4, 32, 64, 128, 256}) {
    for (float size : {1e-25f, 1e-3f, 1.0f, 1e30f}) {
      const size_t groups = 5, cols = groups * group;
      const std::vector<float> x = RandomFloats(cols, static_cast<uint32_t>(group), size);
      std::vector<int8_t> codes(cols);
      std::vector<float> scales(groups), sums(groups);
      std::vector<int32_t> code_sums(groups);
      kReferenceKernels.quantize_row(x.data(), cols, group, codes.data(), scales.data(),
                                     sums.data(), code_sums.data());
      for (size_t g = 0; g < groups; ++g) {
        double max = 0;
        int sum = 0, largest = 0;
        for (size_t i = g * group; i < (g + 1) * group; ++i) {
          max = std::max(max, std::abs(static_cast<double>(x[i])));
          sum += codes[i];
          largest = std::max(largest, std::abs(int{codes[i]}));
          EXPECT_LE(std::abs(x[i] - static_cast<double>(scales[g]) * codes[i]),
                    scales[g] * (0.5 + 127 * 4 * kU));
        }
        EXPECT_EQ(largest, 127);
        EXPECT_EQ(code_sums[g], sum);
        EXPECT_NEAR(scales[g], max / 127, max / 127 * kU);
        EXPECT_NEAR(sums[g], static_cast<double>(scales[g]) * sum, std::abs(sums[g]) * 2 * kU);
      }
    }
  }
}

TEST(QuantizeRowTest, SpecialGroups) {
  std::vector<float> x(6 * 4, 1.0f);
  const float specials[] = {NAN, INFINITY, -INFINITY};
  for (size_t g = 0; g < 3; ++g) x[g * 4 + g] = specials[g];
  std::fill_n(x.begin() + 12, 4, -0.0f);
  std::fill_n(x.begin() + 16, 4, 0x1.fffffep-101f);
  std::fill_n(x.begin() + 20, 4, -0x1p-100f);
  std::vector<int8_t> codes(24, 1);
  std::vector<float> scales(6), sums(6);
  std::vector<int32_t> code_sums(6, 1);
  kReferenceKernels.quantize_row(x.data(), 24, 4, codes.data(), scales.data(), sums.data(),
                                 code_sums.data());
  const float want[] = {NAN, NAN, NAN, 0.0f, 0.0f, 0x1p-100f / 127.0f};
  EXPECT_TRUE(SameBits(scales.data(), want, 6));
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(codes[i], i < 20 ? 0 : -127) << i;
  EXPECT_EQ(code_sums, (std::vector<int32_t>{0, 0, 0, 0, 0, -508}));
  EXPECT_TRUE(std::isnan(sums[0]) && std::isnan(sums[1]) && std::isnan(sums[2]));
  EXPECT_EQ(sums[3], 0.0f);
}

TEST(QuantizeRowTest, TiesGoToTheEvenCode) {
  std::vector<float> x = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, 126.5f};
  int8_t codes[8];
  float scale, sum;
  int32_t code_sum;
  kReferenceKernels.quantize_row(x.data(), 8, 8, codes, &scale, &sum, &code_sum);
  EXPECT_EQ(std::vector<int>(codes, codes + 8), (std::vector<int>{127, 0, 2, 2, 0, -2, -126, 126}));
  EXPECT_EQ(scale, 1.0f);
}

// Per group: t one rounding, x_sum one, each sum one per group, their addition one.
TEST(PackedProductTest, WithinItsBound) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const size_t size = layout.group_size, groups = 7, cols = groups * size, rows = 21, x_rows = 3;
    const PackedWeights weights(layout, rows, cols, 2);
    const QuantizedInput input(x_rows, cols, size, 3);
    const QuantizedRows x = input.rows(0, cols, size);
    std::vector<float> y(x_rows * rows);
    PackedProductArgs args;
    args.w = &weights.matrix();
    args.tile_end = 3;
    args.x = x;
    args.x_rows = x_rows;
    args.y = y.data();
    args.y_stride = rows;
    kReferenceKernels.packed_gemm(args);
    for (size_t r = 0; r < x_rows; ++r) {
      for (size_t n = 0; n < rows; ++n) {
        double exact = 0, magnitude = 0;
        for (size_t g = 0; g < groups; ++g) {
          double dot = 0, sum = 0, min = 0, scale = 0;
          for (size_t i = g * size; i < (g + 1) * size; ++i) {
            const Weight w(weights.matrix(), n, i);
            scale = w.scale;
            min = w.min;
            dot += w.code * x.codes[r * cols + i];
            sum += x.codes[r * cols + i];
          }
          const double x_scale = x.scales[r * groups + g];
          exact += scale * x_scale * dot + min * x_scale * sum;
          magnitude += std::abs(scale * x_scale * dot) + std::abs(min * x_scale * sum);
        }
        EXPECT_NEAR(y[r * rows + n], exact, 1.01 * (groups + 2) * kU * magnitude)
            << Describe(layout);
      }
    }
  }
}

TEST(PackedProductTest, WritesItsOutputsOnly) {
  const PackedLayout layout{PackedType::kU4, OffsetType::kMinF16, 32};
  const PackedWeights weights(layout, 21, 64, 4);
  const QuantizedInput input(3, 64, 32, 5);
  const std::vector<float> before = RandomFloats(3 * 17, 6);
  PackedProductArgs args;
  args.w = &weights.matrix();
  args.tile_begin = 1;
  args.tile_end = 3;  // rows 8 … 20: 13 outputs
  args.x = input.rows(0, 64, 32);
  args.x_rows = 3;
  args.y_stride = 17;
  for (bool accumulate : {false, true}) {
    std::vector<float> y = before, alone(3 * 21);
    args.y = y.data();
    args.accumulate = accumulate;
    kReferenceKernels.packed_gemm(args);
    PackedProductArgs all = args;
    all.tile_begin = 0;
    all.y = alone.data();
    all.y_stride = 21;
    all.accumulate = false;
    kReferenceKernels.packed_gemm(all);
    for (size_t i = 0; i < y.size(); ++i) {
      const float product = i % 17 < 13 ? alone[i / 17 * 21 + 8 + i % 17] : 0.0f;
      const float want = i % 17 >= 13 ? before[i] : accumulate ? before[i] + product : product;
      EXPECT_EQ(y[i], want) << i;
    }
  }
}

// Each butterfly rounds once, the factor and the multiplication once each.
TEST(RotateTest, IsOrthonormalAndItsOwnInverse) {
  for (size_t group : {2, 8, 16, 32, 64, 256}) {
    const std::vector<float> x = RandomFloats(3 * group, static_cast<uint32_t>(group));
    std::vector<float> y = x;
    kReferenceKernels.rotate_groups(y.data(), y.size(), group);
    std::vector<float> back = y;
    kReferenceKernels.rotate_groups(back.data(), back.size(), group);
    const double steps = std::log2(static_cast<double>(group)) + 2;
    for (size_t g = 0; g < 3; ++g) {
      double sum = 0, squares = 0, rotated_squares = 0;
      for (size_t i = g * group; i < (g + 1) * group; ++i) {
        sum += std::abs(x[i]);
        squares += static_cast<double>(x[i]) * x[i];
        rotated_squares += static_cast<double>(y[i]) * y[i];
      }
      for (size_t i = g * group; i < (g + 1) * group; ++i)
        EXPECT_NEAR(back[i], x[i], 2.02 * steps * kU * sum);
      EXPECT_NEAR(rotated_squares, squares, 2.1 * steps * kU * sum * std::sqrt(squares));
    }
  }
}

// Entry (i, j) of Sylvester's Hadamard matrix is -1 to the number of ones that i and j share.
TEST(RotateTest, IsTheHadamardMatrix) {
  const size_t group = 16;
  for (size_t j = 0; j < group; ++j) {
    std::vector<float> unit(group, 0.0f);
    unit[j] = 4.0f;
    kReferenceKernels.rotate_groups(unit.data(), group, group);
    for (size_t i = 0; i < group; ++i)
      EXPECT_EQ(unit[i], std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f) << i << ", " << j;
  }
}

// The softmax of a block in double, from what is stored.
struct ExactAttention {
  ExactAttention(const AttendBlockArgs& a, size_t head) : out(a.head_dim), magnitude(a.head_dim) {
    const size_t dim = a.head_dim, group = KvGroup(dim), groups = dim / group;
    std::vector<double> scores;
    for (size_t n = a.begin; n < a.end; ++n) {
      double score = 0, absolute = 0;
      for (size_t d = 0; d < dim; ++d) {
        const double key = testing::StoredKey(a.k, a.k_type, dim, n, d);
        const size_t g = d / group;
        const double product =
            KvIsQuantized(a.k_type)
                ? a.q_codes[head * dim + d] * key *
                      static_cast<double>(a.q_scales[head * groups + g]) *
                      static_cast<double>(HalfToFloat(testing::StoredScale(a.k_scales, dim, n, g)))
                : a.q[head * dim + d] * key;
        score += product;
        absolute += std::abs(product);
      }
      scores.push_back(score);
      max = std::max(max, score);
      // A rounding for each of dim products, or two for each group; then score - max.
      error = std::max(error, static_cast<double>(dim + 2) * kU * absolute);
    }
    for (size_t n = a.begin; n < a.end; ++n) {
      const double p = std::exp(scores[n - a.begin] - max);
      error = std::max(error, kU * std::abs(scores[n - a.begin] - max));
      sum += p;
      for (size_t d = 0; d < dim; ++d) {
        double value = testing::StoredValue(a.v, a.v_type, dim, n, d);
        if (KvIsQuantized(a.v_type))
          value *=
              static_cast<double>(HalfToFloat(testing::StoredScale(a.v_scales, dim, n, d / group)));
        out[d] += p * value;
        magnitude[d] += p * std::abs(value);
      }
    }
  }

  double max = -INFINITY, sum = 0, error = 0;
  std::vector<double> out, magnitude;
};

// A weight is off by the errors of its score and of the maximum, exp's 2u and the product with a scale; the sums
// add a rounding per position, or per 16 of them.
TEST(AttendBlockTest, WithinItsBound) {
  uint32_t seed = 0;
  for (KvType k_type : kAllKvTypes) {
    for (KvType v_type : kAllKvTypes) {
      for (size_t dim : {16, 64, 128}) {
        const AttendCase c = {k_type, v_type, 3, dim, 7, 231};
        const AttendInput input(c, ++seed);
        GuardedState state(3, dim);
        kReferenceKernels.attend_block(input.args(), state.state());
        for (size_t h = 0; h < 3; ++h) {
          const ExactAttention exact(input.args(), h);
          const double weight_error = 3 * exact.error + 4 * kU;
          EXPECT_NEAR(state.max(h), exact.max, exact.error);
          EXPECT_NEAR(state.sum(h), exact.sum, (weight_error + (224 / 16 + 5) * kU) * exact.sum);
          for (size_t d = 0; d < dim; ++d)
            EXPECT_NEAR(state.out(h)[d], exact.out[d],
                        (weight_error + 226 * kU) * exact.magnitude[d])
                << Describe(c);
        }
      }
    }
  }
}

TEST(AttendBlockTest, NanAndInfiniteScoresMakeTheHeadNan) {
  for (float special : {NAN, INFINITY}) {
    for (size_t at : {3, 10, 19}) {
      const AttendCase c = {KvType::kF32, KvType::kF32, 2, 8, 3, 20};
      const AttendInput input(c, 5);
      // Element 0 of the key at `at`; the first head has a positive weight for it, the second none.
      std::vector<float> keys(32 * 8);
      std::memcpy(keys.data(), input.args().k, keys.size() * 4);
      keys[at / 16 * 128 + at % 16] = special;
      std::vector<float> q = RandomFloats(16, 6);
      q[0] = 0.5f;
      for (size_t d = 8; d < 16; ++d) q[d] = 0.0f;
      AttendBlockArgs args = input.args();
      args.k = reinterpret_cast<const std::byte*>(keys.data());
      args.q = q.data();
      GuardedState state(2, 8);
      kReferenceKernels.attend_block(args, state.state());
      for (size_t h = 0; h < 2; ++h) {
        EXPECT_TRUE(std::isnan(state.sum(h)));
        for (size_t d = 0; d < 8; ++d) EXPECT_TRUE(std::isnan(state.out(h)[d]));
      }
    }
  }
}

// Blocks merged one after the other are the softmax over all of them.
TEST(MergeTest, IsTheSoftmaxOverAllBlocks) {
  const size_t dim = 32, heads = 2;
  std::vector<double> out(heads * dim), magnitude(heads * dim), max(heads, -INFINITY), sum(heads);
  double error = 0;
  GuardedState merged(heads, dim);
  std::vector<std::vector<ExactAttention>> parts;
  for (uint32_t b = 0; b < 4; ++b) {
    const AttendCase c = {KvType::kF16, KvType::kF16, heads, dim, b == 0 ? 9u : 0u, 60 + b};
    const AttendInput input(c, 20 + b);
    GuardedState block(heads, dim);
    kReferenceKernels.attend_block(input.args(), b == 0 ? merged.state() : block.state());
    if (b > 0) kReferenceKernels.merge_attention(block.state(), heads, dim, merged.state());
    parts.emplace_back();
    for (size_t h = 0; h < heads; ++h) {
      parts.back().emplace_back(input.args(), h);
      max[h] = std::max(max[h], parts.back()[h].max);
      error = std::max(error, parts.back()[h].error);
    }
  }
  for (const auto& part : parts) {
    for (size_t h = 0; h < heads; ++h) {
      const double factor = std::exp(part[h].max - max[h]);
      sum[h] += factor * part[h].sum;
      for (size_t d = 0; d < dim; ++d) {
        out[h * dim + d] += factor * part[h].out[d];
        magnitude[h * dim + d] += factor * part[h].magnitude[d];
      }
    }
  }
  // Per merge: the factor (its argument's rounding and exp's 2u), the product and the sum.
  const double relative = 6 * error + (64 + 3 * 12) * kU;
  for (size_t h = 0; h < heads; ++h) {
    EXPECT_NEAR(merged.sum(h), sum[h], relative * sum[h]);
    for (size_t d = 0; d < dim; ++d)
      EXPECT_NEAR(merged.out(h)[d], out[h * dim + d], relative * magnitude[h * dim + d]);
  }
}

}  // namespace
}  // namespace pocketlm
