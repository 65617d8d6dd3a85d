// What StoreKey and StoreValue write: the bytes that kv_layout.h asks for and no others, within the error of
// each type.

#include "backend/cpu/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "attention_inputs.h"
#include "backend/cpu/kernels.h"
#include "kernel_inputs.h"
#include "kv_cache.h"

namespace pocketlm {
namespace {

using testing::kAllKvTypes;
using testing::KvCache;
using testing::KvTypeName;
using testing::RandomFloats;
using testing::StoredKey;
using testing::StoredScale;
using testing::StoredValue;

constexpr size_t kHeads = 3, kCapacity = 48;

// One head stored at a position, read back.
struct Stored {
  Stored(const KvCache& cache, bool is_key, size_t head, size_t position) {
    const KvLayer& kv = cache.layer();
    const KvType type = is_key ? kv.k_type : kv.v_type;
    const size_t plane = head * kv.capacity;
    const std::byte* codes_of = (is_key ? kv.k : kv.v) + plane * KvCodeBytes(type, kv.head_dim);
    const size_t group = KvGroup(kv.head_dim), groups = kv.head_dim / group;
    const uint16_t* scales_of = is_key ? kv.k_scales : kv.v_scales;
    for (size_t d = 0; d < kv.head_dim; ++d) {
      codes.push_back(is_key ? StoredKey(codes_of, type, kv.head_dim, position, d)
                             : StoredValue(codes_of, type, kv.head_dim, position, d));
    }
    for (size_t g = 0; KvIsQuantized(type) && g < groups; ++g)
      scales.push_back(
          HalfToFloat(StoredScale(scales_of + plane * groups, kv.head_dim, position, g)));
  }
  std::vector<double> codes;  // or values, of float types
  std::vector<float> scales;
};

Stored StoreAndRead(KvType type, bool is_key, const std::vector<float>& values, size_t position) {
  const KvCache cache(type, type, kCapacity, kHeads, values.size());
  std::vector<float> x = values;
  (is_key ? StoreKey : StoreValue)(kReferenceKernels, cache.layer(), 1, position, x.data());
  return Stored(cache, is_key, 1, position);
}

TEST(KvStoreTest, FloatTypesKeepTheValue) {
  for (size_t dim : {2, 10, 64, 100}) {
    const std::vector<float> x = RandomFloats(dim, 1);
    for (bool is_key : {true, false}) {
      for (size_t position : {0, 15, 16, 37}) {
        const Stored f32 = StoreAndRead(KvType::kF32, is_key, x, position);
        const Stored f16 = StoreAndRead(KvType::kF16, is_key, x, position);
        for (size_t d = 0; d < dim; ++d) {
          EXPECT_EQ(f32.codes[d], x[d]);
          EXPECT_EQ(f16.codes[d], HalfToFloat(FloatToHalf(x[d])));
        }
      }
    }
  }
}

// Half a step, and what the rounding of a subnormal scale to half costs at the ends.
TEST(KvStoreTest, Int8IsWithinHalfAStep) {
  for (size_t dim : {4, 12, 64, 80, 128, 256}) {
    for (float size : {1e-6f, 1e-4f, 1.0f, 1e3f, 1e6f}) {
      const std::vector<float> x = RandomFloats(dim, static_cast<uint32_t>(dim), size);
      for (bool is_key : {true, false}) {
        const Stored stored = StoreAndRead(KvType::kI8, is_key, x, 21);
        for (size_t d = 0; d < dim; ++d) {
          const double scale = stored.scales[d / KvGroup(dim)];
          EXPECT_LE(std::abs(x[d] - scale * stored.codes[d]), 0.5001 * scale + 127 * 0x1p-25)
              << dim << " of size " << size;
          EXPECT_LE(std::abs(stored.codes[d]), 127);
        }
      }
    }
  }
}

TEST(KvStoreTest, Int8ScaleIsTheLargestOver127) {
  std::vector<float> x(128, 0.0f);
  x[5] = -127.0f;
  x[6] = 63.5f;  // a tie: to the even code
  x[7] = 62.5f;
  x[64 + 9] = 12.7f;
  for (bool is_key : {true, false}) {
    const Stored stored = StoreAndRead(KvType::kI8, is_key, x, 3);
    EXPECT_EQ(stored.scales[0], 1.0f);
    EXPECT_EQ(stored.scales[1], HalfToFloat(FloatToHalf(12.7f / 127.0f)));
    EXPECT_EQ(stored.codes[5], -127);
    EXPECT_EQ(stored.codes[6], 64);
    EXPECT_EQ(stored.codes[7], 62);
    EXPECT_EQ(stored.codes[64 + 9], 127);
    EXPECT_EQ(std::count(stored.codes.begin(), stored.codes.end(), 0.0), 124);
  }
}

// The rotated group, its own inverse, so that a test can say what is to be stored.
std::vector<float> Rotated(std::vector<float> x) {
  kReferenceKernels.rotate_groups(x.data(), x.size(), KvGroup(x.size()));
  return x;
}

TEST(KvStoreTest, Int4IsWithinItsStep) {
  for (size_t dim : {8, 16, 32, 64, 128, 192}) {
    for (float size : {1e-4f, 1.0f, 1e3f}) {
      const std::vector<float> x = RandomFloats(dim, static_cast<uint32_t>(dim) + 1, size);
      const std::vector<float> rotated = Rotated(x);
      for (bool is_key : {true, false}) {
        const Stored stored = StoreAndRead(KvType::kI4, is_key, x, 40);
        for (size_t g = 0; g < dim; g += KvGroup(dim)) {
          const double scale = stored.scales[g / KvGroup(dim)];
          size_t largest = g;
          for (size_t d = g; d < g + KvGroup(dim); ++d) {
            // Codes end at -8 and 7: beyond 7.5 steps the error is the rest.
            const double steps = rotated[d] / scale;
            const double bound = std::max({0.5, steps - 7, -8 - steps});
            EXPECT_LE(std::abs(steps - stored.codes[d]), 1.0001 * bound + 1e-5) << dim;
            EXPECT_LE(bound, 1.01);
            if (std::abs(rotated[d]) > std::abs(rotated[largest])) largest = d;
          }
          EXPECT_EQ(stored.codes[largest], -8) << dim;
          EXPECT_NEAR(scale, rotated[largest] / -8.0, std::abs(scale) * 0x1p-10 + 0x1p-24);
        }
      }
    }
  }
}

TEST(KvStoreTest, Int4SignOfTheScale) {
  struct Case {
    float largest, other;
    float scale, largest_code, other_code;
  };
  // The value of largest magnitude gets -8; of two such values the negative one.
  for (const Case& c :
       {Case{-8, 3, 1, -8, 3}, Case{8, 3, -1, -8, -3}, Case{-8, 8, 1, -8, 7}, Case{8, -8, 1, 7, -8},
        Case{-8, 2.5f, 1, -8, 2}, Case{-8, 3.5f, 1, -8, 4}}) {
    std::vector<float> wanted(16, 0.0f);
    wanted[2] = c.largest;
    wanted[11] = c.other;
    for (bool is_key : {true, false}) {
      const Stored stored = StoreAndRead(KvType::kI4, is_key, Rotated(wanted), 17);
      EXPECT_EQ(stored.scales[0], c.scale);
      EXPECT_EQ(stored.codes[2], c.largest_code);
      EXPECT_EQ(stored.codes[11], c.other_code);
      EXPECT_EQ(stored.codes[3], 0);
    }
  }
}

TEST(KvStoreTest, SpecialGroups) {
  for (KvType type : {KvType::kI8, KvType::kI4}) {
    for (bool is_key : {true, false}) {
      for (float special : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> x = RandomFloats(128, 1);
        x[70] = special;
        const Stored stored = StoreAndRead(type, is_key, x, 9);
        EXPECT_FALSE(std::isnan(stored.scales[0])) << KvTypeName(type);
        EXPECT_TRUE(std::isnan(stored.scales[1])) << KvTypeName(type);
        EXPECT_TRUE(std::all_of(stored.codes.begin() + 64, stored.codes.end(),
                                [](double code) { return code == 0; }));
      }
      for (float tiny : {0.0f, -0.0f, 1e-12f, 1e-40f}) {
        const Stored stored = StoreAndRead(type, is_key, std::vector<float>(64, tiny), 9);
        EXPECT_EQ(stored.scales[0], 0.0f) << KvTypeName(type) << " " << tiny;
        EXPECT_TRUE(std::all_of(stored.codes.begin(), stored.codes.end(),
                                [](double code) { return code == 0; }))
            << KvTypeName(type) << " " << tiny;
      }
      // So large that the scale is the largest half.
      const Stored stored = StoreAndRead(type, is_key, std::vector<float>(64, 1e30f), 9);
      EXPECT_EQ(std::abs(stored.scales[0]), 65504.0f) << KvTypeName(type);
    }
  }
}

// Counts which bytes change between two fillings: those of the position, all of them and no others.
TEST(KvStoreTest, TouchesOnlyItsPosition) {
  for (KvType type : kAllKvTypes) {
    for (size_t dim : {8, 64, 128}) {
      for (size_t position : {0, 5, 16, 47}) {
        const KvCache cache(type, type, kCapacity, kHeads, dim);
        const KvLayer& kv = cache.layer();
        std::set<const void*> written;
        const auto mark = [&](const void* plane, size_t at, size_t bytes) {
          for (size_t i = 0; i < bytes; ++i)
            written.insert(static_cast<const std::byte*>(plane) + at + i);
        };
        const size_t bytes = KvCodeBytes(type, dim), first = 2 * kv.capacity;
        const size_t unit = type == KvType::kF16 ? 2 : 4;
        for (size_t i = 0; i < bytes / unit; ++i)
          mark(kv.k, (first + position / 16 * 16) * bytes + (i * 16 + position % 16) * unit, unit);
        mark(kv.v, (first + position) * bytes, bytes);
        const size_t groups = dim / KvGroup(dim);
        for (size_t g = 0; KvIsQuantized(type) && g < groups; ++g) {
          const size_t at = (first + position / 16 * 16) * groups + g * 16 + position % 16;
          mark(kv.k_scales, 2 * at, 2);
          mark(kv.v_scales, 2 * at, 2);
        }
        // No stored byte of ones is 0xFF, the filling.
        std::vector<float> k(dim, 1.0f), v(dim, 1.0f);
        StoreKey(kReferenceKernels, kv, 2, position, k.data());
        StoreValue(kReferenceKernels, kv, 2, position, v.data());
        size_t changed = 0;
        const auto check = [&](const void* plane, size_t size) {
          const auto* at = static_cast<const std::byte*>(plane);
          for (size_t i = 0; i < size; ++i) {
            const bool differs = at[i] != std::byte{0xFF};
            changed += differs;
            ASSERT_TRUE(!differs || written.count(at + i)) << KvTypeName(type) << " byte " << i;
          }
        };
        check(kv.k, kHeads * kv.capacity * bytes);
        check(kv.v, kHeads * kv.capacity * bytes);
        check(kv.k_scales, kHeads * kv.capacity * KvScaleBytes(type, dim));
        check(kv.v_scales, kHeads * kv.capacity * KvScaleBytes(type, dim));
        EXPECT_GE(changed, type == KvType::kI8 ? bytes : written.size()) << KvTypeName(type);
      }
    }
  }
}

TEST(KvLayoutTest, SizesAndWhatFits) {
  EXPECT_EQ(KvCodeBytes(KvType::kF32, 64) + KvScaleBytes(KvType::kF32, 64), 256u);
  EXPECT_EQ(KvCodeBytes(KvType::kF16, 64) + KvScaleBytes(KvType::kF16, 64), 128u);
  EXPECT_EQ(KvCodeBytes(KvType::kI8, 128) + KvScaleBytes(KvType::kI8, 128), 132u);
  EXPECT_EQ(KvCodeBytes(KvType::kI4, 128) + KvScaleBytes(KvType::kI4, 128), 68u);
  EXPECT_EQ(KvScaleBytes(KvType::kI8, 80), 2u);
  EXPECT_TRUE(KvTypeFits(KvType::kF16, 2));
  EXPECT_TRUE(KvTypeFits(KvType::kI8, 4));
  EXPECT_FALSE(KvTypeFits(KvType::kI8, 6));
  for (size_t dim : {8, 16, 32, 64, 128, 192, 256})
    EXPECT_TRUE(KvTypeFits(KvType::kI4, dim)) << dim;
  for (size_t dim : {2, 4, 12, 48, 80, 96}) EXPECT_FALSE(KvTypeFits(KvType::kI4, dim)) << dim;
}

}  // namespace
}  // namespace pocketlm
