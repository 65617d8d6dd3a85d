// ModelConfig from GGUF metadata.
#include <cmath>
#include <string>

#include "base/quote.h"
#include "format/gguf.h"
#include "model/config.h"

namespace pocketlm {
namespace {

// Reads "<architecture>.<suffix>" keys that must fit 32 bits.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  bool Has(const char* suffix) const { return file_.HasKey(prefix_ + suffix); }

  Status U32(const char* suffix, uint32_t* out) const {
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t value, file_.GetUint(prefix_ + suffix));
    return Narrow(suffix, value, out);
  }

  Status U32Or(const char* suffix, uint32_t absent, uint32_t* out) const {
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t value, file_.GetUintOr(prefix_ + suffix, absent));
    return Narrow(suffix, value, out);
  }

  Status Float(const char* suffix, float* out) const {
    POCKETLM_ASSIGN_OR_RETURN(const double value, file_.GetFloat(prefix_ + suffix));
    *out = static_cast<float>(value);
    return OkStatus();
  }

  Status FloatOr(const char* suffix, double absent, float* out) const {
    POCKETLM_ASSIGN_OR_RETURN(const double value, file_.GetFloatOr(prefix_ + suffix, absent));
    *out = static_cast<float>(value);
    return OkStatus();
  }

  Result<std::string> StringOr(const char* suffix, const char* absent) const {
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view value,
                              file_.GetStringOr(prefix_ + suffix, absent));
    return std::string(value);
  }

 private:
  Status Narrow(const char* suffix, uint64_t value, uint32_t* out) const {
    if (value > UINT32_MAX)
      return DataError("gguf: " + prefix_ + suffix + ": value " + std::to_string(value) +
                       " is too large");
    *out = static_cast<uint32_t>(value);
    return OkStatus();
  }

  const GgufFile& file_;
  std::string prefix_;
};

Status ReadShape(const GgufFile& file, const Keys& keys, ModelConfig* c) {
  POCKETLM_RETURN_IF_ERROR(keys.U32("embedding_length", &c->hidden_size));
  POCKETLM_RETURN_IF_ERROR(keys.U32("feed_forward_length", &c->intermediate_size));
  POCKETLM_RETURN_IF_ERROR(keys.U32("block_count", &c->num_hidden_layers));
  POCKETLM_RETURN_IF_ERROR(keys.U32("attention.head_count", &c->num_attention_heads));
  POCKETLM_RETURN_IF_ERROR(
      keys.U32Or("attention.head_count_kv", c->num_attention_heads, &c->num_key_value_heads));
  POCKETLM_RETURN_IF_ERROR(keys.U32("context_length", &c->max_position_embeddings));
  POCKETLM_RETURN_IF_ERROR(keys.Float("attention.layer_norm_rms_epsilon", &c->rms_norm_eps));
  if (c->num_attention_heads == 0)
    return DataError("gguf: attention.head_count: expected at least 1, got 0");
  POCKETLM_RETURN_IF_ERROR(
      keys.U32Or("attention.key_length", c->hidden_size / c->num_attention_heads, &c->head_dim));
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    uint32_t value = 0;
    POCKETLM_RETURN_IF_ERROR(keys.U32Or(key, c->head_dim, &value));
    if (value != c->head_dim) {
      return Unsupported("gguf: " + std::string(key) + ": expected the head size " +
                         std::to_string(c->head_dim) + ", got " + std::to_string(value));
    }
  }
  if (c->num_hidden_layers > kMaxLayers) {
    return DataError("gguf: block_count: expected at most " + std::to_string(kMaxLayers) +
                     ", got " + std::to_string(c->num_hidden_layers));
  }
  const TensorView* table = file.FindTensor("token_embd.weight");
  if (table == nullptr) return DataError("gguf: tensor token_embd.weight is missing");
  if (table->shape.size() != 2)
    return DataError("gguf: token_embd.weight: expected 2 dimensions, got " +
                     ShapeString(table->shape));
  if (table->shape[0] > UINT32_MAX) return DataError("gguf: token_embd.weight: too many rows");
  c->vocab_size = static_cast<uint32_t>(table->shape[0]);
  c->tie_word_embeddings = file.FindTensor("output.weight") == nullptr;
  return OkStatus();
}

