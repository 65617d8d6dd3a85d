// The CPU backend: the ops of backend.h, split over a thread pool and computed by one kernel table.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"

namespace pocketlm {

// The table that `name` asks for ("reference", "avx2"; "" for the best of this machine). An unknown
// name is kInvalidArgument, one that this build or CPU lacks kUnsupported.
Result<const CpuKernels*> SelectCpuKernels(const std::string& name);

class CpuBackend final : public Backend {
 public:
  // `kernels` outlives the backend; num_threads ≥ 1. kOutOfMemory, or kInternal if no thread can be
  // started.
  static Result<std::unique_ptr<Backend>> Create(const CpuKernels& kernels, int num_threads);

  const char* name() const override { return kernels_.name; }
  int num_threads() const override { return pool_.num_threads(); }

  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
             float* out) override;
  void RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
               float* y) override;
  void MatMul(const WeightMatrix& w, const float* x, size_t rows, float* y) override;
  void Rope(float* x, size_t rows, size_t heads, size_t head_dim, const float* cos,
            const float* sin, RopeLayout layout) override;
  void AppendKv(const KvLayer& kv, const float* k, const float* v, size_t rows,
                size_t first_position) override;
  void Attention(const AttentionArgs& args) override;
  void GatedActivation(Activation activation, float* gate, const float* up, size_t count) override;
  void Add(float* y, const float* x, size_t count) override;

 private:
  CpuBackend(const CpuKernels& kernels, int num_threads, AlignedBuffer<float> panels);

  // Runs body(begin, end, thread) over [0, count), on this thread alone if the job is smaller than
  // what waking the workers costs. `cost` is roughly the number of multiply-adds per index.
  void For(size_t count, size_t chunk, size_t cost, RangeBody body);

  // A panel of dequantized weight rows for one thread.
  float* Panel(int thread) { return panels_.data() + static_cast<size_t>(thread) * kPanelFloats; }

  static constexpr size_t kPanelFloats = 64 * 1024;  // 256 KiB: within the second-level cache

  const CpuKernels& kernels_;
  ThreadPool pool_;
  AlignedBuffer<float> panels_;  // num_threads × kPanelFloats
};

}  // namespace pocketlm
