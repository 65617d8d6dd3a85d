#include "backend/cpu/attention.h"

#include <algorithm>
#include <utility>

namespace pocketlm {
namespace {

constexpr size_t kRowsPerTask = 16;
// Blocks of a single row from which on they are shared out among threads.
constexpr size_t kMinSplitBlocks = 4;

size_t RoundToLine(size_t floats) { return (floats + 15) / 16 * 16; }

size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

}  // namespace

// The queries of some rows (slots) × the heads that share a key-value head, in one thread's memory.
struct BlockAttention::Queries {
  size_t heads;       // that share a key-value head
  size_t row_values;  // heads · head_dim
  size_t row_groups;  // heads · groups of a head
  float* values;      // [slots, row_values]
  int8_t* codes;      // as values
  float* scales;      // [slots, row_groups]
  float* sums;
  int32_t* code_sums;
  float* max;  // [slots, heads]
  float* sum;
  AttentionState block;  // of one slot
};

struct BlockAttention::Sizes {
  size_t heads, values, groups;

  Sizes(size_t num_heads, size_t num_kv_heads, size_t head_dim)
      : heads(num_heads / num_kv_heads),
        values(heads * head_dim),
        groups(heads * (head_dim / KvGroup(head_dim))) {}

  size_t thread_floats() const {
    return RoundToLine(kRowsPerTask * values) + RoundToLine(kRowsPerTask * values / 4 + 1) +
           3 * RoundToLine(kRowsPerTask * groups) + 2 * RoundToLine(kRowsPerTask * heads) +
           2 * RoundToLine(heads) + RoundToLine(values) + 16;
  }
};

uint64_t BlockAttention::Bytes(int num_threads, const BackendLimits& limits) {
  if (limits.num_heads == 0 || limits.num_kv_heads == 0 || limits.head_dim == 0) return 0;
  const Sizes sizes(limits.num_heads, limits.num_kv_heads, limits.head_dim);
  const uint64_t split = uint64_t{CeilDiv(limits.positions, kAttentionBlock)} * limits.num_heads *
                         (limits.head_dim + 2);
  const auto threads = static_cast<uint64_t>(num_threads);
  return (threads * sizes.thread_floats() + (num_threads > 1 ? split : 0)) * sizeof(float);
}

Status BlockAttention::Reserve(int num_threads, const BackendLimits& limits) {
  const uint64_t floats = Bytes(num_threads, limits) / sizeof(float);
  if (floats == 0) return OkStatus();
  if (floats > memory_.size()) {
    POCKETLM_ASSIGN_OR_RETURN(memory_, AlignedBuffer<float>::Allocate(floats, "attention scratch"));
  }
  thread_floats_ = Sizes(limits.num_heads, limits.num_kv_heads, limits.head_dim).thread_floats();
  return OkStatus();
}

BlockAttention::Span BlockAttention::Visible(const AttentionArgs& args, size_t row) {
  const size_t end = args.first_position + row + 1;
  return {args.window != 0 && end > args.window ? end - args.window : 0, end};
}

BlockAttention::Queries BlockAttention::ThreadQueries(const AttentionArgs& args, int thread) {
  const Sizes sizes(args.num_heads, args.kv->num_kv_heads, args.kv->head_dim);
  Queries out;
  out.heads = args.num_heads / args.kv->num_kv_heads;
  out.row_values = sizes.values;
  out.row_groups = sizes.groups;
  float* next = memory_.data() + static_cast<size_t>(thread) * thread_floats_;
  const auto take = [&](size_t floats) {
    float* at = next;
    next += RoundToLine(floats);
    return at;
  };
  out.values = take(kRowsPerTask * sizes.values);
  out.codes = reinterpret_cast<int8_t*>(take(kRowsPerTask * sizes.values / 4 + 1));
  out.scales = take(kRowsPerTask * sizes.groups);
  out.sums = take(kRowsPerTask * sizes.groups);
  out.code_sums = reinterpret_cast<int32_t*>(take(kRowsPerTask * sizes.groups));
  out.max = take(kRowsPerTask * sizes.heads);
  out.sum = take(kRowsPerTask * sizes.heads);
  out.block.max = take(sizes.heads);
  out.block.sum = take(sizes.heads);
  out.block.out = take(sizes.values);
  return out;
}

void BlockAttention::PrepareQueries(const AttentionArgs& args, size_t row, size_t kv_head,
                                    size_t slot, const Queries& queries) {
  const size_t dim = args.kv->head_dim, group = KvGroup(dim);
  const float* from = args.q + (row * args.num_heads + kv_head * queries.heads) * dim;
  float* values = queries.values + slot * queries.row_values;
  std::copy_n(from, queries.row_values, values);
  kernels_.scale(values, args.scale, queries.row_values);
  const KvType type = args.kv->k_type;
  if (type == KvType::kI4) kernels_.rotate_groups(values, queries.row_values, group);
  if (!KvIsQuantized(type)) return;
  const size_t at = slot * queries.row_groups;
  kernels_.quantize_row(values, queries.row_values, group,
                        queries.codes + slot * queries.row_values, queries.scales + at,
                        queries.sums + at, queries.code_sums + at);
}

void BlockAttention::RunBlock(const AttentionArgs& args, const Queries& queries, size_t slot,
                              size_t kv_head, size_t block, Span visible,
                              const AttentionState& state) {
  const KvLayer& kv = *args.kv;
  const size_t dim = kv.head_dim;
  const size_t first = block * kAttentionBlock;
  const size_t position = kv_head * kv.capacity + first;
  AttendBlockArgs a;
  a.q = queries.values + slot * queries.row_values;
  a.q_codes = queries.codes + slot * queries.row_values;
  a.q_scales = queries.scales + slot * queries.row_groups;
  a.q_code_sums = queries.code_sums + slot * queries.row_groups;
  a.heads = queries.heads;
  a.head_dim = dim;
  a.k_type = kv.k_type;
  a.v_type = kv.v_type;
  a.k = kv.k + position * KvCodeBytes(kv.k_type, dim);
  a.v = kv.v + position * KvCodeBytes(kv.v_type, dim);
  if (KvIsQuantized(kv.k_type)) a.k_scales = kv.k_scales + position * (dim / KvGroup(dim));
  if (KvIsQuantized(kv.v_type)) a.v_scales = kv.v_scales + position * (dim / KvGroup(dim));
  a.begin = visible.begin > first ? visible.begin - first : 0;
  a.end = std::min(visible.end - first, kAttentionBlock);
  kernels_.attend_block(a, state);
}

void BlockAttention::Finish(const AttentionArgs& args, size_t row, size_t kv_head,
                            const AttentionState& state) {
  const size_t dim = args.kv->head_dim;
  const size_t heads = args.num_heads / args.kv->num_kv_heads;
  float* out = args.out + (row * args.num_heads + kv_head * heads) * dim;
  for (size_t h = 0; h < heads; ++h) {
    for (size_t d = 0; d < dim; ++d) out[h * dim + d] /= state.sum[h];
  }
  if (args.kv->v_type == KvType::kI4) kernels_.rotate_groups(out, heads * dim, KvGroup(dim));
}

void BlockAttention::RunRows(const AttentionArgs& args, size_t row_begin, size_t row_end,
                             size_t kv_head, int thread) {
  const Queries queries = ThreadQueries(args, thread);
  const size_t dim = args.kv->head_dim;
  const auto state = [&](size_t row) {
    const size_t slot = row - row_begin;
    return AttentionState{queries.max + slot * queries.heads, queries.sum + slot * queries.heads,
                          args.out + (row * args.num_heads + kv_head * queries.heads) * dim};
  };
  for (size_t row = row_begin; row < row_end; ++row)
    PrepareQueries(args, row, kv_head, row - row_begin, queries);
  const size_t last = (Visible(args, row_end - 1).end - 1) / kAttentionBlock;
  for (size_t block = Visible(args, row_begin).begin / kAttentionBlock; block <= last; ++block) {
    const size_t first = block * kAttentionBlock;
    for (size_t row = row_begin; row < row_end; ++row) {
      const Span visible = Visible(args, row);
      if (visible.end <= first || visible.begin >= first + kAttentionBlock) continue;
      if (visible.begin >= first) {
        RunBlock(args, queries, row - row_begin, kv_head, block, visible, state(row));
      } else {
        RunBlock(args, queries, row - row_begin, kv_head, block, visible, queries.block);
        kernels_.merge_attention(queries.block, queries.heads, dim, state(row));
      }
    }
  }
  for (size_t row = row_begin; row < row_end; ++row) Finish(args, row, kv_head, state(row));
}

void BlockAttention::RunSplit(const AttentionArgs& args, ThreadPool* pool) {
  const size_t dim = args.kv->head_dim, kv_heads = args.kv->num_kv_heads;
  const size_t heads = args.num_heads / kv_heads;
  for (size_t row = 0; row < args.rows; ++row) {
    const Span visible = Visible(args, row);
    const size_t first = visible.begin / kAttentionBlock;
    const size_t blocks = (visible.end - 1) / kAttentionBlock + 1 - first;
    float* partials = memory_.data() + static_cast<size_t>(pool->num_threads()) * thread_floats_;
    const auto state = [&](size_t kv_head, size_t block) {
      const size_t index = (kv_head * blocks + block) * heads;
      float* max = partials + kv_heads * blocks * heads * dim;
      return AttentionState{max + index, max + kv_heads * blocks * heads + index,
                            partials + index * dim};
    };
    const size_t per_task =
        std::max<size_t>(1, blocks * kv_heads / (4 * static_cast<size_t>(pool->num_threads())));
    pool->ParallelFor(kv_heads * blocks, per_task, [&](size_t begin, size_t end, int thread) {
      const Queries queries = ThreadQueries(args, thread);
      for (size_t i = begin; i < end; ++i) {
        const size_t kv_head = i / blocks;
        if (i == begin || i % blocks == 0) PrepareQueries(args, row, kv_head, 0, queries);
        RunBlock(args, queries, 0, kv_head, first + i % blocks, visible,
                 state(kv_head, i % blocks));
      }
    });
    pool->ParallelFor(kv_heads, 1, [&](size_t begin, size_t end, int) {
      for (size_t kv_head = begin; kv_head < end; ++kv_head) {
        AttentionState into = state(kv_head, 0);
        float* out = args.out + (row * args.num_heads + kv_head * heads) * dim;
        std::copy_n(into.out, heads * dim, out);
        into.out = out;
        for (size_t block = 1; block < blocks; ++block)
          kernels_.merge_attention(state(kv_head, block), heads, dim, into);
        Finish(args, row, kv_head, into);
      }
    });
  }
}

void BlockAttention::Run(const AttentionArgs& args, ThreadPool* pool) {
  const size_t kv_heads = args.kv->num_kv_heads;
  const auto threads = static_cast<size_t>(pool->num_threads());
  const size_t seen =
      std::min(args.first_position + args.rows, args.window == 0 ? SIZE_MAX : args.window);
  if (threads > 1 && args.rows * kv_heads % threads != 0 && args.rows * kv_heads < 4 * threads &&
      seen >= kMinSplitBlocks * kAttentionBlock) {
    return RunSplit(args, pool);
  }
  // Enough tasks for all threads, large enough to read a block for many rows.
  const size_t rows_per_task =
      std::clamp<size_t>(args.rows * kv_heads / (4 * threads), 1, kRowsPerTask);
  const size_t row_tasks = CeilDiv(args.rows, rows_per_task);
  const auto run = [&](size_t begin, size_t end, int thread) {
    for (size_t task = begin; task < end; ++task) {
      // The last rows see most: first, so that no thread is left alone with them.
      const size_t rows = row_tasks - 1 - task / kv_heads;
      RunRows(args, rows * rows_per_task, std::min(args.rows, (rows + 1) * rows_per_task),
              task % kv_heads, thread);
    }
  };
  const size_t work = args.rows * args.num_heads * args.kv->head_dim * seen;
  constexpr size_t kMinParallelWork = 64 * 1024;
  if (threads == 1 || work < kMinParallelWork) return run(0, row_tasks * kv_heads, 0);
  pool->ParallelFor(row_tasks * kv_heads, 1, run);
}

}  // namespace pocketlm
