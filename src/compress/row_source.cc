#include "compress/row_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"

namespace pocketlm {
namespace {

class StoredRows : public RowSource {
 public:
  StoredRows(const TensorView& tensor, size_t rows, size_t cols)
      : RowSource(rows, cols), tensor_(tensor) {
    if (!tensor_.packed) row_bytes_ = static_cast<size_t>(*RowBytes(tensor_.type, cols));
  }

  void Values(size_t row, float* dst) const override {
    if (tensor_.packed) {
      UnpackRow(*tensor_.packed, row, dst);
    } else {
      DequantizeRow(tensor_.type, RowData(row), cols(), dst);
    }
  }

  bool has_codes() const override { return tensor_.packed || HasRowCodes(tensor_.type); }

  void Codes(size_t row, RowCodes* out) const override {
    if (tensor_.packed) {
      ReadPacked(*tensor_.packed, row, out);
    } else {
      ReadBlocks(tensor_.type, RowData(row), cols(), out);
    }
  }

 private:
  const std::byte* RowData(size_t row) const { return tensor_.data.data() + row * row_bytes_; }

  TensorView tensor_;
  size_t row_bytes_ = 0;
};

class InterleavedRows : public RowSource {
 public:
  InterleavedRows(std::shared_ptr<const RowSource> source, size_t head_dim)
      : RowSource(source->rows(), source->cols()),
        source_(std::move(source)),
        head_dim_(head_dim) {}

  void Values(size_t row, float* dst) const override { source_->Values(SourceRow(row), dst); }
  bool has_codes() const override { return source_->has_codes(); }
  void Codes(size_t row, RowCodes* out) const override { source_->Codes(SourceRow(row), out); }

 private:
  size_t SourceRow(size_t row) const {
    const size_t in_head = row % head_dim_;
    return row - in_head + in_head % 2 * (head_dim_ / 2) + in_head / 2;
  }

  std::shared_ptr<const RowSource> source_;
  size_t head_dim_;
};

class SelectedRows : public RowSource {
 public:
  SelectedRows(std::shared_ptr<const RowSource> source, std::vector<int64_t> rows)
      : RowSource(rows.size(), source->cols()),
        source_(std::move(source)),
        selected_(std::move(rows)),
        complete_(std::find(selected_.begin(), selected_.end(), -1) == selected_.end()) {}

  void Values(size_t row, float* dst) const override {
    if (selected_[row] < 0) {
      std::fill(dst, dst + cols(), 0.0f);
    } else {
      source_->Values(static_cast<size_t>(selected_[row]), dst);
    }
  }
  bool has_codes() const override { return complete_ && source_->has_codes(); }
  void Codes(size_t row, RowCodes* out) const override {
    source_->Codes(static_cast<size_t>(selected_[row]), out);
  }

 private:
  std::shared_ptr<const RowSource> source_;
  std::vector<int64_t> selected_;
  bool complete_;
};

class VectorRow : public RowSource {
 public:
  explicit VectorRow(std::vector<float> values)
      : RowSource(1, values.size()), values_(std::move(values)) {}
  void Values(size_t, float* dst) const override { std::copy(values_.begin(), values_.end(), dst); }

 private:
  std::vector<float> values_;
};

// The mixing steps of the splitmix64 generator (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
inline uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

class RandomRows : public RowSource {
 public:
  RandomRows(uint64_t seed, uint64_t tensor, size_t rows, size_t cols, float deviation)
      : RowSource(rows, cols),
        key_(Mix(Mix(seed + kGamma) + tensor * kGamma)),
        // The sum of four integers uniform in [0, 65536) has the variance 4 · 65536² / 12.
        scale_(deviation * (1.7320508f / 65536.0f)) {}

  void Values(size_t row, float* dst) const override {
    uint64_t counter = key_ + kGamma * (static_cast<uint64_t>(row) * cols());
    for (size_t i = 0; i < cols(); ++i, counter += kGamma) {
      const uint64_t bits = Mix(counter);
      const int64_t sum = static_cast<int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                               (bits >> 32 & 0xFFFF) + (bits >> 48));
      dst[i] = static_cast<float>(sum - 2 * 65535) * scale_;
    }
  }

 private:
  uint64_t key_;
  float scale_;
};

}  // namespace

void RowSource::Codes(size_t, RowCodes*) const { POCKETLM_CHECK(false); }

std::shared_ptr<const RowSource> MakeStoredRows(const TensorView& tensor) {
  const bool matrix = tensor.shape.size() == 2;
  const auto rows = matrix ? static_cast<size_t>(tensor.shape[0]) : size_t{1};
  return std::make_shared<StoredRows>(tensor, rows, static_cast<size_t>(tensor.shape.back()));
}

std::shared_ptr<const RowSource> MakeInterleavedRows(std::shared_ptr<const RowSource> source,
                                                     size_t head_dim) {
  return std::make_shared<InterleavedRows>(std::move(source), head_dim);
}

std::shared_ptr<const RowSource> MakeSelectedRows(std::shared_ptr<const RowSource> source,
                                                  std::vector<int64_t> rows) {
  return std::make_shared<SelectedRows>(std::move(source), std::move(rows));
}

std::shared_ptr<const RowSource> MakeVectorRow(std::vector<float> values) {
  return std::make_shared<VectorRow>(std::move(values));
}

std::shared_ptr<const RowSource> MakeRandomRows(uint64_t seed, uint64_t tensor, size_t rows,
                                                size_t cols, float deviation) {
  return std::make_shared<RandomRows>(seed, tensor, rows, cols, deviation);
}

}  // namespace pocketlm
