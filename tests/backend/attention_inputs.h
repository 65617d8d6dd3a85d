// Queries and blocks of a key-value cache for kernel tests, each plane before an unreadable page.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/kv_layout.h"
#include "base/half.h"
#include "kernel_inputs.h"
#include "packed_inputs.h"

namespace pocketlm::testing {

inline constexpr KvType kAllKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kI8, KvType::kI4};

inline const char* KvTypeName(KvType type) {
  constexpr const char* kNames[] = {"f32", "f16", "i8", "i4"};
  return kNames[static_cast<int>(type)];
}

struct AttendCase {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  size_t heads = 1;
  size_t head_dim = 64;
  size_t begin = 0;
  size_t end = 1;
  Fill fill = Fill::kOrdinary;
  std::byte poison = std::byte{0xFF};  // what invisible positions hold, scales too: NaN
};

inline std::string Describe(const AttendCase& c) {
  return std::string(KvTypeName(c.k_type)) + "/" + KvTypeName(c.v_type) + ", " +
         std::to_string(c.heads) + " heads of " + std::to_string(c.head_dim) + ", [" +
         std::to_string(c.begin) + ", " + std::to_string(c.end) + ")";
}

// The codes and scales of a key or value cache for positions [0, end) rounded up to whole tiles.
class KvBlock {
 public:
  enum class Role { kKeys, kValues };

  KvBlock(Role role, KvType type, const AttendCase& c, uint32_t seed)
      : rng_(seed),
        positions_((c.end + kKvTile - 1) / kKvTile * kKvTile),
        code_bytes_(KvCodeBytes(type, c.head_dim)),
        groups_(c.head_dim / KvGroup(c.head_dim)),
        codes_(positions_ * code_bytes_, 64),
        scales_(KvIsQuantized(type) ? positions_ * groups_ : 0, 32) {
    FillCodes(role, type, c);
    const auto halves = RandomHalves(scales_.size() * 2, c.fill, 0.02f, &rng_);
    if (!halves.empty()) std::memcpy(scales_.data(), halves.data(), halves.size());
    for (size_t n = 0; n < positions_; ++n) {
      if (n < c.begin || n >= c.end) Poison(role, type, n, c.poison);
    }
  }

  const std::byte* codes() const { return codes_.data(); }
  const uint16_t* scales() const { return scales_.size() == 0 ? nullptr : scales_.data(); }

 private:
  void FillCodes(Role role, KvType type, const AttendCase& c) {
    const bool extreme = c.fill == Fill::kExtreme;
    if (!KvIsQuantized(type)) {
      const size_t count = positions_ * c.head_dim;
      const auto values = extreme ? ExtremeMix(count, static_cast<uint32_t>(rng_()))
                                  : RandomFloats(count, static_cast<uint32_t>(rng_()));
      for (size_t i = 0; i < count; ++i) {
        const uint16_t half = FloatToHalf(values[i]);
        if (type == KvType::kF16) std::memcpy(codes_.data() + 2 * i, &half, 2);
        if (type == KvType::kF32) std::memcpy(codes_.data() + 4 * i, &values[i], 4);
      }
      return;
    }
    for (size_t i = 0; i < codes_.size(); ++i) {
      int code = static_cast<int>(rng_() % 255) - 127;
      if (c.fill == Fill::kWorst) code = 127;
      if (role == Role::kKeys) code += 128;
      if (type == KvType::kI4) code = c.fill == Fill::kWorst ? 0 : static_cast<int>(rng_() & 0xFF);
      codes_[i] = static_cast<std::byte>(code);
    }
  }

  void Poison(Role role, KvType type, size_t n, std::byte poison) {
    if (role == Role::kValues) {
      std::memset(codes_.data() + n * code_bytes_, static_cast<int>(poison), code_bytes_);
    } else {
      const size_t unit = type == KvType::kF16 ? 2 : 4;
      std::byte* tile = codes_.data() + n / kKvTile * kKvTile * code_bytes_;
      for (size_t i = 0; i < code_bytes_ / unit; ++i)
        std::memset(tile + (i * kKvTile + n % kKvTile) * unit, static_cast<int>(poison), unit);
    }
    if (scales_.size() == 0) return;
    for (size_t g = 0; g < groups_; ++g)
      std::memset(&scales_[(n / kKvTile * groups_ + g) * kKvTile + n % kKvTile],
                  static_cast<int>(poison), 2);
  }

