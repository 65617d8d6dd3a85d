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

// Where the time of a pass goes.
enum class DecoderOp {
  kEmbed,
  kQkvProjection,
  kRopeAppend,
  kAttention,
  kOutputProjection,
  kGateUp,
  kDownProjection,
  kHead
};
inline constexpr int kNumDecoderOps = 8;
const char* DecoderOpName(DecoderOp op);  // "embed", "qkv_projection" …

struct DecoderProfile {
  double seconds[kNumDecoderOps] = {};
};

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

  // Bytes of scratch that a decoder of `max_rows` allocates, and what its backend reserves for a context of
  // `positions`.
  static uint64_t ScratchBytes(const ModelConfig& config, size_t max_rows);
  static BackendLimits Limits(const ModelConfig& config, size_t max_rows, size_t positions);

  // Runs tokens `ids` (1 to max_rows, each in [0, vocab_size)) at positions first_position …, whose
  // predecessors are in `cache`, and puts their keys and values there; the cache has room for them. Their
  // final hidden states stay available to Logits until the next call. Returns kCancelled soon after *cancel
  // becomes true; the cache below first_position is untouched then. kOutOfMemory.
  Status Forward(std::span<const int32_t> ids, size_t first_position, KvCache* cache,
                 const std::atomic<bool>* cancel);

  // Runs the nodes of a token tree in one pass: `ids` in preorder, each at its position, whose predecessors are the latest nodes
  // before it at the positions before, or else in `cache`. A node is computed, bit for bit, as if Forward had run the path to it alone. The cache
  // is written as nodes are met, a node over its earlier siblings, so a tree may be cut between any two nodes into several
  // calls. Otherwise as Forward.
  Status ForwardTree(std::span<const int32_t> ids, std::span<const size_t> positions,
                     KvCache* cache, const std::atomic<bool>* cancel);

  // logits[i] = head · norm(hidden state of row row_begin + i) of the last Forward, ForwardTree or ForwardLayer,
  // [row_count, vocab_size].
  void Logits(size_t row_begin, size_t row_count, float* logits);

  // Runs one layer in place on the residual stream, hidden_states [rows, hidden_size] with rows ≤ max_rows, as Forward
  // does on its way: for work that goes through a model layer by layer. kOutOfMemory.
  Status ForwardLayer(size_t layer, std::span<float> hidden_states, size_t first_position,
                      KvCache* cache);

  size_t max_rows() const { return max_rows_; }
  // Fills the cache with pseudo-random keys and values for positions [0, positions), as if that many tokens
  // had been read: for benchmarks at depth.
  Status FillSynthetically(size_t positions, KvCache* cache);

  // Adds the time of each op to *profile until it is set to null.
  void set_profile(DecoderProfile* profile) { profile_ = profile; }
  void set_observer(LayerObserver observer) { observer_ = std::move(observer); }

 private:
  // Rotary angles of the current rows, [max_rows, head_dim / 2] each.
  struct RopeTable {
    std::vector<float> inverse_frequencies;  // [head_dim / 2]
    std::vector<float> cos, sin;
    // Rows [row, row + rows), for positions first_position ….
    void Fill(size_t row, size_t rows, size_t first_position);
  };

  Decoder() = default;
  Status Reserve(size_t rows, size_t positions);
  // Rows at consecutive positions, each seeing the ones before.
  struct RowRun {
    size_t row = 0;
    size_t rows = 0;
    size_t first_position = 0;
  };

  void FillRope(std::span<const RowRun> runs);
  Status RunLayers(std::span<const int32_t> ids, std::span<const RowRun> runs, KvCache* cache,
                   const std::atomic<bool>* cancel);
  void Attend(const LayerWeights& layer, size_t index, size_t rows, std::span<const RowRun> runs,
              KvCache* cache);
  void AttendRun(const LayerWeights& layer, size_t index, const RowRun& run, KvCache* cache);
  void FeedForward(const LayerWeights& layer, size_t rows);
  // residual += w · x, normalized first if the architecture does.
  void AddProduct(const WeightMatrix& w, const float* x, size_t rows,
                  const std::vector<float>& norm);

  const ModelConfig* config_ = nullptr;
  const ModelWeights* weights_ = nullptr;
  Backend* backend_ = nullptr;
  size_t max_rows_ = 0;
  RopeTable global_rope_;
  RopeTable local_rope_;
  AlignedBuffer<float> scratch_;
  float* residual_ = nullptr;  // [max_rows, hidden_size]
  float* output_ = nullptr;    // [max_rows, hidden_size]: a block's output where it is normalized
  float* q_ = nullptr;         // [max_rows, num_attention_heads * head_dim]
  float* k_ = nullptr;         // [max_rows, num_key_value_heads * head_dim]
  float* v_ = nullptr;         // as k_
  float* attended_ = nullptr;  // as q_
  float* gated_ = nullptr;     // [max_rows, intermediate_size]
  DecoderProfile* profile_ = nullptr;
  LayerObserver observer_;
};

}  // namespace pocketlm