Status ReadRope(const Keys& keys, ModelConfig* c) {
  POCKETLM_RETURN_IF_ERROR(keys.FloatOr("rope.freq_base", 10000.0, &c->rope_theta));
  POCKETLM_ASSIGN_OR_RETURN(const std::string type, keys.StringOr("rope.scaling.type", "none"));
  if (type == "linear") {
    c->rope_scaling.type = RopeScaling::Type::kLinear;
    POCKETLM_RETURN_IF_ERROR(keys.Float("rope.scaling.factor", &c->rope_scaling.factor));
  } else if (type != "none") {
    return Unsupported("gguf: rope.scaling.type: expected none or linear, got " + type);
  }
  return OkStatus();
}

// Which layers slide: a period (every n-th layer sees everything) or one bool a layer. Gemma 3 files state it
// only where it differs from the period 6 (Gemma 3 report, section 2).
Status ReadSlidingPattern(const GgufFile& file, const Keys& keys, ModelConfig* c) {
  const std::string key = "gemma3.attention.sliding_window_pattern";
  if (file.TypeOf(key) == GgufType::kArray) {
    POCKETLM_ASSIGN_OR_RETURN(const GgufArray flags, file.GetArray(key));
    for (uint32_t i = 0; i < c->num_hidden_layers; ++i) {
      const std::optional<bool> flag = flags.Bool(i);
      if (!flag)
        return DataError("gguf: " + key + ": expected one bool for each of the " +
                         std::to_string(c->num_hidden_layers) + " layers");
      c->sliding_layers.push_back(*flag);
    }
    return OkStatus();
  }
  uint32_t period = 0;
  POCKETLM_RETURN_IF_ERROR(keys.U32Or("attention.sliding_window_pattern", 6, &period));
  if (period == 0) return DataError("gguf: " + key + ": expected at least 1, got 0");
  for (uint32_t i = 0; i < c->num_hidden_layers; ++i)
    c->sliding_layers.push_back((i + 1) % period != 0);
  return OkStatus();
}

Status ReadGemma3(const GgufFile& file, const Keys& keys, ModelConfig* c) {
  c->has_qk_norm = true;
  c->has_post_norms = true;
  c->hidden_activation = Activation::kGeluTanh;
  c->embedding_scale = std::sqrt(static_cast<float>(c->hidden_size));
  POCKETLM_RETURN_IF_ERROR(keys.FloatOr("rope.freq_base", 1000000.0, &c->rope_theta));
  POCKETLM_RETURN_IF_ERROR(keys.FloatOr("rope.freq_base_swa", 10000.0, &c->rope_local_base_freq));
  POCKETLM_RETURN_IF_ERROR(keys.U32Or("attention.sliding_window", 0, &c->sliding_window));
  if (c->sliding_window == 0) return OkStatus();
  return ReadSlidingPattern(file, keys, c);
}

}  // namespace

Result<ModelConfig> ConfigFromGguf(const GgufFile& file) {
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  ModelConfig c;
  if (name == "llama") {
    c.architecture = Architecture::kLlama;
  } else if (name == "qwen3") {
    c.architecture = Architecture::kQwen3;
  } else if (name == "gemma3") {
    c.architecture = Architecture::kGemma3;
  } else {
    return Unsupported("gguf: general.architecture: expected llama, qwen3 or gemma3, got " +
                       Quote(name));
  }
  const Keys keys(file, std::string(name) + ".");
  POCKETLM_RETURN_IF_ERROR(ReadShape(file, keys, &c));
  POCKETLM_RETURN_IF_ERROR(ReadRope(keys, &c));
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (c.architecture == Architecture::kLlama) {
    // Converters permute q_proj and k_proj of this architecture into interleaved pairs.
    c.rope_layout = RopeLayout::kInterleaved;
    if (keys.Has("expert_count")) {
      uint32_t experts = 0;
      POCKETLM_RETURN_IF_ERROR(keys.U32("expert_count", &experts));
      if (experts > 0)
        return Unsupported("gguf: llama.expert_count: mixtures of experts are not supported");
    }
  } else if (c.architecture == Architecture::kQwen3) {
    c.has_qk_norm = true;
  } else {
    POCKETLM_RETURN_IF_ERROR(ReadGemma3(file, keys, &c));
  }
  POCKETLM_RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace pocketlm
