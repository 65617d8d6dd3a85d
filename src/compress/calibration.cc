#include "compress/calibration.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "backend/backend.h"
#include "compress/memory_weights.h"
#include "model/decoder.h"
#include "model/kv_cache.h"

namespace pocketlm {
namespace {

constexpr size_t kBlock = kCalibrationWindow;  // rows of moments that one product makes

// Computes as `inner` does and shows the inputs of matrix products, normalized, to `watch`.
class WatchingBackend : public Backend {
 public:
  using Watch = std::function<void(const WeightMatrix* first, const float* x, size_t rows)>;

  explicit WatchingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  void set_watch(Watch watch) { watch_ = std::move(watch); }
  Backend* inner() { return inner_.get(); }

  const char* name() const override { return inner_->name(); }
  int num_threads() const override { return inner_->num_threads(); }
  Status Reserve(const BackendLimits& limits) override { return inner_->Reserve(limits); }
  void Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
             float* out) override {
    inner_->Embed(table, ids, scale, out);
  }
  void RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
               float* y) override {
    inner_->RmsNorm(x, rows, cols, weight, eps, y);
  }
  void MatMul(const MatMulInput& input, std::span<const MatMulOutput> outputs,
              bool accumulate) override {
    Show(input, outputs[0].w);
    inner_->MatMul(input, outputs, accumulate);
  }
  void GatedMatMul(const MatMulInput& input, const WeightMatrix& gate, const WeightMatrix& up,
                   Activation activation, float* y) override {
    Show(input, &gate);
    inner_->GatedMatMul(input, gate, up, activation, y);
  }
  void RopeAppend(const RopeAppendArgs& args) override { inner_->RopeAppend(args); }
  void Attention(const AttentionArgs& args) override { inner_->Attention(args); }
  void Add(float* y, const float* x, size_t count) override { inner_->Add(y, x, count); }

 private:
  void Show(const MatMulInput& input, const WeightMatrix* w) {
    if (!watch_) return;
    const float* x = input.x;
    if (input.norm_weight != nullptr) {
      normalized_.resize(input.rows * w->cols);
      inner_->RmsNorm(x, input.rows, w->cols, input.norm_weight, input.norm_eps,
                      normalized_.data());
      x = normalized_.data();
    }
    watch_(w, x, input.rows);
  }

  std::unique_ptr<Backend> inner_;
  Watch watch_;
  std::vector<float> normalized_;
};

class LayerwiseCalibration : public Calibration {
 public:
  LayerwiseCalibration(const ModelConfig& config, const std::vector<ModelTensor>& tensors,
                       std::vector<std::vector<int32_t>> windows, ThreadPool* pool)
      : config_(config), tensors_(tensors), windows_(std::move(windows)), pool_(pool) {}

  Status Prepare() {
    BackendOptions options;
    options.num_threads = pool_->num_threads();
    POCKETLM_ASSIGN_OR_RETURN(std::unique_ptr<Backend> cpu, CreateCpuBackend(options));
    backend_ = std::make_unique<WatchingBackend>(std::move(cpu));
    weights_.layers.resize(config_.num_hidden_layers);
    for (const ModelTensor& tensor : tensors_) {
      if (tensor.role != TensorRole::kVector || ParseLayerName(tensor.hf_name)) continue;
      (tensor.is_norm ? weights_.norm : weights_.rope_factors) = VectorOf(tensor);
    }
    POCKETLM_ASSIGN_OR_RETURN(
        Decoder decoder, Decoder::Create(config_, weights_, backend_.get(), kCalibrationWindow));
    decoder_.emplace(std::move(decoder));
    POCKETLM_ASSIGN_OR_RETURN(
        KvCache cache, KvCache::Create(config_, kCalibrationWindow, KvType::kF16, KvType::kF16));
    cache_.emplace(std::move(cache));
    Embed();
    return OkStatus();
  }

  Result<const InputMoments*> InputsOf(size_t index) override {
    if (tensors_[index].role == TensorRole::kEmbedding) return InputsOfTiedTable();
    if (tensors_[index].role == TensorRole::kHead) return InputsOfHead();
    const std::optional<LayerName> name = ParseLayerName(tensors_[index].hf_name);
    POCKETLM_CHECK(name && (!measured_ || name->layer >= layer_));
    if (!measured_ || name->layer != layer_) POCKETLM_RETURN_IF_ERROR(Enter(name->layer));
    return &MomentsOf(LayerMatrices()[LayerMatrixIndex(name->part)]);
  }

