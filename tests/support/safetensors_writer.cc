#include "support/safetensors_writer.h"

#include "base/tensor_view.h"
#include "support/byte_builder.h"

namespace pocketlm::testing {

std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  return ByteBuilder().String(header).Raw(data).bytes();
}

SafetensorsWriter& SafetensorsWriter::Add(std::string_view name, std::string_view dtype,
                                          const std::vector<uint64_t>& shape,
                                          std::string_view data) {
  if (!header_.empty()) header_ += ",";
  header_ += "\"" + std::string(name) + "\":{\"dtype\":\"" + std::string(dtype) +
             "\",\"shape\":" + ShapeString(shape) + ",\"data_offsets\":[" +
             std::to_string(data_.size()) + "," + std::to_string(data_.size() + data.size()) + "]}";
  data_ += data;
  return *this;
}

SafetensorsWriter& SafetensorsWriter::AddFloats(std::string_view name,
                                                const std::vector<uint64_t>& shape,
                                                const std::vector<float>& values) {
  return Add(name, "F32", shape,
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

std::string SafetensorsWriter::Build() const {
  std::string header = "{" + header_ + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return SafetensorsBytes(header, data_);
}

}  // namespace pocketlm::testing
