// How values lie in a GGUF file: sizes and unaligned loads, shared by the reader's two sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/gguf.h"

namespace pocketlm {

// Bytes of a value of fixed size; 0 for strings and arrays.
inline constexpr uint64_t GgufScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// Loads a value from any address. The caller has checked that the bytes are there.
template <typename T>
T LoadUnaligned(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace pocketlm
