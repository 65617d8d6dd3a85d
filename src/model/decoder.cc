#include "model/decoder.h"

#include <algorithm>
#include <chrono>
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
  return {c.hidden_size, c.has_post_norms ? c.hidden_size : 0, q, kv, kv, q, c.intermediate_size};
}

// Adds the time between construction and destruction to an op.
class OpTimer {
 public:
  using Clock = std::chrono::steady_clock;
  OpTimer(DecoderProfile* profile, DecoderOp op) : profile_(profile), op_(op) {
    if (profile_ != nullptr) start_ = Clock::now();
  }
  ~OpTimer() {
    if (profile_ == nullptr) return;
    profile_->seconds[static_cast<int>(op_)] +=
        std::chrono::duration<double>(Clock::now() - start_).count();
  }

 private:
  DecoderProfile* profile_;
  DecoderOp op_;
  Clock::time_point start_;
};

// Planes start on cache lines.
size_t PlaneFloats(size_t rows, size_t width) { return (rows * width + 15) / 16 * 16; }

}  // namespace

const char* DecoderOpName(DecoderOp op) {
  static constexpr const char* kNames[kNumDecoderOps] = {
      "embed",   "qkv_projection",  "rope_append", "attention", "output_projection",
      "gate_up", "down_projection", "head"};
  return kNames[static_cast<int>(op)];
}

void Decoder::RopeTable::Fill(size_t row, size_t rows, size_t first_position) {
  const size_t half = inverse_frequencies.size();
  for (size_t r = row; r < row + rows; ++r) {
    const float position = static_cast<float>(first_position + r - row);
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

BackendLimits Decoder::Limits(const ModelConfig& c, size_t max_rows, size_t positions) {
  BackendLimits limits;
  limits.rows = max_rows;
  limits.cols = std::max<size_t>(
      {c.hidden_size, c.intermediate_size, size_t{c.num_attention_heads} * c.head_dim});
  limits.num_heads = c.num_attention_heads;
  limits.num_kv_heads = c.num_key_value_heads;
  limits.head_dim = c.head_dim;
  limits.positions = positions;
  return limits;
}

Status Decoder::Reserve(size_t rows, size_t positions) {
  return backend_->Reserve(Limits(*config_, rows, positions));
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
  float** planes[] = {&decoder.residual_, &decoder.output_,   &decoder.q_,    &decoder.k_,
                      &decoder.v_,        &decoder.attended_, &decoder.gated_};
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
  const RowRun run = {0, ids.size(), first_position};
  return RunLayers(ids, {&run, 1}, cache, cancel);
}

Status Decoder::ForwardTree(std::span<const int32_t> ids, std::span<const size_t> positions,
                            KvCache* cache, const std::atomic<bool>* cancel) {
  POCKETLM_CHECK(!ids.empty() && ids.size() <= max_rows_ && positions.size() == ids.size());
  std::vector<RowRun> runs;
  for (size_t row = 0; row < positions.size(); ++row) {
    POCKETLM_CHECK(positions[row] < cache->capacity());
    if (row > 0 && positions[row] == positions[row - 1] + 1) {
      ++runs.back().rows;
    } else {
      runs.push_back({row, 1, positions[row]});
    }
  }
  return RunLayers(ids, runs, cache, cancel);
}

void Decoder::FillRope(std::span<const RowRun> runs) {
  for (const RowRun& run : runs) {
    global_rope_.Fill(run.row, run.rows, run.first_position);
    if (config_->sliding_window > 0) local_rope_.Fill(run.row, run.rows, run.first_position);
  }
}

Status Decoder::RunLayers(std::span<const int32_t> ids, std::span<const RowRun> runs,
                          KvCache* cache, const std::atomic<bool>* cancel) {
  const size_t rows = ids.size();
  POCKETLM_RETURN_IF_ERROR(Reserve(max_rows_, cache->capacity()));
  FillRope(runs);
  {
    const OpTimer timer(profile_, DecoderOp::kEmbed);
    backend_->Embed(weights_->embed_tokens, ids, config_->embedding_scale, residual_);
  }
  for (size_t i = 0; i < weights_->layers.size(); ++i) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed))
      return Cancelled("forward: cancelled by the caller");
    const LayerWeights& layer = weights_->layers[i];
    Attend(layer, i, rows, runs, cache);
    FeedForward(layer, rows);
    if (observer_) observer_(i, {residual_, rows * config_->hidden_size});
  }
  return OkStatus();
}

Status Decoder::ForwardLayer(size_t layer, std::span<float> hidden_states, size_t first_position,
                             KvCache* cache) {
  const size_t rows = hidden_states.size() / config_->hidden_size;
  POCKETLM_CHECK(rows > 0 && rows <= max_rows_ && first_position + rows <= cache->capacity());
  POCKETLM_RETURN_IF_ERROR(Reserve(max_rows_, cache->capacity()));
  const RowRun run = {0, rows, first_position};
  FillRope({&run, 1});
  std::copy(hidden_states.begin(), hidden_states.end(), residual_);
  Attend(weights_->layers[layer], layer, rows, {&run, 1}, cache);
  FeedForward(weights_->layers[layer], rows);
  std::copy_n(residual_, hidden_states.size(), hidden_states.begin());
  return OkStatus();
}

