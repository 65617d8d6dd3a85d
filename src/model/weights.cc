#include "model/weights.h"

#include <cstdint>
#include <utility>

#include "base/log.h"

namespace pocketlm {
namespace {

class WeightCollector {
 public:
  WeightCollector(const ModelConfig& config, const TensorLookup& lookup)
      : config_(config), lookup_(lookup) {}

  Status Matrix(const std::string& hf_name, const std::string& gguf_name, uint64_t rows,
                uint64_t cols, WeightMatrix* out) {
    POCKETLM_ASSIGN_OR_RETURN(const TensorView* tensor, Require(hf_name, gguf_name, {rows, cols}));
    *out = {tensor->type, static_cast<size_t>(rows), static_cast<size_t>(cols),
            tensor->packed ? nullptr : tensor->data.data(), tensor->packed};
    return OkStatus();
  }

  Status Vector(const std::string& hf_name, const std::string& gguf_name, uint64_t size,
                std::vector<float>* out) {
    POCKETLM_ASSIGN_OR_RETURN(const TensorView* tensor, Require(hf_name, gguf_name, {size}));
    if (tensor->packed) {
      return DataError("load: " + tensor->name +
                       ": expected a vector of floats, got packed weights");
    }
    out->resize(static_cast<size_t>(size));
    DequantizeRow(tensor->type, tensor->data.data(), out->size(), out->data());
    return OkStatus();
  }

  Status Norm(const std::string& hf_name, const std::string& gguf_name, uint64_t size,
              std::vector<float>* out) {
    POCKETLM_RETURN_IF_ERROR(Vector(hf_name, gguf_name, size, out));
    if (config_.norm_weights_minus_one) {
      for (float& w : *out) w += 1.0f;
    }
    return OkStatus();
  }

  Result<bool> Exists(const std::string& hf_name, const std::string& gguf_name) {
    POCKETLM_ASSIGN_OR_RETURN(const TensorView* tensor, lookup_(hf_name, gguf_name));
    return tensor != nullptr;
  }

  Status Layer(size_t index, LayerWeights* layer);

 private:
  Result<const TensorView*> Require(const std::string& hf_name, const std::string& gguf_name,
                                    const std::vector<uint64_t>& shape) {
    POCKETLM_ASSIGN_OR_RETURN(const TensorView* tensor, lookup_(hf_name, gguf_name));
    if (tensor == nullptr)
      return DataError("load: tensor " + hf_name + " (GGUF: " + gguf_name + ") is missing");
    if (tensor->shape != shape) {
      return DataError("load: " + tensor->name + ": expected " + ShapeString(shape) + ", got " +
                       ShapeString(tensor->shape));
    }
    if (tensor->packed) return tensor;
    if (!RowBytes(tensor->type, shape.back())) {
      return DataError("load: " + tensor->name + ": a row of " + std::to_string(shape.back()) +
                       " values is no whole number of " + GetDTypeInfo(tensor->type).name +
                       " blocks");
    }
    // Float rows are read in units of at least two bytes, quantized blocks begin with a half.
    if (reinterpret_cast<uintptr_t>(tensor->data.data()) % 2 != 0) {
      return DataError("load: " + tensor->name + ": data starts at an odd address in the file");
    }
    return tensor;
  }

