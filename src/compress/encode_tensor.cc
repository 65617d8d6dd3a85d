#include "compress/encode_tensor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/half.h"
#include "compress/exact.h"
#include "compress/gptq.h"
#include "compress/quantize.h"

namespace pocketlm {
namespace {

constexpr size_t kChunkTiles = 8;

// What one thread needs for a row; allocated before the threads run, since their body must not throw.
struct Scratch {
  explicit Scratch(size_t cols) : values(cols), stored(cols) {
    for (RowCodes* row : {&source, &codes}) {
      row->codes.reserve(cols);
      for (auto* halves : {&row->scales, &row->mins}) halves->reserve(cols / 32);
      row->zeros.reserve(cols / 32);
    }
  }
  RowCodes source, codes;
  std::vector<float> values, stored;
  // Of a tile, for rounding with feedback.
  std::vector<RowCodes> tile_codes;
  std::vector<float> tile_values, carried;
};

std::vector<Scratch> ScratchOfThreads(const ThreadPool& pool, size_t cols) {
  std::vector<Scratch> out;
  for (int i = 0; i < pool.num_threads(); ++i) out.emplace_back(cols);
  return out;
}

// Keeps the first failing row, so that the message does not depend on the threads.
class FirstFault {
 public:
  void Set(size_t row, std::string what) {
    const std::lock_guard lock(mutex_);
    if (row >= row_) return;
    row_ = row;
    what_ = std::move(what);
  }
  // Rows from here on need no work: an earlier one has failed.
  size_t row() const { return row_; }
  Status ToStatus() const {
    if (row_ == SIZE_MAX) return OkStatus();
    return DataError("row " + std::to_string(row_) + ": " + what_);
  }

 private:
  std::mutex mutex_;
  std::atomic<size_t> row_{SIZE_MAX};
  std::string what_;
};

uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93u;
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93u;
  return z ^ (z >> 32);
}

uint64_t RowFingerprint(size_t row, std::span<const float> values) {
  uint64_t hash = MixBits(row + 1);
  for (const float value : values) {
    // Adding zero turns -0 into 0.
    hash = (hash ^ std::bit_cast<uint32_t>(value + 0.0f)) * 0x9FB21C651E98DF25u;
    hash ^= hash >> 35;
  }
  return MixBits(hash);
}

EncodingError Difference(std::span<const float> from, std::span<const float> to) {
  EncodingError out;
  for (size_t i = 0; i < from.size(); ++i) {
    const double value = static_cast<double>(from[i]);
    const double error = static_cast<double>(to[i]) - value;
    out.squared_error += error * error;
    out.squared_values += value * value;
    out.max_error = std::max(out.max_error, std::abs(error));
  }
  return out;
}

const char* FaultText(QuantizeFault fault) {
  return fault == QuantizeFault::kNotFinite
             ? "expected finite values, got NaN or infinity"
             : "expected values whose scale fits half precision, got "
               "larger ones; keep the tensor in another type";
}

class Encoder {
 public:
  Encoder(const RowSource& source, const TensorTarget& target, const ErrorFeedback* feedback,
          EncodedTensor* out)
      : source_(source), target_(target), feedback_(feedback), out_(out) {
    if (target.packed) {
      layout_ = *target.packed;
    } else {
      layout_.type = target.type == DType::kQ8_0 ? PackedType::kI8 : PackedType::kU4;
      layout_.offset = target.type == DType::kQ4_1 ? OffsetType::kMinF16 : OffsetType::kNone;
      layout_.group_size = 32;
    }
  }

  Status Run(ThreadPool* pool) {
    Allocate();
    const size_t tiles = (source_.rows() + kTileRows - 1) / kTileRows;
    std::vector<EncodingError> errors(tiles);
    std::atomic<uint64_t> fingerprint{0};
    std::vector<Scratch> scratch = ScratchOfThreads(*pool, source_.cols());
    pool->ParallelFor(tiles, kChunkTiles, [&](size_t begin, size_t end, int thread) {
      for (size_t tile = begin; tile < end && tile * kTileRows < fault_.row(); ++tile) {
        fingerprint += Tile(tile, &scratch[static_cast<size_t>(thread)], &errors[tile]);
      }
    });
    POCKETLM_RETURN_IF_ERROR(fault_.ToStatus());
    for (const EncodingError& error : errors) out_->error.Add(error);
    out_->fingerprint = fingerprint;
    return OkStatus();
  }

