// ModelConfig from a Transformers config.json.
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/quote.h"
#include "model/config.h"
#include "model/json_fields.h"

namespace pocketlm {
namespace {

using nlohmann::json;

// The rotary settings of one kind of layer, in either generation of the format: rope_theta beside
// rope_scaling, or one object that holds both (rope_parameters, Transformers 5).
Status ReadRopeObject(const JsonFields& rope, float* theta, RopeScaling* scaling) {
  POCKETLM_RETURN_IF_ERROR(rope.FloatOr("rope_theta", *theta, theta));
  POCKETLM_ASSIGN_OR_RETURN(std::string type, rope.StringOr("rope_type", ""));
  if (type.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(type, rope.StringOr("type", "default"));
  }
  if (type == "default") return OkStatus();
  if (type != "linear" && type != "llama3") {
    return Unsupported("config: rope_type: expected default, linear or llama3, got " + type);
  }
  POCKETLM_RETURN_IF_ERROR(rope.FloatOr("factor", 1.0f, &scaling->factor));
  scaling->type = type == "linear" ? RopeScaling::Type::kLinear : RopeScaling::Type::kLlama3;
  POCKETLM_RETURN_IF_ERROR(rope.FloatOr("low_freq_factor", 1.0f, &scaling->low_freq_factor));
  POCKETLM_RETURN_IF_ERROR(rope.FloatOr("high_freq_factor", 4.0f, &scaling->high_freq_factor));
  return rope.U32Or("original_max_position_embeddings", 8192,
                    &scaling->original_max_position_embeddings);
}

Status ReadRope(const JsonFields& fields, ModelConfig* c) {
  const bool gemma = c->architecture == Architecture::kGemma3;
  POCKETLM_RETURN_IF_ERROR(fields.FloatOr("rope_theta", gemma ? 1e6f : 1e4f, &c->rope_theta));
  POCKETLM_RETURN_IF_ERROR(fields.FloatOr("rope_local_base_freq", 1e4f, &c->rope_local_base_freq));
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* value = fields.Find(key);
    if (value != nullptr && !value->is_object()) return fields.Wrong(key, "an object", *value);
  }
  if (const json* scaling = fields.Find("rope_scaling")) {
    POCKETLM_RETURN_IF_ERROR(ReadRopeObject(JsonFields(*scaling, "config.json: rope_scaling"),
                                            &c->rope_theta, &c->rope_scaling));
  }
  const json* parameters = fields.Find("rope_parameters");
  if (parameters == nullptr) return OkStatus();
  const JsonFields by_kind(*parameters, "config.json: rope_parameters");
  if (const json* full = by_kind.Find("full_attention")) {
    POCKETLM_RETURN_IF_ERROR(
        ReadRopeObject(JsonFields(*full, "config.json: rope_parameters.full_attention"),
                       &c->rope_theta, &c->rope_scaling));
    if (const json* sliding = by_kind.Find("sliding_attention")) {
      RopeScaling local;
      POCKETLM_RETURN_IF_ERROR(
          ReadRopeObject(JsonFields(*sliding, "config.json: rope_parameters.sliding_attention"),
                         &c->rope_local_base_freq, &local));
      if (local.type != RopeScaling::Type::kNone) {
        return Unsupported(
            "config: rope_parameters.sliding_attention: only the default rope_type is supported");
      }
    }
    return OkStatus();
  }
  return ReadRopeObject(by_kind, &c->rope_theta, &c->rope_scaling);
}

Status ReadSlidingLayers(const JsonFields& fields, ModelConfig* c) {
  // An explicit null switches it off; leaving it out does not.
  const bool by_default = c->architecture == Architecture::kGemma3 && !fields.Has("sliding_window");
  POCKETLM_RETURN_IF_ERROR(
      fields.U32Or("sliding_window", by_default ? 4096 : 0, &c->sliding_window));
  bool use = true;
  POCKETLM_RETURN_IF_ERROR(
      fields.BoolOr("use_sliding_window", c->architecture == Architecture::kGemma3, &use));
  if (!use) c->sliding_window = 0;
  if (c->sliding_window == 0) return OkStatus();
  if (c->architecture != Architecture::kGemma3) {
    return Unsupported(
        "config: use_sliding_window: only gemma3 is supported with a sliding window");
  }
  if (const json* types = fields.Find("layer_types")) {
    if (!types->is_array() || types->size() != c->num_hidden_layers) {
      return fields.Wrong("layer_types", "one entry for each layer", *types);
    }
    for (const json& type : *types) {
      if (type != "sliding_attention" && type != "full_attention") {
        return fields.Wrong("layer_types", "sliding_attention or full_attention", type);
      }
      c->sliding_layers.push_back(type == "sliding_attention");
    }
    return OkStatus();
  }
  uint32_t period = 0;
  POCKETLM_RETURN_IF_ERROR(fields.U32Or("sliding_window_pattern", 6, &period));
  if (period == 0) return DataError("config: sliding_window_pattern: expected at least 1, got 0");
  for (uint32_t i = 0; i < c->num_hidden_layers; ++i)
    c->sliding_layers.push_back((i + 1) % period != 0);
  return OkStatus();
}

Status ReadActivation(const JsonFields& fields, ModelConfig* c) {
  const bool gemma = c->architecture == Architecture::kGemma3;
  const char* key =
      gemma && fields.Find("hidden_activation") != nullptr ? "hidden_activation" : "hidden_act";
  POCKETLM_ASSIGN_OR_RETURN(const std::string name,
                            fields.StringOr(key, gemma ? "gelu_pytorch_tanh" : "silu"));
  if (name == "silu") {
    c->hidden_activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh") {
    c->hidden_activation = Activation::kGeluTanh;
  } else {
    return Unsupported("config: " + std::string(key) +
                       ": expected silu or gelu_pytorch_tanh, got " + name);
  }
  return OkStatus();
}

Status ReadGemma3(const JsonFields& fields, ModelConfig* c) {
  c->has_qk_norm = true;
  c->has_post_norms = true;
  c->norm_weights_minus_one = true;
  c->embedding_scale = std::sqrt(static_cast<float>(c->hidden_size));
  float scalar = 0.0f;
  POCKETLM_RETURN_IF_ERROR(fields.FloatOr("query_pre_attn_scalar", 256.0f, &scalar));
  if (!(scalar > 0.0f))
    return DataError("config: query_pre_attn_scalar: expected a positive number");
  c->attention_scale = 1.0f / std::sqrt(scalar);
  for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    if (fields.Find(key) != nullptr)
      return Unsupported(std::string("config: ") + key + ": soft caps are not supported");
  }
  return OkStatus();
}

