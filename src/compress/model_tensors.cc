#include "compress/model_tensors.h"

#include <utility>

#include "model/weights.h"

namespace pocketlm {
namespace {

constexpr char kRopeFactors[] = "rope_freqs.weight";

class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : c_(config) {}

  void Norm(const std::string& hf, const std::string& gguf, uint64_t size) {
    ModelTensor& tensor = Add(hf, gguf, TensorRole::kVector, {size});
    tensor.is_norm = true;
  }

  ModelTensor& Add(const std::string& hf, const std::string& gguf, TensorRole role,
                   std::vector<uint64_t> shape) {
    ModelTensor& tensor = out_.emplace_back();
    tensor.hf_name = hf;
    tensor.gguf_name = gguf;
    tensor.role = role;
    tensor.shape = std::move(shape);
    return tensor;
  }

  void Layer(uint32_t index) {
    const std::string hf = "layers." + std::to_string(index) + ".";
    const std::string gguf = "blk." + std::to_string(index) + ".";
    const uint64_t q_size = uint64_t{c_.num_attention_heads} * c_.head_dim;
    const uint64_t kv_size = uint64_t{c_.num_key_value_heads} * c_.head_dim;
    const auto body = [&](const char* hf_part, const char* gguf_part, uint64_t rows,
                          uint64_t cols) -> ModelTensor& {
      return Add(hf + hf_part + ".weight", gguf + gguf_part + ".weight", TensorRole::kBody,
                 {rows, cols});
    };
    Norm(hf + "input_layernorm.weight", gguf + "attn_norm.weight", c_.hidden_size);
    body("self_attn.q_proj", "attn_q", q_size, c_.hidden_size).rotary = true;
    body("self_attn.k_proj", "attn_k", kv_size, c_.hidden_size).rotary = true;
    body("self_attn.v_proj", "attn_v", kv_size, c_.hidden_size);
    if (c_.has_qk_norm) {
      Norm(hf + "self_attn.q_norm.weight", gguf + "attn_q_norm.weight", c_.head_dim);
      Norm(hf + "self_attn.k_norm.weight", gguf + "attn_k_norm.weight", c_.head_dim);
    }
    body("self_attn.o_proj", "attn_output", c_.hidden_size, q_size);
    if (c_.has_post_norms) {
      Norm(hf + "post_attention_layernorm.weight", gguf + "post_attention_norm.weight",
           c_.hidden_size);
      Norm(hf + "pre_feedforward_layernorm.weight", gguf + "ffn_norm.weight", c_.hidden_size);
    } else {
      Norm(hf + "post_attention_layernorm.weight", gguf + "ffn_norm.weight", c_.hidden_size);
    }
    body("mlp.gate_proj", "ffn_gate", c_.intermediate_size, c_.hidden_size);
    body("mlp.up_proj", "ffn_up", c_.intermediate_size, c_.hidden_size);
    body("mlp.down_proj", "ffn_down", c_.hidden_size, c_.intermediate_size);
    if (c_.has_post_norms) {
      Norm(hf + "post_feedforward_layernorm.weight", gguf + "post_ffw_norm.weight", c_.hidden_size);
    }
  }

  std::vector<ModelTensor> Take() { return std::move(out_); }

 private:
  const ModelConfig& c_;
  std::vector<ModelTensor> out_;
};

bool FinerThan4Bits(const TensorView& view) {
  if (view.packed) return view.packed->layout.type == PackedType::kI8;
  switch (view.type) {
    case DType::kQ8_0:
    case DType::kQ6_K:
    case DType::kQ5_K:
    case DType::kQ5_0:
    case DType::kQ5_1:
      return true;
    default:
      return false;
  }
}

Status Attach(const ModelSource& source, ModelTensor* tensor) {
  POCKETLM_ASSIGN_OR_RETURN(const TensorView* view,
                            source.Find(tensor->hf_name, tensor->gguf_name));
  if (view == nullptr) return DataError("tensor " + tensor->hf_name + " is missing");
  tensor->rows = MakeStoredRows(*view);
  tensor->stored_type =
      view->packed ? LayoutName(view->packed->layout) : GetDTypeInfo(view->type).name;
  tensor->finer_than_4_bits = FinerThan4Bits(*view);
  if (!tensor->is_norm || !source.config.norm_weights_minus_one) return OkStatus();
  std::vector<float> values(tensor->rows->cols());
  tensor->rows->Values(0, values.data());
  for (float& value : values) value += 1.0f;
  tensor->rows = MakeVectorRow(std::move(values));
  return OkStatus();
}

}  // namespace

std::vector<ModelTensor> ListModelTensors(const ModelConfig& config, bool has_rope_factors) {
  TensorList list(config);
  const std::vector<uint64_t> table = {config.vocab_size, config.hidden_size};
  list.Add("embed_tokens.weight", "token_embd.weight", TensorRole::kEmbedding, table);
  if (has_rope_factors)
    list.Add(kRopeFactors, kRopeFactors, TensorRole::kVector, {config.head_dim / 2});
  for (uint32_t i = 0; i < config.num_hidden_layers; ++i) list.Layer(i);
  list.Norm("norm.weight", "output_norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings)
    list.Add("lm_head.weight", "output.weight", TensorRole::kHead, table);
  return list.Take();
}

Result<std::vector<ModelTensor>> TensorsOf(const ModelSource& source) {
  const TensorLookup lookup = [&source](const std::string& hf, const std::string& gguf) {
    return source.Find(hf, gguf);
  };
  POCKETLM_ASSIGN_OR_RETURN(const ModelWeights weights, CollectWeights(source.config, lookup));
  std::vector<ModelTensor> tensors = ListModelTensors(source.config, !weights.rope_factors.empty());
  for (ModelTensor& tensor : tensors) {
    if (tensor.hf_name == kRopeFactors) {
      tensor.rows = MakeVectorRow(weights.rope_factors);
      tensor.stored_type = GetDTypeInfo(DType::kF32).name;
      continue;
    }
    POCKETLM_RETURN_IF_ERROR(Attach(source, &tensor));
  }
  return tensors;
}

}  // namespace pocketlm