  const ModelConfig& config_;
  const TensorLookup& lookup_;
};

Status WeightCollector::Layer(size_t index, LayerWeights* layer) {
  const ModelConfig& c = config_;
  const std::string hf = "layers." + std::to_string(index) + ".";
  const std::string gguf = "blk." + std::to_string(index) + ".";
  const uint64_t q_size = uint64_t{c.num_attention_heads} * c.head_dim;
  const uint64_t kv_size = uint64_t{c.num_key_value_heads} * c.head_dim;

  // Llama and Qwen call the norm before the MLP post_attention_layernorm; in Gemma that name is another norm.
  const char* feedforward_norm =
      c.has_post_norms ? "pre_feedforward_layernorm.weight" : "post_attention_layernorm.weight";
  POCKETLM_RETURN_IF_ERROR(Norm(hf + "input_layernorm.weight", gguf + "attn_norm.weight",
                                c.hidden_size, &layer->attention_norm));
  POCKETLM_RETURN_IF_ERROR(Norm(hf + feedforward_norm, gguf + "ffn_norm.weight", c.hidden_size,
                                &layer->feedforward_norm));
  if (c.has_post_norms) {
    POCKETLM_RETURN_IF_ERROR(Norm(hf + "post_attention_layernorm.weight",
                                  gguf + "post_attention_norm.weight", c.hidden_size,
                                  &layer->post_attention_norm));
    POCKETLM_RETURN_IF_ERROR(Norm(hf + "post_feedforward_layernorm.weight",
                                  gguf + "post_ffw_norm.weight", c.hidden_size,
                                  &layer->post_feedforward_norm));
  }
  if (c.has_qk_norm) {
    POCKETLM_RETURN_IF_ERROR(Norm(hf + "self_attn.q_norm.weight", gguf + "attn_q_norm.weight",
                                  c.head_dim, &layer->q_norm));
    POCKETLM_RETURN_IF_ERROR(Norm(hf + "self_attn.k_norm.weight", gguf + "attn_k_norm.weight",
                                  c.head_dim, &layer->k_norm));
  }

  struct MatrixSpec {
    const char* hf;
    const char* gguf;
    uint64_t rows;
    uint64_t cols;
    WeightMatrix* out;
  };
  const MatrixSpec specs[] = {
      {"self_attn.q_proj", "attn_q", q_size, c.hidden_size, &layer->q_proj},
      {"self_attn.k_proj", "attn_k", kv_size, c.hidden_size, &layer->k_proj},
      {"self_attn.v_proj", "attn_v", kv_size, c.hidden_size, &layer->v_proj},
      {"self_attn.o_proj", "attn_output", c.hidden_size, q_size, &layer->o_proj},
      {"mlp.gate_proj", "ffn_gate", c.intermediate_size, c.hidden_size, &layer->gate_proj},
      {"mlp.up_proj", "ffn_up", c.intermediate_size, c.hidden_size, &layer->up_proj},
      {"mlp.down_proj", "ffn_down", c.hidden_size, c.intermediate_size, &layer->down_proj},
  };
  for (const MatrixSpec& spec : specs) {
    POCKETLM_ASSIGN_OR_RETURN(const bool has_bias,
                              Exists(hf + spec.hf + ".bias", gguf + spec.gguf + ".bias"));
    if (has_bias) return Unsupported("load: " + hf + spec.hf + ".bias: biases are not supported");
    POCKETLM_RETURN_IF_ERROR(Matrix(hf + spec.hf + ".weight", gguf + spec.gguf + ".weight",
                                    spec.rows, spec.cols, spec.out));
  }
  return OkStatus();
}

}  // namespace

Result<ModelWeights> CollectWeights(const ModelConfig& config, const TensorLookup& lookup) {
  ModelWeights weights;
  WeightCollector collector(config, lookup);
  POCKETLM_RETURN_IF_ERROR(collector.Matrix("embed_tokens.weight", "token_embd.weight",
                                            config.vocab_size, config.hidden_size,
                                            &weights.embed_tokens));
  POCKETLM_RETURN_IF_ERROR(
      collector.Norm("norm.weight", "output_norm.weight", config.hidden_size, &weights.norm));
  if (config.tie_word_embeddings) {
    weights.lm_head = weights.embed_tokens;
  } else {
    POCKETLM_RETURN_IF_ERROR(collector.Matrix("lm_head.weight", "output.weight", config.vocab_size,
                                              config.hidden_size, &weights.lm_head));
  }
  POCKETLM_ASSIGN_OR_RETURN(const bool has_factors, collector.Exists("", "rope_freqs.weight"));
  if (has_factors) {
    POCKETLM_RETURN_IF_ERROR(
        collector.Vector("", "rope_freqs.weight", config.head_dim / 2, &weights.rope_factors));
    for (float factor : weights.rope_factors) {
      if (!(factor > 0.0f)) return DataError("load: rope_freqs.weight: expected positive factors");
    }
  }
  weights.layers.reserve(config.num_hidden_layers);
  for (size_t i = 0; i < config.num_hidden_layers; ++i) {
    POCKETLM_RETURN_IF_ERROR(collector.Layer(i, &weights.layers.emplace_back()));
  }
  const std::string next = std::to_string(config.num_hidden_layers);
  POCKETLM_ASSIGN_OR_RETURN(const bool has_more,
                            collector.Exists("layers." + next + ".input_layernorm.weight",
                                             "blk." + next + ".attn_norm.weight"));
  if (has_more) {
    Log(LogLevel::kWarning, "load: the file holds more layers than the " + next +
                                " that its configuration declares; the rest is not used");
  }
  return weights;
}

}  // namespace pocketlm
