#include "backend/cpu/kv_store.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace pocketlm {
namespace {

constexpr size_t kMaxHeadDim = 1024;
constexpr uint16_t kHalfNan = 0x7E00;
constexpr float kRoundMagic = 12582912.0f;  // 1.5·2²³: adding it rounds to an integer
constexpr float kMaxHalf = 65504.0f;

// Codes of a group with scale `scale`, within [low, high].
void QuantizeWith(const float* x, size_t count, uint16_t scale, float low, float high,
                  int8_t* codes) {
  const float step = HalfToFloat(scale);
  const float inverse = step == 0.0f ? 0.0f : 1.0f / step;
  for (size_t i = 0; i < count; ++i) {
    const float scaled = std::min(std::max(x[i] * inverse, low), high);
    codes[i] = static_cast<int8_t>(static_cast<int>(scaled + kRoundMagic - kRoundMagic));
  }
}

// Quantizes a group; returns its scale.
uint16_t QuantizeGroup(KvType type, const float* x, size_t count, int8_t* codes) {
  uint32_t max_bits = 0;
  for (size_t i = 0; i < count; ++i)
    max_bits = std::max(max_bits, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  if (max_bits >= 0x7F800000u) {
    std::fill_n(codes, count, int8_t{0});
    return kHalfNan;
  }
  const float max = std::bit_cast<float>(max_bits);
  if (type == KvType::kI8) {
    const uint16_t scale = FloatToHalf(std::min(max / 127.0f, kMaxHalf));
    QuantizeWith(x, count, scale, -127.0f, 127.0f, codes);
    return scale;
  }
  float min = 0.0f;
  for (size_t i = 0; i < count; ++i) min = std::min(min, x[i]);
  const float magnitude = std::min(max / 8.0f, kMaxHalf);
  const uint16_t scale = FloatToHalf(-min == max ? magnitude : -magnitude);
  QuantizeWith(x, count, scale, -8.0f, 7.0f, codes);
  return scale;
}

// Quantizes a head of a key or value and stores its scales.
void QuantizeHead(const CpuKernels& kernels, const KvLayer& kv, KvType type, size_t position,
                  float* x, uint16_t* scales, int8_t* codes) {
  const size_t dim = kv.head_dim, group = KvGroup(dim), groups = dim / group;
  if (type == KvType::kI4) kernels.rotate_groups(x, dim, group);
  for (size_t g = 0; g < groups; ++g) {
    scales[(position / kKvTile * groups + g) * kKvTile + position % kKvTile] =
        QuantizeGroup(type, x + g * group, group, codes + g * group);
  }
}

// The scale plane of a head.
uint16_t* HeadScales(const KvLayer& kv, uint16_t* scales, size_t head) {
  return scales + head * kv.capacity * (kv.head_dim / KvGroup(kv.head_dim));
}

std::byte* HeadCodes(const KvLayer& kv, std::byte* codes, KvType type, size_t head) {
  return codes + head * kv.capacity * KvCodeBytes(type, kv.head_dim);
}

// Values of `size` bytes, each kKvTile of them apart.
void Scatter(const void* from, size_t count, size_t size, std::byte* to) {
  for (size_t i = 0; i < count; ++i)
    std::memcpy(to + i * size * kKvTile, static_cast<const std::byte*>(from) + i * size, size);
}

uint8_t Nibbles(int low, int high) { return static_cast<uint8_t>((low + 8) | (high + 8) << 4); }

}  // namespace

void StoreKey(const CpuKernels& kernels, const KvLayer& kv, size_t head, size_t position,
              float* x) {
  const size_t dim = kv.head_dim, lane = position % kKvTile;
  std::byte* tile =
      HeadCodes(kv, kv.k, kv.k_type, head) + (position - lane) * KvCodeBytes(kv.k_type, dim);
  if (kv.k_type == KvType::kF32) return Scatter(x, dim, 4, tile + 4 * lane);
  if (kv.k_type == KvType::kF16) {
    uint16_t halves[kMaxHeadDim];
    kernels.floats_to_halves(x, dim, halves);
    return Scatter(halves, dim, 2, tile + 2 * lane);
  }
  int8_t codes[kMaxHeadDim];
  QuantizeHead(kernels, kv, kv.k_type, position, x, HeadScales(kv, kv.k_scales, head), codes);
  uint8_t bytes[kMaxHeadDim];
  if (kv.k_type == KvType::kI8) {
    for (size_t i = 0; i < dim; ++i) bytes[i] = static_cast<uint8_t>(codes[i] + 128);
    return Scatter(bytes, dim / 4, 4, tile + 4 * lane);
  }
  for (size_t i = 0; i < dim / 2; ++i) {
    const int8_t* from = codes + i / 4 * 8 + i % 4;
    bytes[i] = Nibbles(from[0], from[4]);
  }
  Scatter(bytes, dim / 8, 4, tile + 4 * lane);
}

void StoreValue(const CpuKernels& kernels, const KvLayer& kv, size_t head, size_t position,
                float* x) {
  const size_t dim = kv.head_dim;
  std::byte* to = HeadCodes(kv, kv.v, kv.v_type, head) + position * KvCodeBytes(kv.v_type, dim);
  if (kv.v_type == KvType::kF32) {
    std::memcpy(to, x, dim * sizeof(float));
    return;
  }
  if (kv.v_type == KvType::kF16)
    return kernels.floats_to_halves(x, dim, reinterpret_cast<uint16_t*>(to));
  int8_t codes[kMaxHeadDim];
  QuantizeHead(kernels, kv, kv.v_type, position, x, HeadScales(kv, kv.v_scales, head), codes);
  if (kv.v_type == KvType::kI8) {
    std::memcpy(to, codes, dim);
    return;
  }
  const size_t group = KvGroup(dim), half = group / 2;
  for (size_t g = 0; g < dim; g += group) {
    for (size_t i = 0; i < half; ++i)
      to[g / 2 + i] = std::byte{Nibbles(codes[g + i], codes[g + half + i])};
  }
}

}  // namespace pocketlm