 private:
  void Allocate() {
    out_->error = {};
    out_->bytes.clear();
    for (auto* plane : {&out_->codes, &out_->scales, &out_->offsets}) plane->clear();
    if (!target_.packed) {
      out_->bytes.resize(*TargetBytes(target_, source_.rows(), source_.cols()));
      row_bytes_ = out_->bytes.size() / source_.rows();
      return;
    }
    const PackedPlanes planes = *PlaneBytes(layout_, source_.rows(), source_.cols());
    out_->codes.resize(planes.codes);
    out_->scales.resize(planes.scales);
    out_->offsets.resize(planes.offsets);
  }

  // Returns the sum of the rows' fingerprints.
  uint64_t Tile(size_t tile, Scratch* scratch, EncodingError* error) {
    const size_t first = tile * kTileRows;
    const size_t end = std::min(first + kTileRows, source_.rows());
    uint64_t fingerprint = 0;
    const bool rounded = target_.packed || HasRowCodes(target_.type);
    const bool feedback = feedback_ != nullptr && rounded && !target_.keep_codes;
    if (feedback && !RoundTile(first, end, scratch)) return 0;
    for (size_t row = first; row < end; ++row) {
      source_.Values(row, scratch->values.data());
      if (feedback) {
        Store(row, scratch->tile_codes[row - first], scratch);
      } else if (!EncodeRow(row, scratch)) {
        return 0;
      }
      error->Add(Difference(scratch->values, scratch->stored));
      fingerprint += RowFingerprint(row, scratch->stored);
    }
    return fingerprint;
  }

  bool EncodeRow(size_t row, Scratch* scratch) {
    std::byte* bytes = out_->bytes.data() + row * row_bytes_;
    if (!target_.packed && (target_.type == DType::kF32 || target_.type == DType::kF16))
      return StoreFloats(row, scratch, bytes);
    if (target_.keep_codes) {
      source_.Codes(row, &scratch->source);
      Regroup(scratch->source, layout_, &scratch->codes);
    } else {
      const QuantizeFault fault = QuantizeWeights(scratch->values, layout_, &scratch->codes);
      if (fault != QuantizeFault::kNone) {
        fault_.Set(row, FaultText(fault));
        return false;
      }
    }
    Store(row, scratch->codes, scratch);
    return true;
  }

  bool RoundTile(size_t first, size_t end, Scratch* scratch) {
    const size_t cols = source_.cols();
    scratch->tile_codes.resize(end - first);
    scratch->tile_values.resize((end - first) * cols);
    for (size_t row = first; row < end; ++row)
      source_.Values(row, scratch->tile_values.data() + (row - first) * cols);
    size_t fault_row = 0;
    const QuantizeFault fault =
        QuantizeWithFeedback(scratch->tile_values, *feedback_, layout_, scratch->tile_codes,
                             &scratch->carried, &fault_row);
    if (fault != QuantizeFault::kNone) fault_.Set(first + fault_row, FaultText(fault));
    return fault == QuantizeFault::kNone;
  }

  void Store(size_t row, const RowCodes& codes, Scratch* scratch) {
    DecodeCodes(codes, scratch->stored.data());
    if (target_.packed) {
      PackRow(codes, row % kTileRows, PlanesOf(row / kTileRows));
    } else {
      WriteBlocks(codes, target_.type, out_->bytes.data() + row * row_bytes_);
    }
  }

