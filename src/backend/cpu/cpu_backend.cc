#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "backend/cpu/kv_store.h"
#include "backend/cpu/reference/packed.h"
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

// Units per claimed chunk, `cost` multiply-adds each: even, so that kernels that take two at a time rarely meet
// one.
size_t UnitChunk(size_t units, size_t cost, int threads) {
  const size_t fair = units / (static_cast<size_t>(threads) * kChunksPerThread);
  const size_t least = kMinChunkCost / std::max<size_t>(cost, 1);
  return RoundUp(std::max<size_t>({fair, least, 2}), 2);
}

// Tiles of packed weights that one call of a kernel takes: for a single row two, which fill a wide register; for
// many rows as many as an unpacked panel in the first- or second-level cache has.
constexpr size_t kGemvTiles = 2;
constexpr size_t kGemmTiles = 4;

size_t UnitTiles(size_t rows) { return rows == 1 ? kGemvTiles : kGemmTiles; }

size_t Units(const PackedMatrix& w, size_t unit_tiles) {
  return (w.tiles() + unit_tiles - 1) / unit_tiles;
}

// Runs the product on units [begin, end) of w; args.y is where the first of their rows goes.
void RunUnits(const CpuKernels& kernels, PackedProductArgs args, const PackedMatrix& w,
              size_t unit_tiles, size_t begin, size_t end) {
  args.w = &w;
  if (args.x_rows == 1) {
    args.tile_begin = begin * unit_tiles;
    args.tile_end = std::min(w.tiles(), end * unit_tiles);
    return kernels.packed_gemv(args);
  }
  for (size_t unit = begin; unit < end; ++unit) {
    args.tile_begin = unit * unit_tiles;
    args.tile_end = std::min(w.tiles(), (unit + 1) * unit_tiles);
    kernels.packed_gemm(args);
    args.y += unit_tiles * kTileRows;
  }
}

}  // namespace

CpuBackend::CpuBackend(const CpuKernels& kernels, const BackendOptions& options)
    : kernels_(kernels), options_(options), pool_(options.num_threads), attention_(kernels) {}

