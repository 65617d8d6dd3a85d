// The shape and conventions of a decoder, in Hugging Face terms, whatever file it came from.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"

namespace pocketlm {

class GgufFile;

// More layers than any supported model has; bounds what a hostile file can make a loader allocate.
inline constexpr uint32_t kMaxLayers = 1024;

enum class Architecture { kQwen3, kLlama, kGemma3 };

// "qwen3", "llama", "gemma3".
const char* ArchitectureName(Architecture architecture);

// How rotary frequencies are stretched beyond the trained context (Transformers, modeling_rope_utils).
struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3 };
  Type type = Type::kNone;
  float factor = 1.0f;
  float low_freq_factor = 1.0f;  // llama3 only, as the next two
  float high_freq_factor = 4.0f;
  uint32_t original_max_position_embeddings = 8192;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  uint32_t vocab_size = 0;  // rows of the embedding table, padding rows included
  uint32_t hidden_size = 0;
  uint32_t intermediate_size = 0;
  uint32_t num_hidden_layers = 0;
  uint32_t num_attention_heads = 0;
  uint32_t num_key_value_heads = 0;
  uint32_t head_dim = 0;
  uint32_t max_position_embeddings = 0;  // tokens
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;

  float rope_theta = 10000.0f;            // of layers with full attention
  float rope_local_base_freq = 10000.0f;  // of layers with a sliding window
  RopeScaling rope_scaling;               // of layers with full attention
  RopeLayout rope_layout = RopeLayout::kHalves;

  uint32_t sliding_window = 0;       // positions, itself included; 0 = no such layers
  std::vector<bool> sliding_layers;  // [num_hidden_layers]; empty = none

  Activation hidden_activation = Activation::kSilu;
  float embedding_scale = 1.0f;  // multiplies embedding rows
  float attention_scale = 1.0f;  // multiplies q·k
  bool has_qk_norm = false;      // RMSNorm over each head of q and k
  bool has_post_norms = false;   // RMSNorm on the outputs of attention and MLP too (Gemma)
  // The file stores norm weights as w − 1 (Gemma in safetensors).
  bool norm_weights_minus_one = false;

  bool LayerIsSliding(size_t layer) const {
    return layer < sliding_layers.size() && sliding_layers[layer];
  }
};

// From GGUF metadata (gguf.md of the GGUF specification, keys "<architecture>.*"). `vocab_size` is taken from
// the embedding tensor. Errors name the key, what was expected and what was there.
Result<ModelConfig> ConfigFromGguf(const GgufFile& file);

// From a Transformers config.json, of the text model or of a model that nests it in "text_config".
Result<ModelConfig> ConfigFromHuggingFace(const nlohmann::json& config);

// Checks what later arithmetic relies on: sizes within limits, heads that divide, an even head_dim.
Status ValidateConfig(const ModelConfig& config);

}  // namespace pocketlm
