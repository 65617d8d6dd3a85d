// Writes small GGUF files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "format/gguf.h"
#include "support/byte_builder.h"

namespace pocketlm::testing {

// The number of a type in GGUF files.
uint32_t GgmlTypeOf(DType type);

// The GGUF type of a C++ arithmetic type.
template <typename T>
constexpr GgufType GgufTypeFor() {
  if constexpr (std::is_same_v<T, bool>)
    return GgufType::kBool;
  else if constexpr (std::is_same_v<T, float>)
    return GgufType::kFloat32;
  else if constexpr (std::is_same_v<T, double>)
    return GgufType::kFloat64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return GgufType::kUint8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return GgufType::kInt8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return GgufType::kUint16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return GgufType::kInt16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return GgufType::kUint32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return GgufType::kInt32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return GgufType::kUint64;
  else {
    static_assert(std::is_same_v<T, int64_t>);
    return GgufType::kInt64;
  }
}

// Collects metadata and tensors, then Build() lays the file out. Nothing is checked: a test may write
// files that are wrong. Methods return *this for chaining.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // Also writes general.alignment. Without it tensors are aligned to 32.
  GgufWriter& Alignment(uint32_t alignment);

  template <typename T>
  GgufWriter& Add(std::string_view key, T value) {
    Key(key, GgufTypeFor<T>()).Put(value);
    return *this;
  }
  GgufWriter& AddString(std::string_view key, std::string_view value);
  GgufWriter& AddStrings(std::string_view key, const std::vector<std::string>& values);
  template <typename T>
  GgufWriter& AddArray(std::string_view key, const std::vector<T>& values) {
    ByteBuilder& out = Key(key, GgufType::kArray);
    out.U32(static_cast<uint32_t>(GgufTypeFor<T>())).U64(values.size());
    for (const T value : values) out.Put(value);
    return *this;
  }
  // A key with any type tag and any bytes behind it.
  GgufWriter& AddRaw(std::string_view key, uint32_t type, std::string_view bytes);

  // `shape` is row-major; `data` are the bytes as stored.
  GgufWriter& AddTensor(std::string_view name, DType type, const std::vector<uint64_t>& shape,
                        std::string_view data);
  GgufWriter& AddTensor(std::string_view name, uint32_t ggml_type,
                        const std::vector<uint64_t>& shape, std::string_view data);
  // F32 values.
  GgufWriter& AddFloats(std::string_view name, const std::vector<uint64_t>& shape,
                        const std::vector<float>& values);

  // The bytes of the file.
  std::string Build() const;

 private:
  ByteBuilder& Key(std::string_view key, GgufType type);

  struct Tensor {
    std::string name;
    uint32_t ggml_type;
    std::vector<uint64_t> shape;
    std::string data;
  };

  uint32_t version_;
  uint32_t alignment_ = 32;
  uint64_t num_keys_ = 0;
  ByteBuilder keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace pocketlm::testing
