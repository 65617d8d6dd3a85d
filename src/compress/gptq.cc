#include "compress/gptq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/half.h"

namespace pocketlm {
namespace {

constexpr double kDamping = 0.01;
constexpr size_t kLanes = 8;
constexpr size_t kRowChunk = 16;

double Dot(const double* a, const double* b, size_t count) {
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void AddScaled(float factor, std::span<const float> x, float* y) {
  for (size_t i = 0; i < x.size(); ++i) y[i] += factor * x[i];
}

// The stored value of a code of group `group`.
float StoredValue(const RowCodes& row, size_t group, size_t column) {
  const float scale = HalfToFloat(row.scales[group]);
  if (row.layout.type == PackedType::kI8)
    return scale * static_cast<float>(static_cast<int8_t>(row.codes[column]));
  return scale * static_cast<float>(row.codes[column]) + HalfToFloat(row.mins[group]);
}

}  // namespace

Result<ErrorFeedback> ErrorFeedback::Create(const InputMoments& moments, ThreadPool* pool) {
  const size_t n = moments.cols;
  const auto at = [&](size_t i, size_t j) {
    return static_cast<double>(moments.sum[std::max(i, j) * n + std::min(i, j)]);
  };
  double trace = 0.0;
  for (size_t i = 0; i < n; ++i) trace += at(i, i);
  if (!std::isfinite(trace))
    return DataError("calibration: expected finite activations, got others");
  const double damping = trace > 0.0 ? kDamping * trace / static_cast<double>(n) : 1.0;
  ErrorFeedback feedback;
  feedback.cols_ = n;
  feedback.order_.resize(n);
  std::iota(feedback.order_.begin(), feedback.order_.end(), uint32_t{0});
  std::stable_sort(feedback.order_.begin(), feedback.order_.end(),
                   [&](uint32_t a, uint32_t b) { return at(a, a) > at(b, b); });
  // R, upper triangular, with R Rᵀ = H + damping, from the last column to the first.
  std::vector<double> r(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = i; j < n; ++j) r[i * n + j] = at(feedback.order_[i], feedback.order_[j]);
    r[i * n + i] += damping;
  }
  for (size_t k = n; k-- > 0;) {
    const double* row = &r[k * n];
    const double pivot = row[k] - Dot(row + k + 1, row + k + 1, n - k - 1);
    const double root = std::sqrt(std::max(pivot, damping * 1e-3));
    r[k * n + k] = root;
    pool->ParallelFor(k, kRowChunk, [&](size_t begin, size_t end, int /*thread*/) {
      for (size_t i = begin; i < end; ++i) {
        double* value = &r[i * n + k];
        *value = (*value - Dot(&r[i * n + k + 1], row + k + 1, n - k - 1)) / root;
      }
    });
  }
  feedback.factors_.resize(n * n);
  feedback.importance_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const double root = r[i * n + i];
    feedback.importance_[feedback.order_[i]] = static_cast<float>(root * root);
    for (size_t k = i + 1; k < n; ++k)
      feedback.factors_[i * n + k] = static_cast<float>(r[i * n + k] / r[k * n + k]);
  }
  return feedback;
}

QuantizeFault QuantizeWithFeedback(std::span<const float> values, const ErrorFeedback& feedback,
                                   const PackedLayout& layout, std::span<RowCodes> rows,
                                   std::vector<float>* carried, size_t* fault_row) {
  const size_t cols = feedback.cols();
  const size_t size = layout.group_size;
  const std::span<const uint32_t> order = feedback.order();
  const std::span<const float> importance = feedback.importance();
  carried->resize(values.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].Resize(layout, cols);
    const std::span<const float> row = values.subspan(r * cols, cols);
    for (size_t group = 0; group * size < cols; ++group) {
      const QuantizeFault fault = QuantizeGroup(row.subspan(group * size, size), group, &rows[r],
                                                importance.subspan(group * size, size));
      if (fault != QuantizeFault::kNone) {
        *fault_row = r;
        return fault;
      }
    }
    float* now = carried->data() + r * cols;
    for (size_t k = 0; k < cols; ++k) now[k] = row[order[k]];
  }
  // What follows a block, a column of errors at a time: a row of U serves all rows.
  std::vector<float> errors(rows.size() * size);
  for (size_t first = 0; first < cols; first += size) {
    const size_t end = std::min(first + size, cols);
    for (size_t r = 0; r < rows.size(); ++r) {
      float* now = carried->data() + r * cols;
      for (size_t k = first; k < end; ++k) {
        const size_t column = order[k], group = column / size;
        rows[r].codes[column] = NearestCode(now[k], group, rows[r]);
        const float error = values[r * cols + column] - StoredValue(rows[r], group, column);
        errors[r * size + k - first] = error;
        AddScaled(error, feedback.after(k).first(end - k - 1), now + k + 1);
      }
    }
    for (size_t k = first; k < end; ++k) {
      const std::span<const float> after = feedback.after(k).subspan(end - k - 1);
      for (size_t r = 0; r < rows.size(); ++r)
        AddScaled(errors[r * size + k - first], after, carried->data() + r * cols + end);
    }
  }
  return QuantizeFault::kNone;
}

}  // namespace pocketlm
