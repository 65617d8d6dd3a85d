#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "base/cpu_info.h"
#include "base/quote.h"

namespace pocketlm {
namespace {

constexpr size_t kMinParallelCost = 32 * 1024;  // about 5 µs of one thread
constexpr size_t kMinChunkCost = 8 * 1024;
constexpr size_t kChunksPerThread =
    8;  // small enough for uneven cores, large enough to claim cheaply

size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Weight rows per claimed chunk: even, so that kernels that take two rows at a time rarely meet
// one.
size_t RowChunk(size_t rows, size_t cols, int threads) {
  const size_t fair = rows / (static_cast<size_t>(threads) * kChunksPerThread);
  const size_t least = kMinChunkCost / std::max<size_t>(cols, 1);
  return RoundUp(std::max<size_t>({fair, least, 2}), 2);
}

}  // namespace

CpuBackend::CpuBackend(const CpuKernels& kernels, int num_threads, AlignedBuffer<float> panels)
    : kernels_(kernels), pool_(num_threads), panels_(std::move(panels)) {}

Result<std::unique_ptr<Backend>> CpuBackend::Create(const CpuKernels& kernels, int num_threads) {
  const std::string what = "create backend: " + std::to_string(num_threads) + " threads";
  POCKETLM_ASSIGN_OR_RETURN(
      auto panels, AlignedBuffer<float>::Allocate(static_cast<size_t>(num_threads) * kPanelFloats,
                                                  what.c_str()));
  try {
    return std::unique_ptr<Backend>(new CpuBackend(kernels, num_threads, std::move(panels)));
  } catch (const std::bad_alloc&) {
    return OutOfMemory(what + ": no memory");
  } catch (const std::exception& error) {
    return Internal(what + ": " + error.what());
  }
}

void CpuBackend::For(size_t count, size_t chunk, size_t cost, RangeBody body) {
  if (count == 0) return;
  if (count * cost < kMinParallelCost || num_threads() == 1) return body(0, count, 0);
  pool_.ParallelFor(count, chunk, body);
}

void CpuBackend::Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
                       float* out) {
  For(ids.size(), 8, table.cols, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = static_cast<size_t>(ids[i]);
      assert(ids[i] >= 0 && row < table.rows);
      kernels_.dequantize(table.type, table.data + row * table.row_bytes(), table.cols,
                          out + i * table.cols);
      kernels_.scale(out + i * table.cols, scale, table.cols);
    }
  });
}

void CpuBackend::RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
                         float* y) {
  For(rows, 8, 2 * cols, [&](size_t begin, size_t end, int) {
    for (size_t r = begin; r < end; ++r)
      kernels_.rms_norm(x + r * cols, cols, weight, eps, y + r * cols);
  });
}

void CpuBackend::MatMul(const WeightMatrix& w, const float* x, size_t rows, float* y) {
  assert(RowBytes(w.type, w.cols).has_value());
  const size_t row_bytes = w.row_bytes();
  const size_t panel_rows = kPanelFloats / std::max<size_t>(w.cols, 1);
  const size_t chunk = RowChunk(w.rows, w.cols, num_threads());
  if (rows == 1 || panel_rows < 2) {
    For(w.rows, chunk, w.cols * rows, [&](size_t begin, size_t end, int) {
      for (size_t r = 0; r < rows; ++r) {
        kernels_.gemv(w.type, w.data + begin * row_bytes, end - begin, w.cols, x + r * w.cols,
                      y + r * w.rows + begin);
      }
    });
    return;
  }
  For(w.rows, std::min(chunk, panel_rows / 2 * 2), w.cols * rows,
      [&](size_t begin, size_t end, int thread) {
        float* panel = Panel(thread);
        for (size_t n = begin; n < end; n += panel_rows) {
          const size_t count = std::min(panel_rows, end - n);
          for (size_t i = 0; i < count; ++i) {
            kernels_.dequantize(w.type, w.data + (n + i) * row_bytes, w.cols, panel + i * w.cols);
          }
          kernels_.gemm(panel, count, w.cols, x, rows, y + n, w.rows);
        }
      });
}

void CpuBackend::Rope(float* x, size_t rows, size_t heads, size_t head_dim, const float* cos,
                      const float* sin, RopeLayout layout) {
  assert(head_dim % 2 == 0);
  const auto rotate =
      layout == RopeLayout::kHalves ? kernels_.rope_halves : kernels_.rope_interleaved;
  For(rows, 8, heads * head_dim, [&](size_t begin, size_t end, int) {
    for (size_t r = begin; r < end; ++r) {
      rotate(x + r * heads * head_dim, heads, head_dim, cos + r * head_dim / 2,
             sin + r * head_dim / 2);
    }
  });
}

