// The tensors of a model in both naming schemes, and where conversions take them from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compress/row_source.h"
#include "model/config.h"
#include "model/model_source.h"

namespace pocketlm {

enum class TensorRole {
  kVector,     // a norm's weights, rotary factors: always stored as F32
  kEmbedding,  // embed_tokens, which is the output head too if they are tied
  kHead,       // lm_head, untied
  kBody,       // every other matrix
};

struct ModelTensor {
  std::string hf_name;    // without "model.": "layers.0.self_attn.q_proj.weight"
  std::string gguf_name;  // "blk.0.attn_q.weight"
  TensorRole role = TensorRole::kBody;
  std::vector<uint64_t> shape;
  bool is_norm = false;  // stored as w − 1 if the config says so
  bool rotary = false;   // q_proj, k_proj: its rows follow the config's rope_layout

  // The values; the files behind it stay open as long as the list's owner keeps them.
  std::shared_ptr<const RowSource> rows;
  // How they are stored now, "" if they are not.
  std::string stored_type;
  // Stored with more than 4 bits a weight, but quantized.
  bool finer_than_4_bits = false;
};

// Names, roles and shapes of all tensors of a model of this shape, in the order in which a forward pass reads them,
// without rows. `has_rope_factors`: with the vector of divisors of rotary frequencies.
std::vector<ModelTensor> ListModelTensors(const ModelConfig& config, bool has_rope_factors);

// The tensors of an opened model, checked as at load (CollectWeights). Norm weights come as the kernels use them, with
// the "+1" of Gemma's convention applied. `source` must outlive the result.
Result<std::vector<ModelTensor>> TensorsOf(const ModelSource& source);

}  // namespace pocketlm
