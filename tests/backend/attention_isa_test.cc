// The attention kernels of every instruction set against the reference, bit for bit.

#include <gtest/gtest.h>

#include "attention_inputs.h"
#include "backend/cpu/kernels.h"
#include "isa_tables.h"
#include "kernel_inputs.h"

namespace pocketlm {
namespace {

using testing::AttendCase;
using testing::AttendInput;
using testing::Describe;
using testing::ExtremeMix;
using testing::Fill;
using testing::Guarded;
using testing::GuardedState;
using testing::kAllKvTypes;
using testing::RandomFloats;
using testing::SameBits;
using testing::SameState;

struct Range {
  size_t begin, end;
};

class AttentionIsaTest : public testing::IsaTest {
 protected:
  // Does nothing for head sizes that a type cannot hold.
  ::testing::AssertionResult Same(const AttendCase& c, uint32_t seed) {
    if (!KvTypeFits(c.k_type, c.head_dim) || !KvTypeFits(c.v_type, c.head_dim))
      return ::testing::AssertionSuccess();
    const AttendInput input(c, seed);
    GuardedState got(c.heads, c.head_dim), want(c.heads, c.head_dim);
    isa().attend_block(input.args(), got.state());
    reference().attend_block(input.args(), want.state());
    const auto result = SameState(got, want);
    if (result) return result;
    return ::testing::AssertionFailure() << Describe(c) << ": " << result.message();
  }

