// The CPU backend: the ops of backend.h, split over a thread pool and computed by one kernel table.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/attention.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/scratch.h"
#include "base/thread_pool.h"

namespace pocketlm {

// The table that `name` asks for (see Backend::name; "" for the best of this machine). An unknown
// name is kInvalidArgument, one that this build or CPU lacks kUnsupported.
Result<const CpuKernels*> SelectCpuKernels(const std::string& name);

class CpuBackend final : public Backend {
 public:
  // `kernels` outlives the backend; options.num_threads ≥ 1. kOutOfMemory, or kInternal if no thread can be
  // started.
  static Result<std::unique_ptr<Backend>> Create(const CpuKernels& kernels,
                                                 const BackendOptions& options);

  const char* name() const override { return kernels_.name; }
  int num_threads() const override { return pool_.num_threads(); }

  Status Reserve(const BackendLimits& limits) override;
  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
             float* out) override;
  void RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
               float* y) override;
  void MatMul(const MatMulInput& input, std::span<const MatMulOutput> outputs,
              bool accumulate) override;
  void GatedMatMul(const MatMulInput& input, const WeightMatrix& gate, const WeightMatrix& up,
                   Activation activation, float* y) override;
  void RopeAppend(const RopeAppendArgs& args) override;
  void Attention(const AttentionArgs& args) override;
  void Add(float* y, const float* x, size_t count) override;

 private:
  CpuBackend(const CpuKernels& kernels, const BackendOptions& options);

  // Runs body(begin, end, thread) over [0, count), on this thread alone if the job is smaller than
  // what waking the workers costs. `cost` is roughly the number of multiply-adds per index.
  void For(size_t count, size_t chunk, size_t cost, RangeBody body);

  bool UsesInt8(const WeightMatrix& w) const { return w.packed && !options_.float_activations; }

  // The input as int8 codes in scratch_, for weights of `cols` inputs in groups of `group_size`.
  QuantizedRows QuantizeInput(const MatMulInput& input, size_t cols, size_t group_size);
  // The input as floats, in scratch_ if it is to be normalized.
  const float* NormalizeInput(const MatMulInput& input, size_t cols);

  // Products of packed weights of one group size with quantized rows.
  void PackedProducts(const QuantizedRows& x, size_t rows, std::span<const MatMulOutput> outputs,
                      bool accumulate);
  void FloatProduct(const float* x, size_t rows, const MatMulOutput& output, bool accumulate);
  // Rows [begin, end) of w, at most scratch_.panel_rows(w.cols), as floats.
  void DequantizeRows(const WeightMatrix& w, size_t begin, size_t end, float* panel);

  const CpuKernels& kernels_;
  BackendOptions options_;
  ThreadPool pool_;
  Scratch scratch_;
  BlockAttention attention_;
};

}  // namespace pocketlm
