#include "compress/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "backend/backend.h"
#include "compress/memory_weights.h"
#include "model/decoder.h"
#include "model/kv_cache.h"

namespace pocketlm {
namespace {

constexpr size_t kWindows = 8;
constexpr size_t kWindowTokens = 128;
constexpr size_t kScored = 32;  // at the end of each window

// Makes log probabilities of logits, in place.
void LogSoftmax(float* logits, size_t count) {
  const float largest = *std::max_element(logits, logits + count);
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i] - largest));
  const float shift = largest + static_cast<float>(std::log(sum));
  for (size_t i = 0; i < count; ++i) logits[i] -= shift;
}

double Divergence(const float* log_p, const float* log_q, size_t count) {
  double sum = 0.0;
  for (size_t i = 0; i < count; ++i)
    sum += static_cast<double>(std::exp(log_p[i])) * static_cast<double>(log_p[i] - log_q[i]);
  return sum;
}

class ModelInMemory {
 public:
  ModelInMemory(const ModelConfig& config, const std::vector<ModelTensor>& tensors,
                ThreadPool* pool)
      : config_(config), tensors_(tensors), pool_(pool), matrices_(tensors.size()) {}

  Status Load() {
    BackendOptions options;
    options.num_threads = pool_->num_threads();
    POCKETLM_ASSIGN_OR_RETURN(backend_, CreateCpuBackend(options));
    POCKETLM_RETURN_IF_ERROR(
        backend_->Reserve(Decoder::Limits(config_, kWindowTokens, kWindowTokens)));
    weights_.layers.resize(config_.num_hidden_layers);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const ModelTensor& tensor = tensors_[i];
      if (tensor.role == TensorRole::kVector) {
        SetVector(tensor);
        continue;
      }
      Result<MemoryMatrix> matrix = MemoryMatrix::Nearly(*tensor.rows, pool_);
      if (!matrix.ok()) return matrix.status().WithContext(tensor.hf_name);
      matrices_[i] = std::move(*matrix);
      Point(i, matrices_[i]);
    }
    POCKETLM_ASSIGN_OR_RETURN(Decoder decoder,
                              Decoder::Create(config_, weights_, backend_.get(), kWindowTokens));
    decoder_.emplace(std::move(decoder));
    POCKETLM_ASSIGN_OR_RETURN(KvCache cache,
                              KvCache::Create(config_, kWindowTokens, KvType::kF16, KvType::kF16));
    cache_.emplace(std::move(cache));
    return OkStatus();
  }

  // Reads the windows and keeps the residual stream before each layer and what the model expects.
  Status Remember(const std::vector<std::vector<int32_t>>& windows) {
    const size_t count = std::min(windows.size(), kWindows);
    for (size_t i = 0; i < count; ++i) {
      const std::vector<int32_t>& window = windows[i * windows.size() / count];
      ids_.emplace_back(window.begin(), window.begin() + static_cast<ptrdiff_t>(std::min(
                                                             window.size(), kWindowTokens)));
    }
    before_.resize(config_.num_hidden_layers);
    for (const std::vector<int32_t>& ids : ids_) {
      std::vector<float> states = Embedded(ids);
      for (size_t layer = 0; layer < before_.size(); ++layer) {
        before_[layer].push_back(states);
        POCKETLM_RETURN_IF_ERROR(decoder_->ForwardLayer(layer, states, 0, &*cache_));
      }
      AppendLogProbabilities(states, &expected_);
    }
    return OkStatus();
  }

  // Puts matrices in place of others until Restore.
  void Replace(size_t index, MemoryMatrix matrix) {
    replaced_.emplace_back(index, std::move(matrix));
    Point(index, replaced_.back().second);
  }
  void Restore() {
    for (const auto& [index, matrix] : replaced_) Point(index, matrices_[index]);
    replaced_.clear();
  }

  // The divergence of what the model expects now from what it expected.
  Result<double> MeasureDivergence() {
    // The layer from which on things differ; the last for the head, whose input does not.
    size_t first = before_.size() - 1;
    bool embedding = false;
    for (const auto& [index, matrix] : replaced_) {
      const std::optional<LayerName> name = ParseLayerName(tensors_[index].hf_name);
      if (name) first = std::min(first, name->layer);
      embedding = embedding || tensors_[index].role == TensorRole::kEmbedding;
    }
    std::vector<float> now;
    double sum = 0.0;
    size_t places = 0;
    for (size_t i = 0; i < ids_.size(); ++i) {
      std::vector<float> states = embedding ? Embedded(ids_[i]) : before_[first][i];
      for (size_t layer = embedding ? 0 : first; layer < before_.size(); ++layer)
        POCKETLM_RETURN_IF_ERROR(decoder_->ForwardLayer(layer, states, 0, &*cache_));
      now.clear();
      AppendLogProbabilities(states, &now);
      const size_t vocab = weights_.lm_head.rows;
      for (size_t at = 0; at < now.size(); at += vocab, ++places)
        sum += Divergence(expected_.data() + places * vocab, now.data() + at, vocab);
    }
    return std::max(sum / static_cast<double>(places), 0.0);
  }

 private:
  void SetVector(const ModelTensor& tensor) {
    if (const std::optional<LayerName> name = ParseLayerName(tensor.hf_name)) {
      SetLayerNorm(config_, tensor, name->part, &weights_.layers[name->layer]);
    } else {
      (tensor.is_norm ? weights_.norm : weights_.rope_factors) = VectorOf(tensor);
    }
  }

  void Point(size_t index, const MemoryMatrix& matrix) {
    const ModelTensor& tensor = tensors_[index];
    if (tensor.role == TensorRole::kBody) {
      const std::optional<LayerName> name = ParseLayerName(tensor.hf_name);
      weights_.layers[name->layer].*LayerMatrices()[LayerMatrixIndex(name->part)].member =
          matrix.weights();
      return;
    }
    if (tensor.role == TensorRole::kEmbedding) weights_.embed_tokens = matrix.weights();
    if (tensor.role == TensorRole::kHead || config_.tie_word_embeddings)
      weights_.lm_head = matrix.weights();
  }

  std::vector<float> Embedded(const std::vector<int32_t>& ids) {
    std::vector<float> states(ids.size() * config_.hidden_size);
    backend_->Embed(weights_.embed_tokens, ids, config_.embedding_scale, states.data());
    return states;
  }

  // Of the last kScored rows of the states that ForwardLayer left.
  void AppendLogProbabilities(const std::vector<float>& states, std::vector<float>* out) {
    const size_t rows = states.size() / config_.hidden_size;
    const size_t scored = std::min(rows, kScored), vocab = weights_.lm_head.rows;
    const size_t begin = out->size();
    out->resize(begin + scored * vocab);
    decoder_->Logits(rows - scored, scored, out->data() + begin);
    pool_->ParallelFor(scored, 1, [&](size_t first, size_t end, int /*thread*/) {
      for (size_t row = first; row < end; ++row)
        LogSoftmax(out->data() + begin + row * vocab, vocab);
    });
  }

  const ModelConfig& config_;
  const std::vector<ModelTensor>& tensors_;
  ThreadPool* pool_;
  std::unique_ptr<Backend> backend_;
  std::vector<MemoryMatrix> matrices_;  // of each tensor
  std::vector<std::pair<size_t, MemoryMatrix>> replaced_;
  ModelWeights weights_;
  std::optional<Decoder> decoder_;
  std::optional<KvCache> cache_;
  std::vector<std::vector<int32_t>> ids_;
  std::vector<std::vector<std::vector<float>>> before_;  // [layer][window], [tokens, hidden_size]
  std::vector<float> expected_;                          // log probabilities, [places, vocab_size]
};

}  // namespace

