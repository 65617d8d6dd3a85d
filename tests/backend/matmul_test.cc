// Matrix products of the CPU backend: the same bits for any instruction set, number of threads and split of the
// rows; several outputs at once, normalized input, accumulation, fused gates, float activations.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "backend/backend.h"
#include "backend_inputs.h"
#include "kernel_inputs.h"
#include "packed_inputs.h"

namespace pocketlm {
namespace {

using testing::AllDTypes;
using testing::AllPackedLayouts;
using testing::Describe;
using testing::ForEachBackend;
using testing::MakeBackend;
using testing::RandomFloats;
using testing::ReferenceBackend;
using testing::SameBits;
using testing::TestMatrix;

constexpr PackedLayout kZero4{PackedType::kU4, OffsetType::kZero4, 64};
constexpr PackedLayout kNone{PackedType::kU4, OffsetType::kNone, 64};
constexpr PackedLayout kMin{PackedType::kU4, OffsetType::kMinF16, 128};
constexpr PackedLayout kInt8{PackedType::kI8, OffsetType::kNone, 32};

struct Product {
  std::vector<const TestMatrix*> weights;
  std::vector<float> x;  // [rows, cols]
  size_t rows = 0;
  std::vector<float> norm;  // [cols], or empty
  bool accumulate = false;

