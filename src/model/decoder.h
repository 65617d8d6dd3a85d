// The forward pass of a decoder-only transformer: qwen3, llama, gemma3.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/aligned_buffer.h"
#include "base/status.h"
#include "model/config.h"
#include "model/kv_cache.h"
#include "model/weights.h"

namespace pocketlm {

// Sees the residual stream after each layer: [rows, hidden_size]. For tests and activation dumps.
using LayerObserver = std::function<void(size_t layer, std::span<const float> hidden_states)>;

// Holds the scratch memory of one session. Not thread-safe; the backend must not be in use elsewhere during
// Forward and Logits.
class Decoder {
 public:
  // `config`, `weights` and `backend` must outlive the decoder. `max_rows` ≥ 1: tokens of one Forward.
  // kOutOfMemory.
  static Result<Decoder> Create(const ModelConfig& config, const ModelWeights& weights,
                                Backend* backend, size_t max_rows);

  // Bytes of scratch that a decoder of `max_rows` allocates.
  static uint64_t ScratchBytes(const ModelConfig& config, size_t max_rows);

  // Runs tokens `ids` (1 to max_rows, each in [0, vocab_size)) at positions first_position …, whose
  // predecessors are in `cache`, and puts their keys and values there; the cache has room for them. Their
  // final hidden states stay available to Logits until the next call. Returns kCancelled soon after *cancel
  // becomes true; the cache below first_position is untouched then.
  Status Forward(std::span<const int32_t> ids, size_t first_position, KvCache* cache,
                 const std::atomic<bool>* cancel);

  // logits[i] = head · norm(hidden state of row row_begin + i) of the last Forward, [row_count, vocab_size].
  void Logits(size_t row_begin, size_t row_count, float* logits);

  size_t max_rows() const { return max_rows_; }
  void set_observer(LayerObserver observer) { observer_ = std::move(observer); }

 private:
  // Rotary angles of the current rows, [max_rows, head_dim / 2] each.
  struct RopeTable {
    std::vector<float> inverse_frequencies;  // [head_dim / 2]
    std::vector<float> cos, sin;
    void Fill(size_t rows, size_t first_position);
  };

  Decoder() = default;
  void Attend(const LayerWeights& layer, size_t index, size_t rows, size_t first_position,
              KvCache* cache);
  void FeedForward(const LayerWeights& layer, size_t rows);

  const ModelConfig* config_ = nullptr;
  const ModelWeights* weights_ = nullptr;
  Backend* backend_ = nullptr;
  size_t max_rows_ = 0;
  RopeTable global_rope_;
  RopeTable local_rope_;
  AlignedBuffer<float> scratch_;
  float* residual_ = nullptr;  // [max_rows, hidden_size]
  float* normed_ = nullptr;    // [max_rows, hidden_size]
  float* output_ = nullptr;    // [max_rows, hidden_size]: what a block adds to the residual stream
  float* q_ = nullptr;         // [max_rows, num_attention_heads * head_dim]
  float* k_ = nullptr;         // [max_rows, num_key_value_heads * head_dim]
  float* v_ = nullptr;         // as k_
  float* attended_ = nullptr;  // as q_
  float* gate_ = nullptr;      // [max_rows, intermediate_size]
  float* up_ = nullptr;        // as gate_
  LayerObserver observer_;
};

}  // namespace pocketlm