Status ReadShape(const JsonFields& fields, ModelConfig* c) {
  // Defaults are those of the Transformers classes where a config may leave them out.
  const bool gemma = c->architecture == Architecture::kGemma3;
  // Published Gemma 3 configs leave out the sizes in which they equal those.
  POCKETLM_RETURN_IF_ERROR(gemma ? fields.U32Or("vocab_size", 262208, &c->vocab_size)
                                 : fields.U32("vocab_size", &c->vocab_size));
  POCKETLM_RETURN_IF_ERROR(fields.U32("hidden_size", &c->hidden_size));
  POCKETLM_RETURN_IF_ERROR(fields.U32("intermediate_size", &c->intermediate_size));
  POCKETLM_RETURN_IF_ERROR(fields.U32("num_hidden_layers", &c->num_hidden_layers));
  POCKETLM_RETURN_IF_ERROR(gemma ? fields.U32Or("num_attention_heads", 8, &c->num_attention_heads)
                                 : fields.U32("num_attention_heads", &c->num_attention_heads));
  POCKETLM_RETURN_IF_ERROR(fields.U32Or("num_key_value_heads", gemma ? 4 : c->num_attention_heads,
                                        &c->num_key_value_heads));
  if (c->num_attention_heads == 0)
    return DataError("config: num_attention_heads: expected at least 1, got 0");
  const uint32_t default_head_dim = c->architecture == Architecture::kQwen3 ? 128
                                    : gemma                                 ? 256
                                            : c->hidden_size / c->num_attention_heads;
  POCKETLM_RETURN_IF_ERROR(fields.U32Or("head_dim", default_head_dim, &c->head_dim));
  const uint32_t default_positions = c->architecture == Architecture::kLlama ? 2048
                                     : gemma                                 ? 131072
                                                                             : 32768;
  POCKETLM_RETURN_IF_ERROR(
      fields.U32Or("max_position_embeddings", default_positions, &c->max_position_embeddings));
  POCKETLM_RETURN_IF_ERROR(fields.FloatOr("rms_norm_eps", 1e-6f, &c->rms_norm_eps));
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool bias = false;
    POCKETLM_RETURN_IF_ERROR(fields.BoolOr(key, false, &bias));
    if (bias) return Unsupported(std::string("config: ") + key + ": biases are not supported");
  }
  if (c->num_hidden_layers > kMaxLayers)
    return DataError("config: num_hidden_layers: expected at most " + std::to_string(kMaxLayers));
  return OkStatus();
}

Result<Architecture> ArchitectureFromModelType(const std::string& type) {
  if (type == "qwen3") return Architecture::kQwen3;
  if (type == "llama") return Architecture::kLlama;
  if (type == "gemma3_text" || type == "gemma3") return Architecture::kGemma3;
  return Unsupported("config: model_type: expected qwen3, llama, gemma3 or gemma3_text, got " +
                     Quote(type));
}

}  // namespace

Result<ModelConfig> ConfigFromHuggingFace(const json& config) {
  if (!config.is_object()) return DataError("config.json: expected an object");
  const JsonFields outer(config, "config.json");
  const json* nested = outer.Find("text_config");
  if (nested != nullptr && !nested->is_object())
    return outer.Wrong("text_config", "an object", *nested);
  const JsonFields fields(nested != nullptr ? *nested : config,
                          nested != nullptr ? "config.json: text_config" : "config.json");
  POCKETLM_ASSIGN_OR_RETURN(const std::string outer_type, outer.StringOr("model_type", ""));
  POCKETLM_ASSIGN_OR_RETURN(const std::string type,
                            fields.StringOr("model_type", outer_type.c_str()));
  ModelConfig c;
  POCKETLM_ASSIGN_OR_RETURN(c.architecture, ArchitectureFromModelType(type));
  POCKETLM_RETURN_IF_ERROR(ReadShape(fields, &c));
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  c.has_qk_norm = c.architecture == Architecture::kQwen3;
  POCKETLM_RETURN_IF_ERROR(ReadRope(fields, &c));
  POCKETLM_RETURN_IF_ERROR(ReadSlidingLayers(fields, &c));
  POCKETLM_RETURN_IF_ERROR(ReadActivation(fields, &c));
  if (c.architecture == Architecture::kGemma3) POCKETLM_RETURN_IF_ERROR(ReadGemma3(fields, &c));
  // Tying may be declared inside text_config only, or beside it.
  bool tied = c.architecture == Architecture::kGemma3;
  POCKETLM_RETURN_IF_ERROR(outer.BoolOr("tie_word_embeddings", tied, &tied));
  POCKETLM_RETURN_IF_ERROR(fields.BoolOr("tie_word_embeddings", tied, &tied));
  c.tie_word_embeddings = tied;
  POCKETLM_RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace pocketlm
