#include "model/kv_cache.h"

#include <utility>

namespace pocketlm {
namespace {

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Bytes of one layer's codes and scales, K or V; each plane starts on a cache line.
struct Planes {
  uint64_t codes;
  uint64_t scales;

  Planes(const ModelConfig& config, size_t positions, KvType type) {
    const uint64_t vectors = uint64_t{config.num_key_value_heads} * positions;
    codes = RoundUp(vectors * KvCodeBytes(type, config.head_dim), 64);
    scales = RoundUp(vectors * KvScaleBytes(type, config.head_dim), 64);
  }
};

}  // namespace

uint64_t KvCache::PlannedBytes(const ModelConfig& config, size_t capacity, KvType k_type,
                               KvType v_type) {
  const size_t positions = RoundUp(capacity, kKvTile);
  const Planes k(config, positions, k_type), v(config, positions, v_type);
  return config.num_hidden_layers * (k.codes + k.scales + v.codes + v.scales);
}

Result<KvCache> KvCache::Create(const ModelConfig& config, size_t capacity, KvType k_type,
                                KvType v_type) {
  for (KvType type : {k_type, v_type}) {
    if (!KvTypeFits(type, config.head_dim)) {
      return Unsupported("KV cache: heads of " + std::to_string(config.head_dim) +
                         " values do not fit this type; use f16");
    }
  }
  KvCache cache;
  POCKETLM_ASSIGN_OR_RETURN(cache.storage_,
                            AlignedBuffer<std::byte>::Allocate(
                                PlannedBytes(config, capacity, k_type, v_type), "KV cache"));
  cache.capacity_ = capacity;
  const size_t positions = RoundUp(capacity, kKvTile);
  const Planes k(config, positions, k_type), v(config, positions, v_type);
  std::byte* next = cache.storage_.data();
  const auto take = [&next](uint64_t bytes) { return std::exchange(next, next + bytes); };
  for (size_t i = 0; i < config.num_hidden_layers; ++i) {
    KvLayer layer;
    layer.k_type = k_type;
    layer.v_type = v_type;
    layer.capacity = positions;
    layer.num_kv_heads = config.num_key_value_heads;
    layer.head_dim = config.head_dim;
    layer.k = take(k.codes);
    layer.k_scales = reinterpret_cast<uint16_t*>(take(k.scales));
    layer.v = take(v.codes);
    layer.v_scales = reinterpret_cast<uint16_t*>(take(v.scales));
    cache.layers_.push_back(layer);
  }
  return cache;
}

}  // namespace pocketlm