void CpuBackend::AppendKv(const KvLayer& kv, const float* k, const float* v, size_t rows,
                          size_t first_position) {
  assert(first_position + rows <= kv.capacity);
  const size_t dim = kv.head_dim;
  const auto store = [&](KvType type, std::byte* base, size_t index, const float* src) {
    std::byte* to = base + index * dim * KvValueBytes(type);
    if (type == KvType::kF16) {
      kernels_.floats_to_halves(src, dim, reinterpret_cast<uint16_t*>(to));
    } else {
      std::copy_n(src, dim, reinterpret_cast<float*>(to));
    }
  };
  For(rows, 8, 2 * kv.num_kv_heads * dim, [&](size_t begin, size_t end, int) {
    for (size_t r = begin; r < end; ++r) {
      for (size_t h = 0; h < kv.num_kv_heads; ++h) {
        const size_t from = (r * kv.num_kv_heads + h) * dim;
        const size_t index = h * kv.capacity + first_position + r;
        store(kv.k_type, kv.k, index, k + from);
        store(kv.v_type, kv.v, index, v + from);
      }
    }
  });
}

void CpuBackend::Attention(const AttentionArgs& args) {
  const KvLayer& kv = *args.kv;
  assert(args.num_heads % kv.num_kv_heads == 0 && args.first_position + args.rows <= kv.capacity);
  const size_t dim = kv.head_dim;
  const size_t group = args.num_heads / kv.num_kv_heads;
  // A task takes all query heads of a key-value head; with fewer tasks than threads, a part of
  // them.
  size_t heads = group;
  while (heads > 1 && args.rows * kv.num_kv_heads * ((group + heads - 1) / heads) <
                          static_cast<size_t>(num_threads())) {
    heads = (heads + 1) / 2;
  }
  const size_t parts = (group + heads - 1) / heads;
  const size_t tasks_per_row = kv.num_kv_heads * parts;
  const size_t visible = args.first_position + args.rows;
  const size_t seen = args.window == 0 ? visible : std::min(visible, args.window);
  For(args.rows * tasks_per_row, 1, 2 * heads * dim * seen, [&](size_t begin, size_t end, int) {
    for (size_t task = begin; task < end; ++task) {
      const size_t row = task / tasks_per_row;
      const size_t kv_head = task % tasks_per_row / parts;
      const size_t first_head = kv_head * group + task % parts * heads;
      AttendArgs a;
      a.heads = std::min(heads, (kv_head + 1) * group - first_head);
      a.head_dim = dim;
      a.q = args.q + (row * args.num_heads + first_head) * dim;
      a.out = args.out + (row * args.num_heads + first_head) * dim;
      a.k = kv.k + kv_head * kv.capacity * dim * KvValueBytes(kv.k_type);
      a.v = kv.v + kv_head * kv.capacity * dim * KvValueBytes(kv.v_type);
      a.k_is_half = kv.k_type == KvType::kF16;
      a.v_is_half = kv.v_type == KvType::kF16;
      a.end = args.first_position + row + 1;
      a.begin = args.window != 0 && a.end > args.window ? a.end - args.window : 0;
      a.scale = args.scale;
      kernels_.attend(a);
    }
  });
}

void CpuBackend::GatedActivation(Activation activation, float* gate, const float* up,
                                 size_t count) {
  const auto apply = activation == Activation::kSilu ? kernels_.silu_mul : kernels_.gelu_mul;
  For(count, 4096, 8,
      [&](size_t begin, size_t end, int) { apply(gate + begin, up + begin, end - begin); });
}

void CpuBackend::Add(float* y, const float* x, size_t count) {
  For(count, 16384, 1,
      [&](size_t begin, size_t end, int) { kernels_.add(y + begin, x + begin, end - begin); });
}

Result<const CpuKernels*> SelectCpuKernels(const std::string& name) {
  const bool has_avx2 = GetCpuFeatures().avx2_fma_f16c;
#if defined(POCKETLM_HAVE_AVX2)
  const CpuKernels* avx2 = has_avx2 ? &kAvx2Kernels : nullptr;
#else
  const CpuKernels* avx2 = nullptr;
  (void)has_avx2;
#endif
  if (name == "reference" || (name.empty() && avx2 == nullptr)) return &kReferenceKernels;
  if (name == "avx2" || name.empty()) {
    if (avx2 == nullptr) return Unsupported("POCKETLM_CPU: avx2 is not available on this machine");
    return avx2;
  }
  return InvalidArgument("POCKETLM_CPU: expected reference or avx2, got " + Quote(name));
}

Result<std::unique_ptr<Backend>> CreateCpuBackend(int num_threads) {
  if (num_threads < 1) {
    return InvalidArgument("create backend: expected at least 1 thread, got " +
                           std::to_string(num_threads));
  }
  const char* forced = std::getenv("POCKETLM_CPU");
  POCKETLM_ASSIGN_OR_RETURN(const CpuKernels* kernels,
                            SelectCpuKernels(forced == nullptr ? "" : forced));
  return CpuBackend::Create(*kernels, num_threads);
}

void DequantizeRow(DType type, const std::byte* src, size_t values, float* dst) {
  kReferenceKernels.dequantize(type, src, values, dst);
}

}  // namespace pocketlm
