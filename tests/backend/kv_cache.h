// A key-value cache of one layer for tests, and its content read value by value as kv_layout.h says, written
// apart from the kernels.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/kv_layout.h"
#include "base/aligned_buffer.h"
#include "base/half.h"
#include "base/status.h"

namespace pocketlm::testing {

// Every byte is 0xFF at first, so that scales and floats are NaN and reading an unwritten position shows.
class KvCache {
 public:
  KvCache(KvType k_type, KvType v_type, size_t capacity, size_t num_kv_heads, size_t head_dim) {
    layer_.k_type = k_type;
    layer_.v_type = v_type;
    layer_.capacity = (capacity + kKvTile - 1) / kKvTile * kKvTile;
    layer_.num_kv_heads = num_kv_heads;
    layer_.head_dim = head_dim;
    const size_t positions = layer_.capacity * num_kv_heads;
    layer_.k = Plane(positions * KvCodeBytes(k_type, head_dim));
    layer_.v = Plane(positions * KvCodeBytes(v_type, head_dim));
    layer_.k_scales =
        reinterpret_cast<uint16_t*>(Plane(positions * KvScaleBytes(k_type, head_dim)));
    layer_.v_scales =
        reinterpret_cast<uint16_t*>(Plane(positions * KvScaleBytes(v_type, head_dim)));
  }

  const KvLayer& layer() const { return layer_; }

  // All planes: keys, values, their scales.
  std::vector<std::vector<std::byte>> Copy() const {
    std::vector<std::vector<std::byte>> out;
    for (const auto& plane : planes_) out.emplace_back(plane.data(), plane.data() + plane.size());
    return out;
  }

 private:
  std::byte* Plane(size_t bytes) {
    auto plane = AlignedBuffer<std::byte>::Allocate(bytes, "test cache");
    POCKETLM_CHECK(plane.ok());
    if (bytes > 0) std::memset(plane->data(), 0xFF, bytes);
    planes_.push_back(std::move(plane).value());
    return bytes == 0 ? nullptr : planes_.back().data();
  }

  std::vector<AlignedBuffer<std::byte>> planes_;
  KvLayer layer_;
};

inline uint16_t StoredScale(const uint16_t* scales, size_t head_dim, size_t position,
                            size_t group) {
  const size_t groups = head_dim / KvGroup(head_dim);
  return scales[position / 16 * 16 * groups + group * 16 + position % 16];
}

template <typename T>
double LoadAs(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  if constexpr (sizeof(T) == 2) return static_cast<double>(HalfToFloat(value));
  return static_cast<double>(value);
}

// The code (quantized types) or value of element `d` of the key at `position`, from the first position's plane.
inline double StoredKey(const std::byte* keys, KvType type, size_t head_dim, size_t position,
                        size_t d) {
  const size_t tile = position / 16, lane = position % 16;
  const std::byte* at = keys + tile * 16 * KvCodeBytes(type, head_dim);
  switch (type) {
    case KvType::kF32:
      return LoadAs<float>(at + 4 * (16 * d + lane));
    case KvType::kF16:
      return LoadAs<uint16_t>(at + 2 * (16 * d + lane));
    case KvType::kI8:
      return static_cast<double>(at[64 * (d / 4) + 4 * lane + d % 4]) - 128;
    default: {
      const auto byte = static_cast<unsigned>(at[64 * (d / 8) + 4 * lane + d % 4]);
      return static_cast<double>(d % 8 < 4 ? byte % 16 : byte / 16) - 8;
    }
  }
}

// The same for values.
inline double StoredValue(const std::byte* values, KvType type, size_t head_dim, size_t position,
                          size_t d) {
  const std::byte* at = values + position * KvCodeBytes(type, head_dim);
  switch (type) {
    case KvType::kF32:
      return LoadAs<float>(at + 4 * d);
    case KvType::kF16:
      return LoadAs<uint16_t>(at + 2 * d);
    case KvType::kI8:
      return static_cast<double>(static_cast<int8_t>(at[d]));
    default: {
      const size_t group = KvGroup(head_dim), first = d / group * group, i = d - first;
      const auto byte = static_cast<unsigned>(at[first / 2 + i % (group / 2)]);
      return static_cast<double>(i < group / 2 ? byte % 16 : byte / 16) - 8;
    }
  }
}

}  // namespace pocketlm::testing
