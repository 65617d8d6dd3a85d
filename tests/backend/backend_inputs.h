// Backends for tests: any kernel table, any number of threads, room for the given sizes.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/status.h"
#include "isa_tables.h"
#include "kernel_inputs.h"
#include "packed_inputs.h"

namespace pocketlm::testing {

inline std::unique_ptr<Backend> MakeBackend(const CpuKernels& kernels, int threads,
                                            const BackendLimits& limits,
                                            bool float_activations = false) {
  BackendOptions options;
  options.num_threads = threads;
  options.float_activations = float_activations;
  auto backend = CpuBackend::Create(kernels, options);
  POCKETLM_CHECK(backend.ok());
  POCKETLM_CHECK((*backend)->Reserve(limits).ok());
  return std::move(backend).value();
}

// One thread of the reference.
inline std::unique_ptr<Backend> ReferenceBackend(const BackendLimits& limits,
                                                 bool float_activations = false) {
  return MakeBackend(kReferenceKernels, 1, limits, float_activations);
}

// Calls body(backend, "name, n threads") for every table of this CPU and each number of threads.
template <typename Body>
void ForEachBackend(const BackendLimits& limits, const std::vector<int>& threads, const Body& body,
                    bool float_activations = false) {
  for (const CpuKernels* kernels : UsableTables()) {
    for (int n : threads) {
      const auto backend = MakeBackend(*kernels, n, limits, float_activations);
      body(*backend, std::string(kernels->name) + ", " + std::to_string(n) + " threads");
    }
  }
}

// A plain or packed matrix with random content.
class TestMatrix {
 public:
  TestMatrix(DType type, size_t rows, size_t cols, uint32_t seed)
      : plain_(RandomRows(type, rows, cols, seed)) {
    matrix_.type = type;
    matrix_.rows = rows;
    matrix_.cols = cols;
    matrix_.data = plain_.data();
  }
  TestMatrix(const PackedLayout& layout, size_t rows, size_t cols, uint32_t seed)
      : packed_(std::make_unique<PackedWeights>(layout, rows, cols, seed)) {
    matrix_.rows = rows;
    matrix_.cols = cols;
    matrix_.packed = packed_->matrix();
  }

  const WeightMatrix& matrix() const { return matrix_; }

  // The rows as floats, [rows, cols].
  std::vector<float> Floats() const {
    std::vector<float> out(matrix_.rows * matrix_.cols);
    for (size_t n = 0; n < matrix_.rows; ++n) {
      float* row = out.data() + n * matrix_.cols;
      if (matrix_.packed) {
        UnpackRow(*matrix_.packed, n, row);
      } else {
        DequantizeRow(matrix_.type, matrix_.data + n * matrix_.row_bytes(), matrix_.cols, row);
      }
    }
    return out;
  }

 private:
  std::vector<std::byte> plain_;
  std::unique_ptr<PackedWeights> packed_;
  WeightMatrix matrix_;
};

}  // namespace pocketlm::testing
