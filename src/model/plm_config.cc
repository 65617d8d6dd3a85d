// ModelConfig to and from the "config" object of a .plm file.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/json_fields.h"
#include "model/plm_metadata.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

// The number with the fewest digits that reads back as `value`: 1e-06, not 9.999999974752427e-07.
double ShortNumber(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double number = 0.0;
  std::from_chars(text, end, number);
  return static_cast<float>(number) == value ? number : static_cast<double>(value);
}

const char* ModelType(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3:
      return "qwen3";
    case Architecture::kLlama:
      return "llama";
    case Architecture::kGemma3:
      return "gemma3_text";
  }
  return "unknown";
}

const char* ModelClass(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen3:
      return "Qwen3ForCausalLM";
    case Architecture::kLlama:
      return "LlamaForCausalLM";
    case Architecture::kGemma3:
      return "Gemma3ForCausalLM";
  }
  return "unknown";
}

ordered_json RopeScalingToJson(const RopeScaling& scaling) {
  if (scaling.type == RopeScaling::Type::kNone) return nullptr;
  const bool linear = scaling.type == RopeScaling::Type::kLinear;
  return {{"rope_type", linear ? "linear" : "llama3"},
          {"factor", ShortNumber(scaling.factor)},
          {"low_freq_factor", ShortNumber(scaling.low_freq_factor)},
          {"high_freq_factor", ShortNumber(scaling.high_freq_factor)},
          {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
}

void AddSlidingWindow(const ModelConfig& c, ordered_json* out) {
  if (c.sliding_window == 0) {
    (*out)["sliding_window"] = nullptr;  // leaving it out would mean a default
    return;
  }
  (*out)["sliding_window"] = c.sliding_window;
  ordered_json types = ordered_json::array();
  for (size_t i = 0; i < c.num_hidden_layers; ++i)
    types.push_back(c.LayerIsSliding(i) ? "sliding_attention" : "full_attention");
  (*out)["layer_types"] = std::move(types);
}

}  // namespace

ordered_json ConfigToPlmJson(const ModelConfig& c) {
  ordered_json out = {
      {"model_type", ModelType(c.architecture)},
      {"vocab_size", c.vocab_size},
      {"hidden_size", c.hidden_size},
      {"intermediate_size", c.intermediate_size},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_attention_heads", c.num_attention_heads},
      {"num_key_value_heads", c.num_key_value_heads},
      {"head_dim", c.head_dim},
      {"max_position_embeddings", c.max_position_embeddings},
      {"rms_norm_eps", ShortNumber(c.rms_norm_eps)},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"rope_theta", ShortNumber(c.rope_theta)},
      {"rope_scaling", RopeScalingToJson(c.rope_scaling)},
  };
  const bool gemma = c.architecture == Architecture::kGemma3;
  out[gemma ? "hidden_activation" : "hidden_act"] =
      c.hidden_activation == Activation::kSilu ? "silu" : "gelu_pytorch_tanh";
  out["rope_local_base_freq"] = ShortNumber(c.rope_local_base_freq);
  AddSlidingWindow(c, &out);
  // What Transformers derives from the class or the shape, and what depends on the file.
  out["rope_layout"] = c.rope_layout == RopeLayout::kHalves ? "halves" : "interleaved";
  out["embedding_scale"] = ShortNumber(c.embedding_scale);
  out["attention_scale"] = ShortNumber(c.attention_scale);
  out["has_qk_norm"] = c.has_qk_norm;
  out["has_post_norms"] = c.has_post_norms;
  out["norm_weights_minus_one"] = c.norm_weights_minus_one;
  return out;
}

Result<ordered_json> ConfigToHuggingFaceJson(const ModelConfig& c) {
  const bool gemma = c.architecture == Architecture::kGemma3;
  ordered_json out = {{"architectures", {ModelClass(c.architecture)}}};
  out.update(ConfigToPlmJson(c));
  for (const char* key : {"rope_layout", "embedding_scale", "attention_scale", "has_qk_norm",
                          "has_post_norms", "norm_weights_minus_one"})
    out.erase(key);
  if (gemma) {
    // The scale is what Transformers makes of this number, which is a whole one there.
    const double scale = static_cast<double>(c.attention_scale);
    out["query_pre_attn_scalar"] = std::llround(std::min(1.0 / (scale * scale), 1e15));
    out["final_logit_softcapping"] = nullptr;
    out["attn_logit_softcapping"] = nullptr;
  } else {
    out.erase("rope_local_base_freq");
    out["attention_bias"] = false;
  }
  // What this says is what it was made of, or else it cannot be said.
  POCKETLM_ASSIGN_OR_RETURN(ModelConfig read, ConfigFromHuggingFace(out));
  read.norm_weights_minus_one = c.norm_weights_minus_one;          // the weights' matter
  if (!gemma) read.rope_local_base_freq = c.rope_local_base_freq;  // which nothing uses
  const ordered_json meant = ConfigToPlmJson(c), said = ConfigToPlmJson(read);
  for (const auto& [key, value] : meant.items()) {
    if (said.value(key, ordered_json()) != value)
      return Unsupported("config.json: " + key + ": expected " +
                         said.value(key, ordered_json()).dump() + ", which is all that a " +
                         ModelType(c.architecture) + " model can have, got " + value.dump());
  }
  return out;
}

Result<ModelConfig> ConfigFromPlmJson(const nlohmann::json& config) {
  POCKETLM_ASSIGN_OR_RETURN(ModelConfig c, ConfigFromHuggingFace(config));
  const JsonFields fields(config, "config");
  POCKETLM_ASSIGN_OR_RETURN(const std::string layout, fields.StringOr("rope_layout", "halves"));
  if (layout != "halves" && layout != "interleaved") {
    return Unsupported("config: rope_layout: expected halves or interleaved, got " + Quote(layout));
  }
  c.rope_layout = layout == "halves" ? RopeLayout::kHalves : RopeLayout::kInterleaved;
  POCKETLM_RETURN_IF_ERROR(
      fields.FloatOr("embedding_scale", c.embedding_scale, &c.embedding_scale));
  if (!std::isfinite(c.embedding_scale) || c.embedding_scale <= 0.0f)
    return DataError("config: embedding_scale: expected a positive number");
  POCKETLM_RETURN_IF_ERROR(
      fields.FloatOr("attention_scale", c.attention_scale, &c.attention_scale));
  POCKETLM_RETURN_IF_ERROR(fields.BoolOr("has_qk_norm", c.has_qk_norm, &c.has_qk_norm));
  POCKETLM_RETURN_IF_ERROR(fields.BoolOr("has_post_norms", c.has_post_norms, &c.has_post_norms));
  POCKETLM_RETURN_IF_ERROR(
      fields.BoolOr("norm_weights_minus_one", c.norm_weights_minus_one, &c.norm_weights_minus_one));
  POCKETLM_RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace pocketlm