TensorUnits UnitsOf(const std::vector<ModelTensor>& tensors) {
  TensorUnits units;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].role == TensorRole::kVector) continue;
    const std::string& name = tensors[i].hf_name;
    const bool joins = name.ends_with(".k_proj.weight") || name.ends_with(".up_proj.weight");
    if (joins && !units.empty() && units.back().back() + 1 == i) {
      units.back().push_back(i);
    } else {
      units.push_back({i});
    }
  }
  return units;
}

Result<std::vector<double>> MeasureSensitivity(
    const ModelConfig& config, const std::vector<ModelTensor>& tensors, const TensorUnits& units,
    const std::vector<TensorTarget>& targets, const std::vector<std::vector<int32_t>>& windows,
    ThreadPool* pool, const std::function<bool(double)>& proceed) {
  ModelInMemory model(config, tensors, pool);
  POCKETLM_RETURN_IF_ERROR(model.Load());
  POCKETLM_RETURN_IF_ERROR(model.Remember(windows));
  std::vector<double> divergences;
  for (const std::vector<size_t>& unit : units) {
    if (!proceed(static_cast<double>(divergences.size()) / static_cast<double>(units.size())))
      return Cancelled("cancelled");
    bool differs = false;
    for (const size_t index : unit) {
      EncodedTensor encoded;
      const RowSource& rows = *tensors[index].rows;
      const Status status = EncodeTensor(rows, targets[index], pool, &encoded);
      if (!status.ok()) return status.WithContext(tensors[index].hf_name);
      POCKETLM_ASSIGN_OR_RETURN(std::optional<MemoryMatrix> matrix,
                                MemoryMatrix::Encoded(rows, targets[index], encoded, pool));
      if (!matrix) continue;
      model.Replace(index, std::move(*matrix));
      differs = true;
    }
    double divergence = 0.0;
    if (differs) {
      POCKETLM_ASSIGN_OR_RETURN(divergence, model.MeasureDivergence());
      model.Restore();
    }
    divergences.push_back(divergence);
  }
  return divergences;
}

}  // namespace pocketlm