Result<std::unique_ptr<Backend>> CpuBackend::Create(const CpuKernels& kernels,
                                                    const BackendOptions& options) {
  const std::string what = "create backend: " + std::to_string(options.num_threads) + " threads";
  try {
    return std::unique_ptr<Backend>(new CpuBackend(kernels, options));
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

Status CpuBackend::Reserve(const BackendLimits& limits) {
  POCKETLM_RETURN_IF_ERROR(scratch_.Reserve(num_threads(), limits));
  return attention_.Reserve(num_threads(), limits);
}

void CpuBackend::Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
                       float* out) {
  For(ids.size(), 8, table.cols, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = static_cast<size_t>(ids[i]);
      assert(ids[i] >= 0 && row < table.rows);
      DequantizeRows(table, row, row + 1, out + i * table.cols);
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

void CpuBackend::DequantizeRows(const WeightMatrix& w, size_t begin, size_t end, float* panel) {
  for (size_t n = begin; n < end; ++n, panel += w.cols) {
    if (w.packed) {
      UnpackRow(*w.packed, n, panel);
    } else {
      kernels_.dequantize(w.type, w.data + n * w.row_bytes(), w.cols, panel);
    }
  }
}

QuantizedRows CpuBackend::QuantizeInput(const MatMulInput& input, size_t cols, size_t group_size) {
  const size_t groups = cols / group_size;
  For(input.rows, 8, 2 * cols, [&](size_t begin, size_t end, int thread) {
    for (size_t r = begin; r < end; ++r) {
      const float* x = input.x + r * cols;
      if (input.norm_weight != nullptr) {
        kernels_.rms_norm(x, cols, input.norm_weight, input.norm_eps, scratch_.row(thread));
        x = scratch_.row(thread);
      }
      kernels_.quantize_row(x, cols, group_size, scratch_.codes() + r * cols,
                            scratch_.scales() + r * groups, scratch_.sums() + r * groups,
                            scratch_.code_sums() + r * groups);
    }
  });
  return {scratch_.codes(), scratch_.scales(), scratch_.sums(), scratch_.code_sums()};
}

const float* CpuBackend::NormalizeInput(const MatMulInput& input, size_t cols) {
  if (input.norm_weight == nullptr) return input.x;
  RmsNorm(input.x, input.rows, cols, input.norm_weight, input.norm_eps, scratch_.normed());
  return scratch_.normed();
}

void CpuBackend::MatMul(const MatMulInput& input, std::span<const MatMulOutput> outputs,
                        bool accumulate) {
  const size_t cols = outputs.front().w->cols;
  const float* floats = nullptr;
  for (size_t i = 0; i < outputs.size();) {
    const WeightMatrix& w = *outputs[i].w;
    if (!UsesInt8(w)) {
      if (floats == nullptr) floats = NormalizeInput(input, cols);
      FloatProduct(floats, input.rows, outputs[i++], accumulate);
      continue;
    }
    // A run of packed weights that take the same quantized input.
    const size_t group_size = w.packed->layout.group_size;
    size_t end = i + 1;
    while (end < outputs.size() && UsesInt8(*outputs[end].w) &&
           outputs[end].w->packed->layout.group_size == group_size) {
      ++end;
    }
    PackedProducts(QuantizeInput(input, cols, group_size), input.rows, outputs.subspan(i, end - i),
                   accumulate);
    i = end;
  }
}

void CpuBackend::PackedProducts(const QuantizedRows& x, size_t rows,
                                std::span<const MatMulOutput> outputs, bool accumulate) {
  const size_t unit_tiles = UnitTiles(rows);
  const size_t cost = unit_tiles * kTileRows * outputs.front().w->cols * rows;
  size_t units = 0;
  for (const MatMulOutput& output : outputs) units += Units(*output.w->packed, unit_tiles);
  For(units, UnitChunk(units, cost, num_threads()), cost,
      [&](size_t begin, size_t end, int thread) {
        PackedProductArgs args;
        args.x = x;
        args.x_rows = rows;
        args.accumulate = accumulate;
        args.panel = scratch_.panel(thread);
        for (const MatMulOutput& output : outputs) {
          const size_t count = Units(*output.w->packed, unit_tiles);
          args.y = output.y + begin * unit_tiles * kTileRows;
          args.y_stride = output.w->rows;
          if (begin < count)
            RunUnits(kernels_, args, *output.w->packed, unit_tiles, begin, std::min(end, count));
          if (end <= count) return;
          begin = begin > count ? begin - count : 0;
          end -= count;
        }
      });
}

void CpuBackend::FloatProduct(const float* x, size_t rows, const MatMulOutput& output,
                              bool accumulate) {
  const WeightMatrix& w = *output.w;
  const bool by_rows = rows == 1 && !w.packed;
  const size_t panel_rows = by_rows ? Scratch::kMinOutputs : Scratch::kPanelRows;
  For(w.rows, std::min(UnitChunk(w.rows, w.cols * rows, num_threads()), panel_rows), w.cols * rows,
      [&](size_t begin, size_t end, int thread) {
        float* panel = reinterpret_cast<float*>(scratch_.panel(thread));
        float* out = scratch_.outputs(thread);
        for (size_t n = begin; n < end; n += panel_rows) {
          const size_t count = std::min(panel_rows, end - n);
          if (by_rows) {
            kernels_.gemv(w.type, w.data + n * w.row_bytes(), count, w.cols, x, out);
          } else {
            DequantizeRows(w, n, n + count, panel);
            kernels_.gemm(panel, count, w.cols, x, rows, out, count);
          }
          for (size_t r = 0; r < rows; ++r) {
            float* y = output.y + r * w.rows + n;
            if (accumulate) {
              kernels_.add(y, out + r * count, count);
            } else {
              std::copy_n(out + r * count, count, y);
            }
          }
        }
      });
}

void CpuBackend::GatedMatMul(const MatMulInput& input, const WeightMatrix& gate,
                             const WeightMatrix& up, Activation activation, float* y) {
  const auto apply = activation == Activation::kSilu ? kernels_.silu_mul : kernels_.gelu_mul;
  const size_t rows = input.rows;
  const bool fused = UsesInt8(gate) && UsesInt8(up) &&
                     gate.packed->layout.group_size == up.packed->layout.group_size;
  if (!fused) {
    const MatMulOutput outputs[] = {{&gate, y}, {&up, scratch_.gated()}};
    MatMul(input, outputs, false);
    For(rows * gate.rows, 4096, 8, [&](size_t begin, size_t end, int) {
      apply(y + begin, scratch_.gated() + begin, end - begin);
    });
    return;
  }
  const QuantizedRows x = QuantizeInput(input, gate.cols, gate.packed->layout.group_size);
  const size_t unit_tiles = UnitTiles(rows);
  const size_t units = Units(*gate.packed, unit_tiles);
  const size_t cost = 2 * unit_tiles * kTileRows * gate.cols * rows;
  // As many units as the outputs kept aside allow.
  const size_t most = rows == 1 ? Scratch::kMinOutputs / (unit_tiles * kTileRows) : 1;
  For(units, UnitChunk(units, cost, num_threads()), cost,
      [&](size_t begin, size_t end, int thread) {
        PackedProductArgs args;
        args.x = x;
        args.x_rows = rows;
        args.panel = scratch_.panel(thread);
        float* out = scratch_.outputs(thread);
        for (size_t unit = begin; unit < end; unit += most) {
          const size_t last = std::min(end, unit + most);
          const size_t n = unit * unit_tiles * kTileRows;
          const size_t count = std::min(last * unit_tiles * kTileRows, gate.rows) - n;
          args.y = y + n;
          args.y_stride = gate.rows;
          RunUnits(kernels_, args, *gate.packed, unit_tiles, unit, last);
          args.y = out;
          args.y_stride = count;
          RunUnits(kernels_, args, *up.packed, unit_tiles, unit, last);
          for (size_t r = 0; r < rows; ++r) apply(y + r * gate.rows + n, out + r * count, count);
        }
      });
}

void CpuBackend::RopeAppend(const RopeAppendArgs& args) {
  const KvLayer& kv = *args.kv;
  const size_t dim = kv.head_dim;
  assert(args.first_position + args.rows <= kv.capacity);
  const auto rotate =
      args.layout == RopeLayout::kHalves ? kernels_.rope_halves : kernels_.rope_interleaved;
  const auto prepare = [&](float* x, size_t heads, const float* norm, size_t row) {
    x += row * heads * dim;
    for (size_t h = 0; h < heads && norm != nullptr; ++h)
      kernels_.rms_norm(x + h * dim, dim, norm, args.norm_eps, x + h * dim);
    rotate(x, heads, dim, args.cos + row * dim / 2, args.sin + row * dim / 2);
  };
  For(args.rows, kKvTile, 4 * (args.num_heads + 2 * kv.num_kv_heads) * dim,
      [&](size_t begin, size_t end, int) {
        for (size_t r = begin; r < end; ++r) {
          prepare(args.q, args.num_heads, args.q_norm, r);
          prepare(args.k, kv.num_kv_heads, args.k_norm, r);
          for (size_t h = 0; h < kv.num_kv_heads; ++h) {
            const size_t from = (r * kv.num_kv_heads + h) * dim;
            StoreKey(kernels_, kv, h, args.first_position + r, args.k + from);
            StoreValue(kernels_, kv, h, args.first_position + r, args.v + from);
          }
        }
      });
}

void CpuBackend::Attention(const AttentionArgs& args) { attention_.Run(args, &pool_); }

void CpuBackend::Add(float* y, const float* x, size_t count) {
  For(count, 16384, 1,
      [&](size_t begin, size_t end, int) { kernels_.add(y + begin, x + begin, end - begin); });
}

namespace {

struct Candidate {
  const char* name;
  const CpuKernels* kernels;  // null if this build or CPU lacks it
};

// All tables, best last.
std::vector<Candidate> Candidates() {
  std::vector<Candidate> out = {{"reference", &kReferenceKernels}};
  const auto add = [&](const char* name, const CpuKernels* kernels, bool usable) {
    out.push_back({name, usable ? kernels : nullptr});
  };
  [[maybe_unused]] const CpuFeatures& cpu = GetCpuFeatures();
#if defined(POCKETLM_HAVE_X86)
  add("avx2", &kAvx2Kernels, cpu.avx2_fma_f16c);
  add("avxvnni", &kAvxVnniKernels, cpu.avx2_fma_f16c && cpu.avx_vnni);
  add("avx512vnni", &kAvx512VnniKernels, cpu.avx2_fma_f16c && cpu.avx512_vnni);
  add("amx", &kAmxKernels, cpu.avx2_fma_f16c && cpu.avx512_vnni && cpu.amx_int8);
#else
  for (const char* name : {"avx2", "avxvnni", "avx512vnni", "amx"}) add(name, nullptr, false);
#endif
#if defined(POCKETLM_HAVE_NEON)
  add("neon_dotprod", &kNeonDotprodKernels, cpu.neon_dotprod);
  add("neon_i8mm", &kNeonI8mmKernels, cpu.neon_dotprod && cpu.neon_i8mm);
#else
  for (const char* name : {"neon_dotprod", "neon_i8mm"}) add(name, nullptr, false);
#endif
  return out;
}

}  // namespace

Result<const CpuKernels*> SelectCpuKernels(const std::string& name) {
  const std::vector<Candidate> candidates = Candidates();
  std::string names, usable;
  const CpuKernels* best = nullptr;
  for (const Candidate& candidate : candidates) {
    names += (names.empty() ? "" : ", ") + std::string(candidate.name);
    if (candidate.kernels != nullptr) {
      usable += (usable.empty() ? "" : ", ") + std::string(candidate.name);
      best = candidate.kernels;
    }
    if (candidate.name != name) continue;
    if (candidate.kernels != nullptr) return candidate.kernels;
  }
  if (name.empty()) return best;
  for (const Candidate& candidate : candidates) {
    if (candidate.name == name) {
      return Unsupported("POCKETLM_CPU: " + name + " is not available on this machine, which has " +
                         usable);
    }
  }
  return InvalidArgument("POCKETLM_CPU: expected one of " + names + ", got " + Quote(name));
}

Result<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options) {
  if (options.num_threads < 1) {
    return InvalidArgument("create backend: expected at least 1 thread, got " +
                           std::to_string(options.num_threads));
  }
  const char* forced = std::getenv("POCKETLM_CPU");
  POCKETLM_ASSIGN_OR_RETURN(const CpuKernels* kernels,
                            SelectCpuKernels(forced == nullptr ? "" : forced));
  return CpuBackend::Create(*kernels, options);
}

uint64_t CpuBackendScratchBytes(const BackendOptions& options, const BackendLimits& limits) {
  return Scratch::Bytes(options.num_threads, limits) +
         BlockAttention::Bytes(options.num_threads, limits);
}

void DequantizeRow(DType type, const std::byte* src, size_t values, float* dst) {
  kReferenceKernels.dequantize(type, src, values, dst);
}

void UnpackRow(const PackedMatrix& w, size_t row, float* dst) { reference::UnpackRow(w, row, dst); }

}  // namespace pocketlm
