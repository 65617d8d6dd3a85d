#include "model/kv_cache.h"

#include <utility>

#include "base/checked_math.h"

namespace pocketlm {
namespace {

// Bytes of one layer's K or V, rounded up so that each starts on a cache line.
uint64_t PlaneBytes(const ModelConfig& config, size_t capacity, KvType type) {
  const uint64_t bytes =
      uint64_t{config.num_key_value_heads} * config.head_dim * capacity * KvValueBytes(type);
  return (bytes + 63) / 64 * 64;
}

}  // namespace

uint64_t KvCache::PlannedBytes(const ModelConfig& config, size_t capacity, KvType k_type,
                               KvType v_type) {
  return config.num_hidden_layers *
         (PlaneBytes(config, capacity, k_type) + PlaneBytes(config, capacity, v_type));
}

Result<KvCache> KvCache::Create(const ModelConfig& config, size_t capacity, KvType k_type,
                                KvType v_type) {
  KvCache cache;
  POCKETLM_ASSIGN_OR_RETURN(cache.storage_,
                            AlignedBuffer<std::byte>::Allocate(
                                PlannedBytes(config, capacity, k_type, v_type), "KV cache"));
  cache.capacity_ = capacity;
  std::byte* next = cache.storage_.data();
  for (size_t i = 0; i < config.num_hidden_layers; ++i) {
    KvLayer layer;
    layer.k_type = k_type;
    layer.v_type = v_type;
    layer.capacity = capacity;
    layer.num_kv_heads = config.num_key_value_heads;
    layer.head_dim = config.head_dim;
    layer.k = next;
    next += PlaneBytes(config, capacity, k_type);
    layer.v = next;
    next += PlaneBytes(config, capacity, v_type);
    cache.layers_.push_back(layer);
  }
  return cache;
}

}  // namespace pocketlm
