// Attention over blocks of the cache: which thread computes which block, and how the blocks come together.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace pocketlm {

// Each block of kAttentionBlock positions gives a partial softmax; a row's blocks are merged in ascending order
// into its output. Prompts: a task is some rows × one key-value head, and reads every block once for all its
// rows. Single rows over long contexts with more threads than key-value heads: a task is some blocks, whose partial
// softmaxes are kept and merged afterwards in the same order, so the bits are the same.
class BlockAttention {
 public:
  explicit BlockAttention(const CpuKernels& kernels) : kernels_(kernels) {}

  static uint64_t Bytes(int num_threads, const BackendLimits& limits);
  Status Reserve(int num_threads, const BackendLimits& limits);

  void Run(const AttentionArgs& args, ThreadPool* pool);

 private:
  struct Sizes;
  struct Queries;

  // Positions that a row sees: [begin, end).
  struct Span {
    size_t begin;
    size_t end;
  };
  static Span Visible(const AttentionArgs& args, size_t row);

  Queries ThreadQueries(const AttentionArgs& args, int thread);
  // Scales, rotates and quantizes the queries of one row that read key-value head `kv_head`, into slot `slot`.
  void PrepareQueries(const AttentionArgs& args, size_t row, size_t kv_head, size_t slot,
                      const Queries& queries);
  void RunBlock(const AttentionArgs& args, const Queries& queries, size_t slot, size_t kv_head,
                size_t block, Span visible, const AttentionState& state);
  void Finish(const AttentionArgs& args, size_t row, size_t kv_head, const AttentionState& state);

  void RunRows(const AttentionArgs& args, size_t row_begin, size_t row_end, size_t kv_head,
               int thread);
  void RunSplit(const AttentionArgs& args, ThreadPool* pool);

  const CpuKernels& kernels_;
  AlignedBuffer<float> memory_;
  size_t thread_floats_ = 0;  // of each thread; those of RunSplit follow
};

}  // namespace pocketlm