  Status Replace(size_t index, const TensorTarget& target, const EncodedTensor& encoded) override {
    const std::optional<LayerName> name = ParseLayerName(tensors_[index].hf_name);
    if (!name || !measured_ || name->layer != layer_) return OkStatus();
    POCKETLM_ASSIGN_OR_RETURN(std::optional<MemoryMatrix> matrix,
                              MemoryMatrix::Encoded(*tensors_[index].rows, target, encoded, pool_));
    if (matrix) Set(LayerMatrixIndex(name->part), std::move(*matrix));
    return OkStatus();
  }

 private:
  Result<const InputMoments*> InputsOfHead() {
    if (!measured_ || layer_ + 1 < config_.num_hidden_layers)
      POCKETLM_RETURN_IF_ERROR(Enter(config_.num_hidden_layers - 1));
    POCKETLM_RETURN_IF_ERROR(AddInputsOfHead());
    return &head_moments_;
  }

  // Runs the last layer, which is loaded.
  Status AddInputsOfHead() {
    POCKETLM_RETURN_IF_ERROR(RunLayer());
    Clear(config_.hidden_size, &head_moments_);
    for (std::vector<float>& states : states_) {
      const size_t rows = states.size() / config_.hidden_size;
      backend_->RmsNorm(states.data(), rows, config_.hidden_size, weights_.norm.data(),
                        config_.rms_norm_eps, states.data());
      head_moments_.Add(states.data(), rows, backend_->inner());
    }
    return OkStatus();
  }

  // Runs the whole model as it is, and begins again.
  Result<const InputMoments*> InputsOfTiedTable() {
    POCKETLM_CHECK(config_.tie_word_embeddings && !measured_);
    for (; layer_ + 1 < config_.num_hidden_layers; ++layer_) {
      POCKETLM_RETURN_IF_ERROR(Load(layer_));
      POCKETLM_RETURN_IF_ERROR(RunLayer());
      weights_.layers[layer_] = {};
    }
    POCKETLM_RETURN_IF_ERROR(Load(layer_));
    POCKETLM_RETURN_IF_ERROR(AddInputsOfHead());
    weights_.layers[layer_] = {};
    layer_ = 0;
    Embed();
    return &head_moments_;
  }

  static void Clear(size_t cols, InputMoments* moments) {
    moments->cols = cols;
    moments->tokens = 0;
    moments->sum.assign(cols * cols, 0.0f);
  }

  InputMoments& MomentsOf(const LayerMatrix& matrix) {
    return moments_[static_cast<size_t>(matrix.input)];
  }

  void Set(size_t matrix, MemoryMatrix weights) {
    matrices_[matrix] = std::move(weights);
    weights_.layers[layer_].*LayerMatrices()[matrix].member = matrices_[matrix].weights();
  }

  // The residual stream before the first layer.
  void Embed() {
    states_.clear();
    const auto table = std::find_if(
        tensors_.begin(), tensors_.end(),
        [](const ModelTensor& tensor) { return tensor.role == TensorRole::kEmbedding; });
    for (const std::vector<int32_t>& window : windows_) {
      std::vector<float>& states = states_.emplace_back(window.size() * config_.hidden_size);
      for (size_t i = 0; i < window.size(); ++i) {
        float* row = states.data() + i * config_.hidden_size;
        table->rows->Values(static_cast<size_t>(window[i]), row);
        for (size_t k = 0; k < config_.hidden_size; ++k) row[k] *= config_.embedding_scale;
      }
    }
  }

  // Goes on to a layer and measures it; those on the way are run as they are now.
  Status Enter(size_t layer) {
    while (true) {
      if (measured_) {
        POCKETLM_RETURN_IF_ERROR(RunLayer());
        weights_.layers[layer_++] = {};
      }
      POCKETLM_RETURN_IF_ERROR(Load(layer_));
      measured_ = true;
      if (layer_ == layer) break;
    }
    for (const LayerMatrix& matrix : LayerMatrices())
      Clear((weights_.layers[layer_].*matrix.member).cols, &MomentsOf(matrix));
    backend_->set_watch([this](const WeightMatrix* w, const float* x, size_t rows) {
      for (const LayerMatrix& matrix : LayerMatrices()) {
        if (w == &(weights_.layers[layer_].*matrix.member))
          return MomentsOf(matrix).Add(x, rows, backend_->inner());
      }
    });
    std::vector<float> states;
    for (const std::vector<float>& before : states_) {
      states = before;
      POCKETLM_RETURN_IF_ERROR(decoder_->ForwardLayer(layer_, states, 0, &*cache_));
    }
    backend_->set_watch({});
    return OkStatus();
  }

