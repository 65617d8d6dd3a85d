#include "model/decoder.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace pocketlm {
namespace {

// Frequencies as Transformers computes them (modeling_rope_utils.py), in float.
std::vector<float> InverseFrequencies(size_t head_dim, float theta) {
  std::vector<float> out(head_dim / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    out[i] = 1.0f / static_cast<float>(
                        std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
  }
  return out;
}

void ScaleFrequencies(const RopeScaling& scaling, std::vector<float>* frequencies) {
  if (scaling.type == RopeScaling::Type::kLinear) {
    for (float& f : *frequencies) f /= scaling.factor;
  } else if (scaling.type == RopeScaling::Type::kLlama3) {
    const float original = static_cast<float>(scaling.original_max_position_embeddings);
    const float low_wavelength = original / scaling.low_freq_factor;
    const float high_wavelength = original / scaling.high_freq_factor;
    for (float& f : *frequencies) {
      const float wavelength = 2.0f * std::numbers::pi_v<float> / f;
      if (wavelength < high_wavelength) continue;
      if (wavelength > low_wavelength) {
        f /= scaling.factor;
      } else {
        const float smooth = (original / wavelength - scaling.low_freq_factor) /
                             (scaling.high_freq_factor - scaling.low_freq_factor);
        f = (1.0f - smooth) * f / scaling.factor + smooth * f;
      }
    }
  }
}

// Floats per row of each scratch plane, in the order in which Create hands them out.
std::vector<size_t> ScratchWidths(const ModelConfig& c) {
  const size_t q = size_t{c.num_attention_heads} * c.head_dim;
  const size_t kv = size_t{c.num_key_value_heads} * c.head_dim;
  return {c.hidden_size,       c.hidden_size,      c.hidden_size, q, kv, kv, q,
          c.intermediate_size, c.intermediate_size};
}

// Planes start on cache lines.
size_t PlaneFloats(size_t rows, size_t width) { return (rows * width + 15) / 16 * 16; }

}  // namespace

void Decoder::RopeTable::Fill(size_t rows, size_t first_position) {
  const size_t half = inverse_frequencies.size();
  for (size_t r = 0; r < rows; ++r) {
    const float position = static_cast<float>(first_position + r);
    for (size_t i = 0; i < half; ++i) {
      // The product is rounded to float before the cosine, as in Transformers.
      const double angle = position * inverse_frequencies[i];
      cos[r * half + i] = static_cast<float>(std::cos(angle));
      sin[r * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

uint64_t Decoder::ScratchBytes(const ModelConfig& config, size_t max_rows) {
  uint64_t floats = 0;
  for (size_t width : ScratchWidths(config)) floats += PlaneFloats(max_rows, width);
  return floats * sizeof(float);
}

Result<Decoder> Decoder::Create(const ModelConfig& config, const ModelWeights& weights,
                                Backend* backend, size_t max_rows) {
  Decoder decoder;
  decoder.config_ = &config;
  decoder.weights_ = &weights;
  decoder.backend_ = backend;
  decoder.max_rows_ = max_rows;
  POCKETLM_ASSIGN_OR_RETURN(decoder.scratch_,
                            AlignedBuffer<float>::Allocate(
                                ScratchBytes(config, max_rows) / sizeof(float), "decoder scratch"));
  float** planes[] = {&decoder.residual_, &decoder.normed_, &decoder.output_,
                      &decoder.q_,        &decoder.k_,      &decoder.v_,
                      &decoder.attended_, &decoder.gate_,   &decoder.up_};
  const std::vector<size_t> widths = ScratchWidths(config);
  float* next = decoder.scratch_.data();
  for (size_t i = 0; i < widths.size(); ++i) {
    *planes[i] = next;
    next += PlaneFloats(max_rows, widths[i]);
  }
  decoder.global_rope_.inverse_frequencies = InverseFrequencies(config.head_dim, config.rope_theta);
  ScaleFrequencies(config.rope_scaling, &decoder.global_rope_.inverse_frequencies);
  for (size_t i = 0; i < weights.rope_factors.size(); ++i) {
    decoder.global_rope_.inverse_frequencies[i] /= weights.rope_factors[i];
  }
  decoder.local_rope_.inverse_frequencies =
      InverseFrequencies(config.head_dim, config.rope_local_base_freq);
  for (RopeTable* table : {&decoder.global_rope_, &decoder.local_rope_}) {
    table->cos.resize(max_rows * config.head_dim / 2);
    table->sin.resize(max_rows * config.head_dim / 2);
  }
  return decoder;
}

Status Decoder::Forward(std::span<const int32_t> ids, size_t first_position, KvCache* cache,
                        const std::atomic<bool>* cancel) {
  POCKETLM_CHECK(!ids.empty() && ids.size() <= max_rows_);
  POCKETLM_CHECK(first_position + ids.size() <= cache->capacity());
  const size_t rows = ids.size();
  global_rope_.Fill(rows, first_position);
  if (config_->sliding_window > 0) local_rope_.Fill(rows, first_position);
  backend_->Embed(weights_->embed_tokens, ids, config_->embedding_scale, residual_);
  for (size_t i = 0; i < weights_->layers.size(); ++i) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
      return Cancelled("forward: cancelled by the caller");
    const LayerWeights& layer = weights_->layers[i];
    Attend(layer, i, rows, first_position, cache);
    FeedForward(layer, rows);
    if (observer_) observer_(i, {residual_, rows * config_->hidden_size});
  }
  return OkStatus();
}

void Decoder::Attend(const LayerWeights& layer, size_t index, size_t rows, size_t first_position,
                     KvCache* cache) {
  const ModelConfig& c = *config_;
  const bool sliding = c.LayerIsSliding(index);
  const RopeTable& rope = sliding ? local_rope_ : global_rope_;
  const KvLayer& kv = cache->layer(index);

  backend_->RmsNorm(residual_, rows, c.hidden_size, layer.attention_norm.data(), c.rms_norm_eps,
                    normed_);
  backend_->MatMul(layer.q_proj, normed_, rows, q_);
  backend_->MatMul(layer.k_proj, normed_, rows, k_);
  backend_->MatMul(layer.v_proj, normed_, rows, v_);
  if (c.has_qk_norm) {
    backend_->RmsNorm(q_, rows * c.num_attention_heads, c.head_dim, layer.q_norm.data(),
                      c.rms_norm_eps, q_);
    backend_->RmsNorm(k_, rows * c.num_key_value_heads, c.head_dim, layer.k_norm.data(),
                      c.rms_norm_eps, k_);
  }
  backend_->Rope(q_, rows, c.num_attention_heads, c.head_dim, rope.cos.data(), rope.sin.data(),
                 c.rope_layout);
  backend_->Rope(k_, rows, c.num_key_value_heads, c.head_dim, rope.cos.data(), rope.sin.data(),
                 c.rope_layout);
  backend_->AppendKv(kv, k_, v_, rows, first_position);

  AttentionArgs args;
  args.q = q_;
  args.out = attended_;
  args.rows = rows;
  args.num_heads = c.num_attention_heads;
  args.first_position = first_position;
  args.window = sliding ? c.sliding_window : 0;
  args.scale = c.attention_scale;
  args.kv = &kv;
  backend_->Attention(args);

  backend_->MatMul(layer.o_proj, attended_, rows, output_);
  if (c.has_post_norms) {
    backend_->RmsNorm(output_, rows, c.hidden_size, layer.post_attention_norm.data(),
                      c.rms_norm_eps, output_);
  }
  backend_->Add(residual_, output_, rows * c.hidden_size);
}

void Decoder::FeedForward(const LayerWeights& layer, size_t rows) {
  const ModelConfig& c = *config_;
  backend_->RmsNorm(residual_, rows, c.hidden_size, layer.feedforward_norm.data(), c.rms_norm_eps,
                    normed_);
  backend_->MatMul(layer.gate_proj, normed_, rows, gate_);
  backend_->MatMul(layer.up_proj, normed_, rows, up_);
  backend_->GatedActivation(c.hidden_activation, gate_, up_, rows * c.intermediate_size);
  backend_->MatMul(layer.down_proj, gate_, rows, output_);
  if (c.has_post_norms) {
    backend_->RmsNorm(output_, rows, c.hidden_size, layer.post_feedforward_norm.data(),
                      c.rms_norm_eps, output_);
  }
  backend_->Add(residual_, output_, rows * c.hidden_size);
}

void Decoder::Logits(size_t row_begin, size_t row_count, float* logits) {
  const size_t hidden = config_->hidden_size;
  backend_->RmsNorm(residual_ + row_begin * hidden, row_count, hidden, weights_->norm.data(),
                    config_->rms_norm_eps, normed_);
  backend_->MatMul(weights_->lm_head, normed_, row_count, logits);
}

}  // namespace pocketlm
