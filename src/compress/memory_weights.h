// The weights of a model in memory, made of what conversions read and write, to run it while it is being converted.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/encode_tensor.h"
#include "compress/model_tensors.h"
#include "model/config.h"
#include "model/weights.h"

namespace pocketlm {

// A matrix that the kernels can read, and its bytes. Moving it leaves weights() of the target valid.
class MemoryMatrix {
 public:
  // In 8 bits, groups of 32, which is near enough for measuring and fast; as floats where rows are no whole groups.
  // kDataError (row named): values that are not finite. kOutOfMemory.
  static Result<MemoryMatrix> Nearly(const RowSource& source, ThreadPool* pool);

  // What a conversion of `source` to `target` gave; nullopt for types other than packed ones and blocks with scales.
  static Result<std::optional<MemoryMatrix>> Encoded(const RowSource& source,
                                                     const TensorTarget& target,
                                                     const EncodedTensor& encoded,
                                                     ThreadPool* pool);

  const WeightMatrix& weights() const { return weights_; }

 private:
  static Result<MemoryMatrix> Packed(const RowSource& source, const PackedLayout& layout,
                                     const EncodedTensor& encoded);

  std::array<AlignedBuffer<std::byte>, 3> planes_;
  WeightMatrix weights_;
};

// The products of a layer by what enters them.
enum class LayerInput { kAttention, kOutput, kGateUp, kDown };
inline constexpr size_t kNumLayerInputs = 4;

struct LayerMatrix {
  const char* part;  // "self_attn.q_proj.weight"
  WeightMatrix LayerWeights::*member;
  LayerInput input;
};
inline constexpr size_t kNumLayerMatrices = 7;
std::span<const LayerMatrix, kNumLayerMatrices> LayerMatrices();

// "layers.3.mlp.up_proj.weight" is layer 3, part "mlp.up_proj.weight"; nullopt for names of other tensors.
struct LayerName {
  size_t layer = 0;
  std::string part;
};
std::optional<LayerName> ParseLayerName(const std::string& hf_name);

// The index of a part in LayerMatrices(); the part must be one of them.
size_t LayerMatrixIndex(const std::string& part);

// The values of a tensor of role kVector.
std::vector<float> VectorOf(const ModelTensor& tensor);

// Sets the norm of a layer that `part` names.
void SetLayerNorm(const ModelConfig& config, const ModelTensor& tensor, const std::string& part,
                  LayerWeights* weights);

}  // namespace pocketlm
