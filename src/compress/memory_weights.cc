#include "compress/memory_weights.h"

#include <algorithm>
#include <utility>

namespace pocketlm {
namespace {

constexpr LayerMatrix kMatrices[] = {
    {"self_attn.q_proj.weight", &LayerWeights::q_proj, LayerInput::kAttention},
    {"self_attn.k_proj.weight", &LayerWeights::k_proj, LayerInput::kAttention},
    {"self_attn.v_proj.weight", &LayerWeights::v_proj, LayerInput::kAttention},
    {"self_attn.o_proj.weight", &LayerWeights::o_proj, LayerInput::kOutput},
    {"mlp.gate_proj.weight", &LayerWeights::gate_proj, LayerInput::kGateUp},
    {"mlp.up_proj.weight", &LayerWeights::up_proj, LayerInput::kGateUp},
    {"mlp.down_proj.weight", &LayerWeights::down_proj, LayerInput::kDown}};
static_assert(std::size(kMatrices) == kNumLayerMatrices);

}  // namespace

Result<MemoryMatrix> MemoryMatrix::Nearly(const RowSource& source, ThreadPool* pool) {
  const PackedLayout int8{PackedType::kI8, OffsetType::kNone, 32};
  if (source.cols() % int8.group_size == 0) {
    EncodedTensor encoded;
    POCKETLM_RETURN_IF_ERROR(EncodeTensor(source, {int8}, pool, &encoded));
    return Packed(source, int8, encoded);
  }
  MemoryMatrix out;
  const size_t row_bytes = source.cols() * sizeof(float);
  POCKETLM_ASSIGN_OR_RETURN(out.planes_[0], AlignedBuffer<std::byte>::Allocate(
                                                source.rows() * row_bytes, "weights in memory"));
  for (size_t row = 0; row < source.rows(); ++row)
    source.Values(row, reinterpret_cast<float*>(out.planes_[0].data() + row * row_bytes));
  out.weights_ = {DType::kF32, source.rows(), source.cols(), out.planes_[0].data(), {}};
  return out;
}

Result<std::optional<MemoryMatrix>> MemoryMatrix::Encoded(const RowSource& source,
                                                          const TensorTarget& target,
                                                          const EncodedTensor& encoded,
                                                          ThreadPool* pool) {
  std::optional<MemoryMatrix> out;
  if (target.packed) {
    POCKETLM_ASSIGN_OR_RETURN(out, Packed(source, *target.packed, encoded));
    return out;
  }
  if (!HasRowCodes(target.type)) return out;
  // Blocks of a GGUF file: the same codes in a layout that the kernels are fast on.
  TensorView view;
  view.type = target.type;
  view.shape = {source.rows(), source.cols()};
  view.data = encoded.bytes;
  const std::shared_ptr<const RowSource> blocks = MakeStoredRows(view);
  POCKETLM_ASSIGN_OR_RETURN(const std::optional<PackedLayout> exact,
                            SmallestExactLayout(*blocks, pool));
  if (!exact) return out;
  EncodedTensor packed;
  POCKETLM_RETURN_IF_ERROR(EncodeTensor(*blocks, {*exact, DType::kF32, true}, pool, &packed));
  POCKETLM_ASSIGN_OR_RETURN(out, Packed(source, *exact, packed));
  return out;
}

Result<MemoryMatrix> MemoryMatrix::Packed(const RowSource& source, const PackedLayout& layout,
                                          const EncodedTensor& encoded) {
  MemoryMatrix out;
  const std::vector<std::byte>* from[] = {&encoded.codes, &encoded.scales, &encoded.offsets};
  for (size_t i = 0; i < out.planes_.size(); ++i) {
    POCKETLM_ASSIGN_OR_RETURN(
        out.planes_[i], AlignedBuffer<std::byte>::Allocate(std::max<size_t>(from[i]->size(), 1),
                                                           "weights in memory"));
    std::copy(from[i]->begin(), from[i]->end(), out.planes_[i].data());
  }
  out.weights_.rows = source.rows();
  out.weights_.cols = source.cols();
  out.weights_.packed = PackedMatrix{layout,
                                     source.rows(),
                                     source.cols(),
                                     out.planes_[0].data(),
                                     out.planes_[1].data(),
                                     encoded.offsets.empty() ? nullptr : out.planes_[2].data()};
  return out;
}

std::span<const LayerMatrix, kNumLayerMatrices> LayerMatrices() { return kMatrices; }

std::optional<LayerName> ParseLayerName(const std::string& hf_name) {
  constexpr std::string_view kPrefix = "layers.";
  if (!hf_name.starts_with(kPrefix)) return std::nullopt;
  const size_t dot = hf_name.find('.', kPrefix.size());
  return LayerName{std::stoul(hf_name.substr(kPrefix.size(), dot - kPrefix.size())),
                   hf_name.substr(dot + 1)};
}

size_t LayerMatrixIndex(const std::string& part) {
  const auto* found = std::find_if(std::begin(kMatrices), std::end(kMatrices),
                                   [&](const LayerMatrix& matrix) { return part == matrix.part; });
  POCKETLM_CHECK(found != std::end(kMatrices));
  return static_cast<size_t>(found - std::begin(kMatrices));
}

std::vector<float> VectorOf(const ModelTensor& tensor) {
  std::vector<float> values(tensor.rows->cols());
  tensor.rows->Values(0, values.data());
  return values;
}

void SetLayerNorm(const ModelConfig& config, const ModelTensor& tensor, const std::string& part,
                  LayerWeights* weights) {
  std::vector<float>* norm = nullptr;
  if (part == "input_layernorm.weight") norm = &weights->attention_norm;
  if (part == "self_attn.q_norm.weight") norm = &weights->q_norm;
  if (part == "self_attn.k_norm.weight") norm = &weights->k_norm;
  // Hugging Face has one name for two places: where the outputs of blocks are normalized too, it is that of attention.
  if (part == "post_attention_layernorm.weight")
    norm = config.has_post_norms ? &weights->post_attention_norm : &weights->feedforward_norm;
  if (part == "pre_feedforward_layernorm.weight") norm = &weights->feedforward_norm;
  if (part == "post_feedforward_layernorm.weight") norm = &weights->post_feedforward_norm;
  POCKETLM_CHECK(norm != nullptr);
  *norm = VectorOf(tensor);
}

}  // namespace pocketlm