  size_t cols() const { return weights.front()->matrix().cols; }
};

// All outputs, one after the other, computed in calls of at most `split` rows.
std::vector<float> Multiply(Backend& backend, const Product& product, size_t split) {
  std::vector<std::vector<float>> y;
  for (const TestMatrix* w : product.weights)
    y.push_back(RandomFloats(product.rows * w->matrix().rows, 99));
  for (size_t r = 0; r < product.rows; r += split) {
    MatMulInput input;
    input.x = product.x.data() + r * product.cols();
    input.rows = std::min(split, product.rows - r);
    input.norm_weight = product.norm.empty() ? nullptr : product.norm.data();
    input.norm_eps = 1e-5f;
    std::vector<MatMulOutput> outputs;
    for (size_t i = 0; i < y.size(); ++i) {
      const WeightMatrix& w = product.weights[i]->matrix();
      outputs.push_back({&w, y[i].data() + r * w.rows});
    }
    backend.MatMul(input, outputs, product.accumulate);
  }
  std::vector<float> all;
  for (const auto& output : y) all.insert(all.end(), output.begin(), output.end());
  return all;
}

BackendLimits LimitsOf(const Product& product) {
  return {.rows = product.rows, .cols = product.cols()};
}

// Rows one at a time on one thread of the reference, against whole calls of every backend.
void ExpectSameEverywhere(const Product& product, const std::vector<int>& threads,
                          const std::vector<size_t>& splits, const std::string& what,
                          bool float_activations = false) {
  const std::vector<float> want =
      Multiply(*ReferenceBackend(LimitsOf(product), float_activations), product, 1);
  ForEachBackend(
      LimitsOf(product), threads,
      [&](Backend& backend, const std::string& name) {
        for (size_t split : splits) {
          EXPECT_TRUE(SameBits(Multiply(backend, product, split), want))
              << what << ", " << name << ", split " << split;
        }
      },
      float_activations);
}

TEST(MatMulTest, PlainWeights) {
  for (DType type : AllDTypes()) {
    const TestMatrix w(type, 70, 768, 1);
    ExpectSameEverywhere({{&w}, RandomFloats(64 * 768, 2), 64, {}, false}, {1, 3}, {1, 7, 64},
                         GetDTypeInfo(type).name);
  }
}

TEST(MatMulTest, PackedWeights) {
  for (const PackedLayout& layout : AllPackedLayouts()) {
    const TestMatrix w(layout, 141, 384, 3);
    ExpectSameEverywhere({{&w}, RandomFloats(40 * 384, 4), 40, {}, false}, {1, 2, 3, 4},
                         {1, 2, 7, 40}, Describe(layout));
  }
}

// Plain and packed weights with the same and with other groups, of sizes that threads share unevenly.
TEST(MatMulTest, SeveralOutputsNormalizedAndAccumulated) {
  const size_t cols = 768, rows = 23;
  const TestMatrix weights[] = {
      TestMatrix(kZero4, 200, cols, 5),     TestMatrix(kNone, 33, cols, 6),
      TestMatrix(DType::kF16, 17, cols, 7), TestMatrix(kInt8, 9, cols, 8),
      TestMatrix(kMin, 64, cols, 9),        TestMatrix(kMin, 1, cols, 10)};
  Product product;
  for (const TestMatrix& w : weights) product.weights.push_back(&w);
  product.rows = rows;
  product.x = RandomFloats(rows * cols, 11, 3.0f);
  for (bool normalize : {false, true}) {
    product.norm = normalize ? RandomFloats(cols, 12) : std::vector<float>();
    for (bool accumulate : {false, true}) {
      product.accumulate = accumulate;
      ExpectSameEverywhere(product, {1, 2, 3, 4}, {1, 5, rows}, "mixed outputs");
    }
  }
}

// What several outputs give together, each gives alone; what is accumulated is the product added.
TEST(MatMulTest, OutputsAreIndependentProducts) {
  const size_t cols = 256, rows = 5;
  const TestMatrix a(kZero4, 50, cols, 13), b(DType::kQ8_0, 20, cols, 14), c(kMin, 31, cols, 15);
  const Product all{{&a, &b, &c}, RandomFloats(rows * cols, 16), rows, {}, false};
  const auto backend = ReferenceBackend(LimitsOf(all));
  const std::vector<float> together = Multiply(*backend, all, rows);
  std::vector<float> alone, accumulated;
  for (const TestMatrix* w : all.weights) {
    const std::vector<float> y = Multiply(*backend, {{w}, all.x, rows, {}, false}, rows);
    const std::vector<float> sum = Multiply(*backend, {{w}, all.x, rows, {}, true}, rows);
    const std::vector<float> before = RandomFloats(y.size(), 99);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(sum[i], before[i] + y[i]);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  EXPECT_TRUE(SameBits(together, alone));
}

TEST(MatMulTest, NormalizesAsRmsNorm) {
  const size_t cols = 512, rows = 3;
  const TestMatrix w(kZero4, 40, cols, 17);
  Product product{{&w}, RandomFloats(rows * cols, 18, 5.0f), rows, RandomFloats(cols, 19), false};
  const auto backend = ReferenceBackend(LimitsOf(product));
  const std::vector<float> fused = Multiply(*backend, product, rows);
  backend->RmsNorm(product.x.data(), rows, cols, product.norm.data(), 1e-5f, product.x.data());
  product.norm.clear();
  EXPECT_TRUE(SameBits(fused, Multiply(*backend, product, rows)));
}

// Rows so long that two do not fit the first-level cache, and odd shapes around them.
TEST(MatMulTest, OddShapes) {
  for (auto [out, in] :
       {std::pair<size_t, size_t>{3, 40000}, {1, 1}, {5, 32768}, {1, 300}, {2, 32769}, {301, 17}}) {
    const TestMatrix w(DType::kF16, out, in, 20);
    ExpectSameEverywhere({{&w}, RandomFloats(3 * in, 21), 3, {}, false}, {1, 3}, {1, 3},
                         std::to_string(out) + " x " + std::to_string(in));
  }
  for (auto [out, in] : {std::pair<size_t, size_t>{1, 64}, {3, 32768}, {1500, 64}, {17, 4864}}) {
    const TestMatrix w(kZero4, out, in, 22);
    ExpectSameEverywhere({{&w}, RandomFloats(3 * in, 23), 3, {}, false}, {1, 3}, {1, 3},
                         "packed " + std::to_string(out) + " x " + std::to_string(in));
  }
}

// With float activations packed weights are what their rows are as floats.
TEST(MatMulTest, FloatActivations) {
  const size_t cols = 256, rows = 9;
  for (const PackedLayout& layout : {kZero4, kNone, kMin, kInt8}) {
    const TestMatrix packed(layout, 150, cols, 24);
    const Product product{{&packed}, RandomFloats(rows * cols, 25), rows, {}, false};
    ExpectSameEverywhere(product, {1, 2, 4}, {1, 4, rows}, Describe(layout), true);

    const std::vector<float> floats = packed.Floats();
    WeightMatrix plain;
    plain.rows = 150;
    plain.cols = cols;
    plain.data = reinterpret_cast<const std::byte*>(floats.data());
    std::vector<float> want(rows * 150);
    const MatMulOutput output{&plain, want.data()};
    const auto backend = ReferenceBackend(LimitsOf(product), true);
    backend->MatMul({product.x.data(), rows, nullptr, 0.0f}, {&output, 1}, false);
    EXPECT_TRUE(SameBits(Multiply(*backend, product, rows), want)) << Describe(layout);
    EXPECT_FALSE(SameBits(Multiply(*ReferenceBackend(LimitsOf(product)), product, rows), want))
        << "int8 activations round, these must not";
  }
}

struct Gate {
  const char* name;
  TestMatrix gate, up;
};

std::deque<Gate> Gates() {
  std::deque<Gate> out;
  const size_t cols = 256;
  const auto add = [&](const char* name, const auto& gate, const auto& up, size_t rows) {
    out.push_back(Gate{name, TestMatrix(gate, rows, cols, 26), TestMatrix(up, rows, cols, 27)});
  };
  add("same groups", kZero4, kNone, 203);
  add("many outputs", kZero4, kZero4, 1501);
  add("other groups", kZero4, kMin, 100);
  add("plain", DType::kQ8_0, DType::kF16, 100);
  add("packed and plain", kInt8, DType::kBF16, 70);
  return out;
}

TEST(GatedMatMulTest, IsActivationOfTwoProducts) {
  const size_t cols = 256, rows = 13;
  const std::vector<float> x = RandomFloats(rows * cols, 28, 2.0f), norm = RandomFloats(cols, 29);
  for (const Gate& g : Gates()) {
    const size_t out = g.gate.matrix().rows;
    const BackendLimits limits{.rows = rows, .cols = std::max(cols, out)};
    for (Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
      const Product product{{&g.gate, &g.up}, x, rows, norm, false};
      std::vector<float> want = Multiply(*ReferenceBackend(limits), product, 1);
      const auto kernel =
          activation == Activation::kSilu ? kReferenceKernels.silu_mul : kReferenceKernels.gelu_mul;
      kernel(want.data(), want.data() + rows * out, rows * out);
      want.resize(rows * out);
      ForEachBackend(limits, {1, 2, 3, 4}, [&](Backend& backend, const std::string& name) {
        for (size_t split : {size_t{1}, size_t{5}, rows}) {
          std::vector<float> y(rows * out, -1.0f);
          for (size_t r = 0; r < rows; r += split) {
            const MatMulInput input{x.data() + r * cols, std::min(split, rows - r), norm.data(),
                                    1e-5f};
            backend.GatedMatMul(input, g.gate.matrix(), g.up.matrix(), activation,
                                y.data() + r * out);
          }
          EXPECT_TRUE(SameBits(y, want)) << g.name << ", " << name << ", split " << split;
        }
      });
    }
  }
}

// A row's result must not change with the company it is in, even where that is not finite.
TEST(MatMulTest, NanStaysInItsRow) {
  const size_t cols = 128, rows = 20;
  const TestMatrix w(kZero4, 40, cols, 30);
  Product product{{&w}, RandomFloats(rows * cols, 31), rows, {}, false};
  const std::vector<float> clean = Multiply(*ReferenceBackend(LimitsOf(product)), product, rows);
  product.x[7 * cols + 3] = NAN;
  product.x[12 * cols + 100] = INFINITY;
  ForEachBackend(LimitsOf(product), {2}, [&](Backend& backend, const std::string& name) {
    const std::vector<float> y = Multiply(backend, product, rows);
    for (size_t r = 0; r < rows; ++r) {
      if (r == 7 || r == 12) {
        EXPECT_TRUE(std::isnan(y[r * 40])) << name;
      } else {
        EXPECT_TRUE(SameBits(y.data() + r * 40, clean.data() + r * 40, 40)) << name << " " << r;
      }
    }
  });
}

}  // namespace
}  // namespace pocketlm
