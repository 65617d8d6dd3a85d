// What rounding costs a model, matrix by matrix: the base of a mix of types (size_budget.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/encode_tensor.h"
#include "compress/model_tensors.h"
#include "model/config.h"

namespace pocketlm {

// Matrices that take one type together, as indices of `tensors`: q_proj and k_proj, gate_proj and up_proj, whose products
// are computed together; each other matrix for itself. Vectors are in none.
using TensorUnits = std::vector<std::vector<size_t>>;
TensorUnits UnitsOf(const std::vector<ModelTensor>& tensors);

// For each unit, how far the model's next-token distribution moves if its matrices alone are stored as targets[index] says:
// the mean Kullback-Leibler divergence, in nats, over 256 places of the windows. The other matrices are in 8 bits. Of each window, the first
// 128 tokens are read, of eight windows at most.
// Memory: the model in 8 bits, logits of 256 places. `proceed` gets a fraction in [0, 1]; false is kCancelled.
Result<std::vector<double>> MeasureSensitivity(
    const ModelConfig& config, const std::vector<ModelTensor>& tensors, const TensorUnits& units,
    const std::vector<TensorTarget>& targets, const std::vector<std::vector<int32_t>>& windows,
    ThreadPool* pool, const std::function<bool(double)>& proceed);

}  // namespace pocketlm
