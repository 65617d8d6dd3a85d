#include "support/gguf_writer.h"

#include <cstdlib>

namespace pocketlm::testing {

uint32_t GgmlTypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ8_0:
      return 8;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
  }
  std::abort();
}

ByteBuilder& GgufWriter::Key(std::string_view key, GgufType type) {
  ++num_keys_;
  return keys_.String(key).U32(static_cast<uint32_t>(type));
}

GgufWriter& GgufWriter::Alignment(uint32_t alignment) {
  alignment_ = alignment;
  return Add("general.alignment", alignment);
}

GgufWriter& GgufWriter::AddString(std::string_view key, std::string_view value) {
  Key(key, GgufType::kString).String(value);
  return *this;
}

GgufWriter& GgufWriter::AddStrings(std::string_view key, const std::vector<std::string>& values) {
  ByteBuilder& out = Key(key, GgufType::kArray);
  out.U32(static_cast<uint32_t>(GgufType::kString)).U64(values.size());
  for (const std::string& value : values) out.String(value);
  return *this;
}

GgufWriter& GgufWriter::AddRaw(std::string_view key, uint32_t type, std::string_view bytes) {
  ++num_keys_;
  keys_.String(key).U32(type).Raw(bytes);
  return *this;
}

GgufWriter& GgufWriter::AddTensor(std::string_view name, DType type,
                                  const std::vector<uint64_t>& shape, std::string_view data) {
  return AddTensor(name, GgmlTypeOf(type), shape, data);
}

GgufWriter& GgufWriter::AddTensor(std::string_view name, uint32_t ggml_type,
                                  const std::vector<uint64_t>& shape, std::string_view data) {
  tensors_.push_back({std::string(name), ggml_type, shape, std::string(data)});
  return *this;
}

GgufWriter& GgufWriter::AddFloats(std::string_view name, const std::vector<uint64_t>& shape,
                                  const std::vector<float>& values) {
  const std::string_view data(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(float));
  return AddTensor(name, DType::kF32, shape, data);
}

std::string GgufWriter::Build() const {
  ByteBuilder file;
  file.Raw("GGUF").U32(version_).U64(tensors_.size()).U64(num_keys_).Raw(keys_.bytes());
  ByteBuilder data;
  for (const Tensor& tensor : tensors_) {
    data.PadTo(alignment_);
    file.String(tensor.name).U32(static_cast<uint32_t>(tensor.shape.size()));
    for (auto d = tensor.shape.rbegin(); d != tensor.shape.rend(); ++d) file.U64(*d);
    file.U32(tensor.ggml_type).U64(data.bytes().size());
    data.Raw(tensor.data);
  }
  if (!tensors_.empty()) file.PadTo(alignment_).Raw(data.bytes());
  return file.bytes();
}

}  // namespace pocketlm::testing