  Status RunLayer() {
    for (std::vector<float>& states : states_)
      POCKETLM_RETURN_IF_ERROR(decoder_->ForwardLayer(layer_, states, 0, &*cache_));
    return OkStatus();
  }

  Status Load(size_t layer) {
    for (const ModelTensor& tensor : tensors_) {
      const std::optional<LayerName> name = ParseLayerName(tensor.hf_name);
      if (!name || name->layer != layer) continue;
      if (tensor.role == TensorRole::kVector) {
        SetLayerNorm(config_, tensor, name->part, &weights_.layers[layer]);
        continue;
      }
      Result<MemoryMatrix> matrix = MemoryMatrix::Nearly(*tensor.rows, pool_);
      if (!matrix.ok()) return matrix.status().WithContext(tensor.hf_name);
      Set(LayerMatrixIndex(name->part), std::move(*matrix));
    }
    return OkStatus();
  }

  const ModelConfig& config_;
  const std::vector<ModelTensor>& tensors_;
  std::vector<std::vector<int32_t>> windows_;
  ThreadPool* pool_;
  std::unique_ptr<WatchingBackend> backend_;
  ModelWeights weights_;  // of layer_ alone
  std::array<MemoryMatrix, kNumLayerMatrices> matrices_;
  std::optional<Decoder> decoder_;
  std::optional<KvCache> cache_;
  std::vector<std::vector<float>> states_;  // of each window, [tokens, hidden_size], before layer_
  size_t layer_ = 0;
  bool measured_ = false;  // layer_ is loaded, and its moments are there
  std::array<InputMoments, kNumLayerInputs> moments_;
  InputMoments head_moments_;
};

}  // namespace

void InputMoments::Add(const float* x, size_t rows, Backend* backend) {
  std::vector<float> transposed(cols * rows);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) transposed[c * rows + r] = x[r * cols + c];
  }
  std::vector<float> product;
  for (size_t begin = 0; begin < cols; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, cols);
    WeightMatrix left;
    left.rows = end;
    left.cols = rows;
    left.data = reinterpret_cast<const std::byte*>(transposed.data());
    product.resize((end - begin) * end);
    const MatMulOutput output = {&left, product.data()};
    backend->MatMul({transposed.data() + begin * rows, end - begin}, {&output, 1}, false);
    for (size_t row = begin; row < end; ++row)
      backend->Add(sum.data() + row * cols, product.data() + (row - begin) * end, row + 1);
  }
  tokens += rows;
}

Result<std::vector<std::vector<int32_t>>> CalibrationWindows(const Tokenizer& tokenizer,
                                                             const std::vector<CorpusText>& texts) {
  const size_t bos = tokenizer.add_bos() ? 1 : 0;
  const size_t body = kCalibrationWindow - bos;
  std::vector<std::vector<int32_t>> windows;
  const size_t per_text = std::max<size_t>(
      kCalibrationTokens / kCalibrationWindow / std::max<size_t>(texts.size(), 1), 1);
  for (const CorpusText& text : texts) {
    POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::string> passages, PassagesOf(text));
    std::string joined;
    for (const std::string& passage : passages) joined += passage;
    const std::vector<int32_t> ids = tokenizer.Encode(joined);
    const size_t all = ids.size() / body;
    const size_t count = std::min(all, per_text);
    for (size_t i = 0; i < count; ++i) {
      const auto begin = ids.begin() + static_cast<ptrdiff_t>(i * all / count * body);
      std::vector<int32_t>& window = windows.emplace_back();
      if (bos != 0) window.push_back(tokenizer.bos_id());
      window.insert(window.end(), begin, begin + static_cast<ptrdiff_t>(body));
    }
  }
  if (windows.empty())
    return DataError("calibration: expected at least " + std::to_string(body) +
                     " tokens in one of the texts, got fewer");
  return windows;
}

Result<std::unique_ptr<Calibration>> Calibration::Create(const ModelConfig& config,
                                                         const std::vector<ModelTensor>& tensors,
                                                         std::vector<std::vector<int32_t>> windows,
                                                         ThreadPool* pool) {
  auto calibration =
      std::make_unique<LayerwiseCalibration>(config, tensors, std::move(windows), pool);
  POCKETLM_RETURN_IF_ERROR(calibration->Prepare());
  return std::unique_ptr<Calibration>(std::move(calibration));
}

}  // namespace pocketlm
