// What enters the matrices of a model when it reads text: the base of rounding with error feedback (gptq.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/encode_tensor.h"
#include "compress/model_tensors.h"
#include "compress/text_corpus.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {

// Σ x xᵀ over the inputs x of a matrix, one for each token read: [cols, cols], its lower triangle.
struct InputMoments {
  size_t cols = 0;
  uint64_t tokens = 0;
  std::vector<float> sum;

  // Adds `rows` inputs, x [rows, cols]. `backend` has room for products of kCalibrationWindow rows and `rows` cols. The
  // result depends on no instruction set and no number of threads.
  void Add(const float* x, size_t rows, Backend* backend);
};

// Windows of kCalibrationWindow tokens, kCalibrationTokens in all or as many as there are, spread evenly over each text
// and evenly over the texts. Each begins with BOS where the tokenizer asks for it.
// kDataError: broken JSON, or less text than a window.
inline constexpr size_t kCalibrationWindow = 256;
inline constexpr size_t kCalibrationTokens = 32768;
Result<std::vector<std::vector<int32_t>>> CalibrationWindows(const Tokenizer& tokenizer,
                                                             const std::vector<CorpusText>& texts);

// Reads the windows with the model, layer by layer, while its matrices are being rounded: a layer is measured on what
// the rounded layers before it make of the text, so that it can make good for them (Frantar et al. 2022, "GPTQ").
// Memory: the residual stream of all windows, moments and weights of one layer. Not thread-safe.
class Calibration {
 public:
  // `tensors`: a whole model of this shape, with rows, in the order of ListModelTensors; they outlive the object, as
  // `pool` does. Ids of the windows are in the vocabulary. kOutOfMemory.
  static Result<std::unique_ptr<Calibration>> Create(const ModelConfig& config,
                                                     const std::vector<ModelTensor>& tensors,
                                                     std::vector<std::vector<int32_t>> windows,
                                                     ThreadPool* pool);
  virtual ~Calibration() = default;

  // The moments of what enters the matrix tensors[index], valid until another layer's are asked for. Layers ascend: those before
  // have been Replaced, or else count as they were. An untied head comes last, once; a tied table first, once: it is measured as
  // the head, behind layers that are as they were.
  virtual Result<const InputMoments*> InputsOf(size_t index) = 0;

  // tensors[index], of the layer at hand, is what `encoded` says from now on.
  virtual Status Replace(size_t index, const TensorTarget& target,
                         const EncodedTensor& encoded) = 0;
};

}  // namespace pocketlm
