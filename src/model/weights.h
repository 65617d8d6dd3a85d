// The weights of a decoder: views of a mapped file for matrices, small owned copies for norms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/tensor_view.h"
#include "model/config.h"

namespace pocketlm {

// Norm vectors are float with Gemma's "+1" already applied; empty where the architecture has none.
struct LayerWeights {
  std::vector<float> attention_norm;         // [hidden_size], before attention (input_layernorm)
  std::vector<float> post_attention_norm;    // [hidden_size], on the output of attention (Gemma)
  std::vector<float> feedforward_norm;       // [hidden_size], before the MLP
  std::vector<float> post_feedforward_norm;  // [hidden_size], on the output of the MLP (Gemma)
  std::vector<float> q_norm;                 // [head_dim]
  std::vector<float> k_norm;                 // [head_dim]
  WeightMatrix q_proj;                       // [num_attention_heads * head_dim, hidden_size]
  WeightMatrix k_proj;                       // [num_key_value_heads * head_dim, hidden_size]
  WeightMatrix v_proj;                       // [num_key_value_heads * head_dim, hidden_size]
  WeightMatrix o_proj;                       // [hidden_size, num_attention_heads * head_dim]
  WeightMatrix gate_proj;                    // [intermediate_size, hidden_size]
  WeightMatrix up_proj;                      // [intermediate_size, hidden_size]
  WeightMatrix down_proj;                    // [hidden_size, intermediate_size]
};

struct ModelWeights {
  WeightMatrix embed_tokens;  // [vocab_size, hidden_size]
  WeightMatrix lm_head;       // [vocab_size, hidden_size]; the same bytes as embed_tokens if tied
  std::vector<float> norm;    // [hidden_size]
  // [head_dim / 2], divisors of the rotary frequencies; empty for none
  std::vector<float> rope_factors;
  std::vector<LayerWeights> layers;
};

// Finds a tensor by its two names (Hugging Face without the "model." prefix, GGUF); null if it is not there.
using TensorLookup = std::function<Result<const TensorView*>(const std::string& hf_name,
                                                             const std::string& gguf_name)>;

// Collects all weights and checks every shape against `config`, which has passed ValidateConfig. Matrices
// point into the file behind `lookup`, which must outlive the result. An untied head that the file lacks, and
// biases, which no supported architecture has, are errors.
Result<ModelWeights> CollectWeights(const ModelConfig& config, const TensorLookup& lookup);

}  // namespace pocketlm
