// Rows of a tensor, wherever they come from: a mapped model file, or a generator of random weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/tensor_view.h"
#include "compress/row_codes.h"

namespace pocketlm {

// Methods are safe from several threads at once. A vector is one row.
class RowSource {
 public:
  RowSource(size_t rows, size_t cols) : rows_(rows), cols_(cols) {}
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }

  // dst[0, cols) = row `row` as floats.
  virtual void Values(size_t row, float* dst) const = 0;

  // Whether the rows are stored as codes that Codes can give (HasRowCodes, packed).
  virtual bool has_codes() const { return false; }
  // Requires has_codes().
  virtual void Codes(size_t row, RowCodes* out) const;

 private:
  size_t rows_;
  size_t cols_;
};

// Rows of a tensor of a model file, which must outlive the source. The tensor has 1 or 2 dimensions, a row is whole
// blocks (the model loader has checked both).
std::shared_ptr<const RowSource> MakeStoredRows(const TensorView& tensor);

// The same rows of q_proj or k_proj in another order: pairs (i, i + head_dim / 2) of each head, as rows of the source,
// become pairs (2i, 2i + 1); see RopeLayout. rows() is a multiple of head_dim, which is even.
std::shared_ptr<const RowSource> MakeInterleavedRows(std::shared_ptr<const RowSource> source,
                                                     size_t head_dim);

// Rows of `source` by number, in the order given; -1 is a row of zeros. Codes are kept if every row is the source's.
std::shared_ptr<const RowSource> MakeSelectedRows(std::shared_ptr<const RowSource> source,
                                                  std::vector<int64_t> rows);

// A vector of floats that are in memory already: copied.
std::shared_ptr<const RowSource> MakeVectorRow(std::vector<float> values);

// Approximately normal values with mean 0: value (row, col) depends on seed, tensor and position alone, on no machine
// and no order of calls. It is the sum of four uniform 16-bit numbers, scaled: |value| ≤ 3.47 · deviation.
std::shared_ptr<const RowSource> MakeRandomRows(uint64_t seed, uint64_t tensor, size_t rows,
                                                size_t cols, float deviation);

}  // namespace pocketlm