  template <typename Body>
  static void ForEachPair(const Body& body) {
    for (KvType k_type : kAllKvTypes) {
      for (KvType v_type : kAllKvTypes) body(k_type, v_type);
    }
  }
};
POCKETLM_INSTANTIATE_ISA(AttentionIsaTest);

TEST_P(AttentionIsaTest, EverySizeAndRange) {
  constexpr size_t kHeads[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 7};
  constexpr Range kRanges[] = {{0, 1},    {5, 6},     {0, 16},    {15, 17},   {3, 20},
                               {17, 31},  {0, 256},   {100, 230}, {255, 256}, {240, 256},
                               {32, 100}, {208, 225}, {1, 255}};
  constexpr std::byte kPoisons[] = {std::byte{0xFF}, std::byte{0x7C}, std::byte{0x80}};
  uint32_t seed = 0;
  ForEachPair([&](KvType k_type, KvType v_type) {
    for (size_t dim : {8, 12, 16, 20, 24, 32, 36, 40, 48, 64, 80, 96, 100, 112, 128, 192, 256}) {
      for (const Range& range : kRanges) {
        ++seed;
        const bool is_long = range.end - range.begin > 120;
        if (is_long && seed % (dim > 64 ? 4 : 2) != 0) continue;
        const AttendCase c = {k_type,      v_type,    kHeads[seed % 11], dim,
                              range.begin, range.end, Fill::kOrdinary,   kPoisons[seed % 3]};
        ASSERT_TRUE(Same(c, seed));
      }
    }
  });
}

TEST_P(AttentionIsaTest, EveryNumberOfHeads) {
  uint32_t seed = 1000;
  ForEachPair([&](KvType k_type, KvType v_type) {
    for (size_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14}) {
      for (size_t dim : {16, 64, 128}) {
        ASSERT_TRUE(Same({k_type, v_type, heads, dim, 3, 51}, ++seed));
        ASSERT_TRUE(Same({k_type, v_type, heads, dim, 16, 32}, ++seed));
      }
    }
  });
}

// Head sizes of no use to a model, which the float types take all the same.
TEST_P(AttentionIsaTest, OddHeadSizes) {
  uint32_t seed = 2000;
  ForEachPair([&](KvType k_type, KvType v_type) {
    for (size_t dim : {2, 4, 6, 10, 14, 18, 22, 28, 44, 60, 66, 68, 252}) {
      ASSERT_TRUE(Same({k_type, v_type, 3, dim, 2, 37}, ++seed));
      ASSERT_TRUE(Same({k_type, v_type, 1, dim, 0, 5}, ++seed));
    }
  });
}

TEST_P(AttentionIsaTest, ExtremeValuesAndScales) {
  uint32_t seed = 3000;
  ForEachPair([&](KvType k_type, KvType v_type) {
    for (size_t dim : {8, 16, 64, 128}) {
      for (size_t end : {1, 2, 3, 17, 40}) {
        for (size_t heads : {1, 4, 7}) {
          // A few positions only, for most heads become NaN.
          ASSERT_TRUE(Same({k_type, v_type, heads, dim, end / 2, end, Fill::kExtreme}, ++seed));
        }
      }
    }
  });
}

TEST_P(AttentionIsaTest, LargestCodesDoNotOverflow) {
  uint32_t seed = 4000;
  ForEachPair([&](KvType k_type, KvType v_type) {
    for (size_t dim : {8, 32, 64, 100, 128, 256})
      ASSERT_TRUE(Same({k_type, v_type, 7, dim, 1, 35, Fill::kWorst}, ++seed));
  });
}

// Scores so far apart that most weights are subnormal or zero.
TEST_P(AttentionIsaTest, WideScores) {
  for (size_t heads : {1, 7}) {
    const AttendCase c = {KvType::kF32, KvType::kF16, heads, 64, 0, 256};
    const AttendInput input(c, 5);
    Guarded<float> q(RandomFloats(heads * 64, 6, 6.0f));
    AttendBlockArgs args = input.args();
    args.q = q.data();
    GuardedState got(heads, 64), want(heads, 64);
    isa().attend_block(args, got.state());
    reference().attend_block(args, want.state());
    EXPECT_TRUE(SameState(got, want));
  }
}

// Head sizes at which a state begins anywhere, in memory of any alignment.
TEST_P(AttentionIsaTest, UnalignedQueriesAndStates) {
  ForEachPair([&](KvType k_type, KvType v_type) {
    const AttendCase c = {k_type, v_type, 3, 64, 0, 33};
    const AttendInput input(c, 7);
    GuardedState want(3, 64);
    reference().attend_block(input.args(), want.state());
    for (size_t shift : {1, 2, 3}) {
      AttendBlockArgs args = input.args();
      std::vector<float> q(3 * 64 + shift), scales(3 + shift), memory(6 + 3 * 64 + shift);
      std::vector<int8_t> codes(3 * 64 + shift);
      std::vector<int32_t> sums(3 + shift);
      const auto move = [&](auto*& from, size_t count, auto* to) {
        if (from == nullptr) return;
        std::copy_n(from, count, to + shift);
        from = to + shift;
      };
      move(args.q, 3 * 64, q.data());
      move(args.q_codes, 3 * 64, codes.data());
      move(args.q_scales, 3, scales.data());
      move(args.q_code_sums, 3, sums.data());
      float* at = memory.data() + shift;
      isa().attend_block(args, {at, at + 3, at + 6});
      EXPECT_TRUE(SameBits(at + 6, want.out(0), 3 * 64)) << Describe(c);
    }
  });
}

class MergeIsaTest : public testing::IsaTest {
 protected:
  static GuardedState State(size_t heads, size_t dim, uint32_t seed, bool extreme) {
    if (!extreme)
      return GuardedState(RandomFloats(heads, seed, 20.0f), RandomFloats(heads, seed + 1),
                          RandomFloats(heads * dim, seed + 2));
    return GuardedState(ExtremeMix(heads, seed), ExtremeMix(heads, seed + 1),
                        ExtremeMix(heads * dim, seed + 2));
  }
};
POCKETLM_INSTANTIATE_ISA(MergeIsaTest);

TEST_P(MergeIsaTest, EverySize) {
  uint32_t seed = 0;
  for (size_t dim : {1, 2, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 64, 80, 100, 128, 256}) {
    for (size_t heads : {1, 2, 3, 4, 5, 6, 7, 8, 9, 14}) {
      for (bool extreme : {false, true}) {
        seed += 10;
        GuardedState block = State(heads, dim, seed, extreme);
        GuardedState got = State(heads, dim, seed + 5, extreme);
        GuardedState want = State(heads, dim, seed + 5, extreme);
        isa().merge_attention(block.state(), heads, dim, got.state());
        reference().merge_attention(block.state(), heads, dim, want.state());
        ASSERT_TRUE(SameState(got, want)) << heads << " heads of " << dim;
      }
    }
  }
}

TEST_P(MergeIsaTest, EveryPairOfMaxima) {
  const std::vector<float>& values = testing::ExtremeFloats();
  const size_t dim = 16;
  for (float earlier : values) {
    GuardedState block(values, std::vector<float>(values.size(), 2.0f),
                       RandomFloats(values.size() * dim, 1));
    const auto into = [&] {
      return GuardedState(std::vector<float>(values.size(), earlier),
                          std::vector<float>(values.size(), 3.0f),
                          RandomFloats(values.size() * dim, 2));
    };
    GuardedState got = into(), want = into();
    isa().merge_attention(block.state(), values.size(), dim, got.state());
    reference().merge_attention(block.state(), values.size(), dim, want.state());
    EXPECT_TRUE(SameState(got, want)) << earlier;
  }
}

class RotateIsaTest : public testing::IsaTest {};
POCKETLM_INSTANTIATE_ISA(RotateIsaTest);

TEST_P(RotateIsaTest, EveryGroup) {
  for (size_t group : {1, 2, 4, 8, 16, 32, 64, 128, 256}) {
    for (size_t groups : {1, 2, 3, 7, 14}) {
      for (bool extreme : {false, true}) {
        const auto seed = static_cast<uint32_t>(group + groups);
        std::vector<float> want =
            extreme ? ExtremeMix(groups * group, seed) : RandomFloats(groups * group, seed);
        Guarded<float> got(want);
        isa().rotate_groups(got.data(), got.size(), group);
        reference().rotate_groups(want.data(), want.size(), group);
        EXPECT_TRUE(SameBits(got.Copy(), want)) << groups << " groups of " << group;
      }
    }
  }
}

TEST_P(RotateIsaTest, ZerosKeepTheirSigns) {
  for (size_t group : {8, 16, 32, 64}) {
    std::vector<float> want(2 * group, -0.0f);
    for (size_t i = 0; i < group; i += 3) want[i] = 0.0f;
    std::vector<float> got = want;
    isa().rotate_groups(got.data(), got.size(), group);
    reference().rotate_groups(want.data(), want.size(), group);
    EXPECT_TRUE(SameBits(got, want)) << group;
  }
}

}  // namespace
}  // namespace pocketlm
