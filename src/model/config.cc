#include "model/config.h"

#include <cmath>
#include <string>

namespace pocketlm {
namespace {

Status CheckRange(const char* name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return DataError("config: " + std::string(name) + ": expected " + std::to_string(low) + " to " +
                   std::to_string(high) + ", got " + std::to_string(value));
}

Status CheckPositive(const char* name, float value) {
  if (std::isfinite(value) && value > 0.0f) return OkStatus();
  return DataError("config: " + std::string(name) + ": expected a positive number, got " +
                   std::to_string(value));
}

}  // namespace

const char* ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3:
      return "qwen3";
    case Architecture::kLlama:
      return "llama";
    case Architecture::kGemma3:
      return "gemma3";
  }
  return "unknown";
}

Status ValidateConfig(const ModelConfig& c) {
  POCKETLM_RETURN_IF_ERROR(CheckRange("vocab_size", c.vocab_size, 1, 1u << 24));
  POCKETLM_RETURN_IF_ERROR(CheckRange("hidden_size", c.hidden_size, 1, 1u << 16));
  POCKETLM_RETURN_IF_ERROR(CheckRange("intermediate_size", c.intermediate_size, 1, 1u << 18));
  POCKETLM_RETURN_IF_ERROR(CheckRange("num_hidden_layers", c.num_hidden_layers, 1, kMaxLayers));
  POCKETLM_RETURN_IF_ERROR(CheckRange("num_attention_heads", c.num_attention_heads, 1, 1024));
  POCKETLM_RETURN_IF_ERROR(
      CheckRange("num_key_value_heads", c.num_key_value_heads, 1, c.num_attention_heads));
  POCKETLM_RETURN_IF_ERROR(CheckRange("head_dim", c.head_dim, 2, 1024));
  POCKETLM_RETURN_IF_ERROR(
      CheckRange("max_position_embeddings", c.max_position_embeddings, 1, 1u << 30));
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    return DataError("config: num_attention_heads: expected a multiple of num_key_value_heads (" +
                     std::to_string(c.num_key_value_heads) + "), got " +
                     std::to_string(c.num_attention_heads));
  }
  if (c.head_dim % 2 != 0)
    return DataError("config: head_dim: expected an even number, got " +
                     std::to_string(c.head_dim));
  POCKETLM_RETURN_IF_ERROR(CheckPositive("rms_norm_eps", c.rms_norm_eps));
  POCKETLM_RETURN_IF_ERROR(CheckPositive("rope_theta", c.rope_theta));
  POCKETLM_RETURN_IF_ERROR(CheckPositive("rope_local_base_freq", c.rope_local_base_freq));
  POCKETLM_RETURN_IF_ERROR(CheckPositive("attention_scale", c.attention_scale));
  POCKETLM_RETURN_IF_ERROR(CheckPositive("rope_scaling.factor", c.rope_scaling.factor));
  if (c.rope_scaling.type == RopeScaling::Type::kLlama3) {
    POCKETLM_RETURN_IF_ERROR(
        CheckPositive("rope_scaling.low_freq_factor", c.rope_scaling.low_freq_factor));
    POCKETLM_RETURN_IF_ERROR(
        CheckPositive("rope_scaling.high_freq_factor", c.rope_scaling.high_freq_factor));
    POCKETLM_RETURN_IF_ERROR(CheckRange("rope_scaling.original_max_position_embeddings",
                                        c.rope_scaling.original_max_position_embeddings, 1,
                                        1u << 30));
    if (c.rope_scaling.high_freq_factor <= c.rope_scaling.low_freq_factor) {
      return DataError("config: rope_scaling.high_freq_factor: expected more than low_freq_factor");
    }
  }
  return OkStatus();
}

}  // namespace pocketlm