  bool StoreFloats(size_t row, Scratch* scratch, std::byte* bytes) {
    const bool half = target_.type == DType::kF16;
    for (size_t i = 0; i < source_.cols(); ++i) {
      float stored = scratch->values[i];
      uint16_t bits = 0;
      if (half) {
        bits = FloatToHalf(stored);
        stored = HalfToFloat(bits);
      }
      if (!std::isfinite(stored)) {
        fault_.Set(row, std::isfinite(scratch->values[i])
                            ? "expected values that fit half precision, got larger ones"
                            : FaultText(QuantizeFault::kNotFinite));
        return false;
      }
      scratch->stored[i] = stored;
      if (half) {
        std::memcpy(bytes + i * 2, &bits, 2);
      } else {
        std::memcpy(bytes + i * 4, &stored, 4);
      }
    }
    return true;
  }

  TilePlanes PlanesOf(size_t tile) const {
    const size_t first = tile * (source_.cols() / layout_.group_size);
    return {out_->codes.data() + first * layout_.group_code_bytes(),
            out_->scales.data() + first * PackedLayout::group_scale_bytes(),
            out_->offsets.empty() ? nullptr
                                  : out_->offsets.data() + first * layout_.group_offset_bytes()};
  }

  const RowSource& source_;
  const TensorTarget& target_;
  const ErrorFeedback* feedback_;
  EncodedTensor* out_;
  PackedLayout layout_;
  size_t row_bytes_ = 0;
  FirstFault fault_;
};

}  // namespace

std::string TargetName(const TensorTarget& target) {
  return target.packed ? LayoutName(*target.packed) : GetDTypeInfo(target.type).name;
}

std::optional<uint64_t> TargetBytes(const TensorTarget& target, uint64_t rows, uint64_t cols) {
  if (target.packed) {
    const auto planes = PlaneBytes(*target.packed, rows, cols);
    if (!planes) return std::nullopt;
    return planes->codes + planes->scales + planes->offsets;
  }
  const auto row_bytes = RowBytes(target.type, cols);
  if (!row_bytes || *row_bytes > UINT64_MAX / rows) return std::nullopt;
  return *row_bytes * rows;
}

void EncodingError::Add(const EncodingError& other) {
  squared_error += other.squared_error;
  squared_values += other.squared_values;
  max_error = std::max(max_error, other.max_error);
}

Status EncodeTensor(const RowSource& source, const TensorTarget& target, ThreadPool* pool,
                    EncodedTensor* out, const ErrorFeedback* feedback) {
  return Encoder(source, target, feedback, out).Run(pool);
}

Result<std::optional<PackedLayout>> SmallestExactLayout(const RowSource& source, ThreadPool* pool) {
  std::mutex mutex;
  EncodingScan all;
  FirstFault fault;
  std::vector<Scratch> scratch = ScratchOfThreads(*pool, source.cols());
  pool->ParallelFor(
      source.rows(), kChunkTiles * kTileRows, [&](size_t begin, size_t end, int thread) {
        EncodingScan scan;
        RowCodes* codes = &scratch[static_cast<size_t>(thread)].source;
        for (size_t row = begin; row < end; ++row) {
          source.Codes(row, codes);
          scan.Add(*codes);
          if (scan.finite()) continue;
          fault.Set(row, "expected scales and offsets that are finite halves, got others");
          return;
        }
        const std::lock_guard lock(mutex);
        all.Merge(scan);
      });
  POCKETLM_RETURN_IF_ERROR(fault.ToStatus());
  return all.Smallest();
}

uint64_t Fingerprint(const RowSource& source, ThreadPool* pool) {
  std::atomic<uint64_t> sum{0};
  std::vector<Scratch> scratch = ScratchOfThreads(*pool, source.cols());
  pool->ParallelFor(source.rows(), kChunkTiles * kTileRows,
                    [&](size_t begin, size_t end, int thread) {
                      std::vector<float>& values = scratch[static_cast<size_t>(thread)].values;
                      for (size_t row = begin; row < end; ++row) {
                        source.Values(row, values.data());
                        sum += RowFingerprint(row, values);
                      }
                    });
  return sum;
}

}  // namespace pocketlm
