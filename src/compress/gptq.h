// Rounding with error feedback: each weight makes good for the errors of those before it.
//
// Of all outputs Σ x·w of a matrix, what counts is the error over real inputs, (w − q)ᵀ H (w − q) for a row w, its
// rounded form q and H = Σ x xᵀ (Frantar et al. 2022, "GPTQ: accurate post-training quantization for generative
// pre-trained transformers"). With H = (I + U) D (I + U)ᵀ, U strictly upper triangular, that is
// Σ_k D_k (w_k + Σ_{i<k} (w_i − q_i) U_ik − q_k)², and the greedy choice, first column to last, makes each term least: the
// same as GPTQ's, without an inverse (Chee et al. 2023, "QuIP", theorem 6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "compress/calibration.h"
#include "compress/quantize.h"

namespace pocketlm {

// The decomposition of the moments, damped: a hundredth of the mean of the diagonal is added to it, as GPTQ does, since a
// sample of texts never shows all inputs.
class ErrorFeedback {
 public:
  // kDataError: moments that are not finite.
  static Result<ErrorFeedback> Create(const InputMoments& moments, ThreadPool* pool);

  size_t cols() const { return cols_; }
  // The columns in the order in which they are rounded: those whose inputs are largest first, since the later ones make good
  // for them.
  std::span<const uint32_t> order() const { return order_; }
  // D: what the square of a column's error counts, given that the later columns make good for it; by column.
  std::span<const float> importance() const { return importance_; }
  // U_(i, i + 1) … U_(i, cols - 1), for the columns order()[i + 1] ….
  std::span<const float> after(size_t i) const {
    return {factors_.data() + i * cols_ + i + 1, cols_ - i - 1};
  }

 private:
  size_t cols_ = 0;
  std::vector<uint32_t> order_;
  std::vector<float> importance_;
  std::vector<float> factors_;  // [cols, cols], above the diagonal
};

// Rounds rows of a matrix, values [rows.size(), cols], to `layout` with feedback. Scales are chosen before, for the squared
// errors of the values as they are, weighted with importance(). `carried`: scratch, kept between calls. On a fault,
// *fault_row is the row.
QuantizeFault QuantizeWithFeedback(std::span<const float> values, const ErrorFeedback& feedback,
                                   const PackedLayout& layout, std::span<RowCodes> rows,
                                   std::vector<float>* carried, size_t* fault_row);

}  // namespace pocketlm