  std::mt19937 rng_;
  size_t positions_, code_bytes_, groups_;
  Guarded<std::byte> codes_;
  Guarded<uint16_t> scales_;
};

// The arguments of attend_block and the memory behind them. Only what the types of the case need is there.
class AttendInput {
 public:
  AttendInput(const AttendCase& c, uint32_t seed)
      : keys_(KvBlock::Role::kKeys, c.k_type, c, seed),
        values_(KvBlock::Role::kValues, c.v_type, c, seed + 1),
        q_(c.fill == Fill::kExtreme && seed % 2 == 0
               ? ExtremeMix(c.heads * c.head_dim, seed)
               : RandomFloats(c.heads * c.head_dim, seed, 2.0f / std::sqrt(c.head_dim * 1.0f))),
        q_scales_(QueryScales(c, seed)),
        q_codes_(c.heads, c.head_dim, KvGroup(c.head_dim), seed, c.fill) {
    args_.heads = c.heads;
    args_.head_dim = c.head_dim;
    args_.k_type = c.k_type;
    args_.v_type = c.v_type;
    args_.k = keys_.codes();
    args_.v = values_.codes();
    args_.k_scales = keys_.scales();
    args_.v_scales = values_.scales();
    args_.begin = c.begin;
    args_.end = c.end;
    if (KvIsQuantized(c.k_type)) {
      const QuantizedRows rows = q_codes_.rows(0, c.head_dim, KvGroup(c.head_dim));
      args_.q_codes = rows.codes;
      args_.q_code_sums = rows.code_sums;
      args_.q_scales = q_scales_.data();
    } else {
      args_.q = q_.data();
    }
  }

  const AttendBlockArgs& args() const { return args_; }

 private:
  // Such that scores have a size of about 1, and the softmax looks at many positions.
  static std::vector<float> QueryScales(const AttendCase& c, uint32_t seed) {
    const size_t count = c.heads * (c.head_dim / KvGroup(c.head_dim));
    const float size = c.k_type == KvType::kI4 ? 0.1f : 0.01f;
    return c.fill == Fill::kExtreme && seed % 2 == 1
               ? ExtremeMix(count, seed)
               : RandomFloats(count, seed, size / std::sqrt(static_cast<float>(c.head_dim)));
  }

  KvBlock keys_, values_;
  Guarded<float> q_, q_scales_;
  QuantizedInput q_codes_;
  AttendBlockArgs args_;
};

// Memory for a partial softmax; each array ends before an unreadable page.
class GuardedState {
 public:
  GuardedState(size_t heads, size_t head_dim) : max_(heads), sum_(heads), out_(heads * head_dim) {}
  GuardedState(const std::vector<float>& max, const std::vector<float>& sum,
               const std::vector<float>& out)
      : max_(max), sum_(sum), out_(out) {}

  AttentionState state() { return {max_.data(), sum_.data(), out_.data()}; }
  size_t heads() const { return max_.size(); }
  size_t head_dim() const { return out_.size() / max_.size(); }
  float max(size_t h) const { return max_.data()[h]; }
  float sum(size_t h) const { return sum_.data()[h]; }
  const float* out(size_t h) const { return out_.data() + h * head_dim(); }

 private:
  Guarded<float> max_, sum_, out_;
};

// Sums and outputs bit for bit. Maxima by value, for a zero may have either sign; of a head that is NaN
// not at all, for what it holds depends on the order in which maxima are taken, and nothing comes of it.
inline ::testing::AssertionResult SameState(const GuardedState& got, const GuardedState& want) {
  for (size_t h = 0; h < want.heads(); ++h) {
    if (!SameBits(got.sum(h), want.sum(h)))
      return ::testing::AssertionFailure() << "sum of head " << h << ": " << std::hexfloat
                                           << got.sum(h) << ", expected " << want.sum(h);
    if (!std::isnan(want.sum(h)) && got.max(h) != want.max(h))
      return ::testing::AssertionFailure() << "max of head " << h << ": " << std::hexfloat
                                           << got.max(h) << ", expected " << want.max(h);
    const auto out = SameBits(got.out(h), want.out(h), want.head_dim());
    if (!out) return ::testing::AssertionFailure() << "head " << h << " " << out.message();
  }
  return ::testing::AssertionSuccess();
}

}  // namespace pocketlm::testing
