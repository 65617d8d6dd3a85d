// Keys and values of the tokens of one session.
#pragma once

#include <cstddef>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/status.h"
#include "model/config.h"

namespace pocketlm {

// Owned by one session; not thread-safe. Memory becomes resident as positions are filled.
class KvCache {
 public:
  // `capacity` in positions (tokens), ≥ 1; `config` has passed ValidateConfig. kOutOfMemory;
  // kUnsupported if a type does not take heads of this size.
  static Result<KvCache> Create(const ModelConfig& config, size_t capacity, KvType k_type,
                                KvType v_type);

  // Bytes of a full cache.
  static uint64_t PlannedBytes(const ModelConfig& config, size_t capacity, KvType k_type,
                               KvType v_type);

  const KvLayer& layer(size_t index) const { return layers_[index]; }
  size_t capacity() const { return capacity_; }

 private:
  KvCache() = default;
  AlignedBuffer<std::byte> storage_;
  std::vector<KvLayer> layers_;
  size_t capacity_ = 0;  // positions
};

}  // namespace pocketlm
