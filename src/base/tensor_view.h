// A tensor inside a mapped file: name, type, shape and bytes, nothing owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/packed_layout.h"

namespace pocketlm {

struct TensorView {
  std::string name;
  DType type = DType::kF32;         // means nothing if `packed` is set
  std::vector<uint64_t> shape;      // row-major, last dimension contiguous (GGUF's order reversed)
  std::span<const std::byte> data;  // the tensor's bytes; owned by the file that handed it out
  std::optional<PackedMatrix> packed;  // the planes within `data`, for a matrix of a .plm file
};

// "[1024, 896]", for messages.
inline std::string ShapeString(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace pocketlm
