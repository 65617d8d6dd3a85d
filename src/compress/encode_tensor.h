// Brings one tensor to the form in which a file stores it, on all threads, and measures what that changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/row_source.h"

namespace pocketlm {

// What a tensor becomes.
struct TensorTarget {
  std::optional<PackedLayout> packed;  // a packed matrix; else rows of `type`
  DType type = DType::kF32;            // F32, F16, Q4_0, Q4_1, Q8_0
  // The source's own codes are kept (it has_codes, and an EncodingScan says that the target can hold them); else the
  // values are rounded anew.
  bool keep_codes = false;

  bool operator==(const TensorTarget&) const = default;
};

// "u4 g64 zero4", "i8 g32", "Q4_1", "F32".
std::string TargetName(const TensorTarget& target);

// Bytes of a tensor in a file, without padding; nullopt if its rows do not fit the target.
std::optional<uint64_t> TargetBytes(const TensorTarget& target, uint64_t rows, uint64_t cols);

// What happened to the values, in double.
struct EncodingError {
  double squared_error = 0.0;   // summed, stored value against source value
  double squared_values = 0.0;  // summed, of the source
  double max_error = 0.0;
  void Add(const EncodingError& other);
};

class ErrorFeedback;

// Reused from tensor to tensor. Rows: `bytes`. Packed: the three planes.
struct EncodedTensor {
  std::vector<std::byte> bytes;
  std::vector<std::byte> codes, scales, offsets;
  EncodingError error;
  // Of all stored values in order, as Fingerprint computes it.
  uint64_t fingerprint = 0;
};

// Encodes all rows. Errors (kDataError) name the row: values that are not finite or that the target cannot hold;
// the caller names the tensor. Requires TargetBytes. With `feedback` (gptq.h), of the tensor's cols, codes that are not
// kept are rounded with it.
Status EncodeTensor(const RowSource& source, const TensorTarget& target, ThreadPool* pool,
                    EncodedTensor* out, const ErrorFeedback* feedback = nullptr);

// Scans the codes of a source that has_codes for the smallest exact packed layout (EncodingScan::Smallest).
// kDataError (row named) if a scale is not finite.
Result<std::optional<PackedLayout>> SmallestExactLayout(const RowSource& source, ThreadPool* pool);

// A hash of all values of the source, row by row, the same for any number of threads; zeros of both signs count
// as equal. For checking what was written against what was meant.
uint64_t Fingerprint(const RowSource& source, ThreadPool* pool);

}  // namespace pocketlm
