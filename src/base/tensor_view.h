// A tensor inside a mapped file: name, type, shape and bytes, nothing owned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace pocketlm {

struct TensorView {
  std::string name;
  DType type = DType::kF32;
  std::vector<uint64_t> shape;      // row-major, last dimension contiguous (GGUF's order reversed)
  std::span<const std::byte> data;  // the tensor's bytes; owned by the file that handed it out
};

// "[1024, 896]", for messages.
inline std::string ShapeString(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

}  // namespace pocketlm