void Decoder::Attend(const LayerWeights& layer, size_t index, size_t rows,
                     std::span<const RowRun> runs, KvCache* cache) {
  {
    const OpTimer timer(profile_, DecoderOp::kQkvProjection);
    const MatMulOutput qkv[] = {{&layer.q_proj, q_}, {&layer.k_proj, k_}, {&layer.v_proj, v_}};
    backend_->MatMul({residual_, rows, layer.attention_norm.data(), config_->rms_norm_eps}, qkv,
                     false);
  }
  for (const RowRun& run : runs) AttendRun(layer, index, run, cache);
  const OpTimer timer(profile_, DecoderOp::kOutputProjection);
  AddProduct(layer.o_proj, attended_, rows, layer.post_attention_norm);
}

void Decoder::AttendRun(const LayerWeights& layer, size_t index, const RowRun& run,
                        KvCache* cache) {
  const ModelConfig& c = *config_;
  const bool sliding = c.LayerIsSliding(index);
  const RopeTable& rope = sliding ? local_rope_ : global_rope_;
  const KvLayer& kv = cache->layer(index);
  const size_t q_begin = run.row * c.num_attention_heads * c.head_dim;
  const size_t kv_begin = run.row * c.num_key_value_heads * c.head_dim;
  {
    const OpTimer timer(profile_, DecoderOp::kRopeAppend);
    RopeAppendArgs args;
    args.q = q_ + q_begin;
    args.k = k_ + kv_begin;
    args.v = v_ + kv_begin;
    args.rows = run.rows;
    args.num_heads = c.num_attention_heads;
    args.q_norm = c.has_qk_norm ? layer.q_norm.data() : nullptr;
    args.k_norm = c.has_qk_norm ? layer.k_norm.data() : nullptr;
    args.norm_eps = c.rms_norm_eps;
    args.cos = rope.cos.data() + run.row * (c.head_dim / 2);
    args.sin = rope.sin.data() + run.row * (c.head_dim / 2);
    args.layout = c.rope_layout;
    args.kv = &kv;
    args.first_position = run.first_position;
    backend_->RopeAppend(args);
  }
  const OpTimer timer(profile_, DecoderOp::kAttention);
  AttentionArgs args;
  args.q = q_ + q_begin;
  args.out = attended_ + q_begin;
  args.rows = run.rows;
  args.num_heads = c.num_attention_heads;
  args.first_position = run.first_position;
  args.window = sliding ? c.sliding_window : 0;
  args.scale = c.attention_scale;
  args.kv = &kv;
  backend_->Attention(args);
}

void Decoder::FeedForward(const LayerWeights& layer, size_t rows) {
  const ModelConfig& c = *config_;
  {
    const OpTimer timer(profile_, DecoderOp::kGateUp);
    backend_->GatedMatMul({residual_, rows, layer.feedforward_norm.data(), c.rms_norm_eps},
                          layer.gate_proj, layer.up_proj, c.hidden_activation, gated_);
  }
  const OpTimer timer(profile_, DecoderOp::kDownProjection);
  AddProduct(layer.down_proj, gated_, rows, layer.post_feedforward_norm);
}

void Decoder::AddProduct(const WeightMatrix& w, const float* x, size_t rows,
                         const std::vector<float>& norm) {
  if (norm.empty()) {
    const MatMulOutput output = {&w, residual_};
    return backend_->MatMul({x, rows}, {&output, 1}, true);
  }
  const MatMulOutput output = {&w, output_};
  backend_->MatMul({x, rows}, {&output, 1}, false);
  backend_->RmsNorm(output_, rows, w.rows, norm.data(), config_->rms_norm_eps, output_);
  backend_->Add(residual_, output_, rows * w.rows);
}

void Decoder::Logits(size_t row_begin, size_t row_count, float* logits) {
  const OpTimer timer(profile_, DecoderOp::kHead);
  const MatMulOutput output = {&weights_->lm_head, logits};
  backend_->MatMul({residual_ + row_begin * config_->hidden_size, row_count, weights_->norm.data(),
                    config_->rms_norm_eps},
                   {&output, 1}, false);
}

Status Decoder::FillSynthetically(size_t positions, KvCache* cache) {
  POCKETLM_CHECK(positions <= cache->capacity());
  const ModelConfig& c = *config_;
  POCKETLM_RETURN_IF_ERROR(Reserve(max_rows_, cache->capacity()));
  uint64_t state = 1;
  // Sums of two uniform numbers, about as wide as normalized keys.
  const auto fill = [&state](float* x, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto bits = static_cast<uint32_t>(state >> 33);
      x[i] = static_cast<float>(static_cast<int>(bits & 0x7FFF) - static_cast<int>(bits >> 16)) *
             0x1p-14f;
    }
  };
  const size_t kv_values = size_t{c.num_key_value_heads} * c.head_dim;
  for (size_t first = 0; first < positions; first += max_rows_) {
    const size_t rows = std::min(max_rows_, positions - first);
    global_rope_.Fill(0, rows, first);
    for (size_t i = 0; i < weights_->layers.size(); ++i) {
      fill(k_, rows * kv_values);
      fill(v_, rows * kv_values);
      RopeAppendArgs args;
      args.q = q_;
      args.k = k_;
      args.v = v_;
      args.rows = rows;
      args.cos = global_rope_.cos.data();
      args.sin = global_rope_.sin.data();
      args.kv = &cache->layer(i);
      args.first_position = first;
      backend_->RopeAppend(args);
    }
  }
  return OkStatus();
}

}  // namespace pocketlm
