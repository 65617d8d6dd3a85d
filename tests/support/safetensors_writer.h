// Writes small safetensors files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm::testing {

// A file of a header as given, right or wrong, and the data behind it.
std::string SafetensorsBytes(std::string_view header, std::string_view data);

// Collects tensors, then Build() lays the file out. Names are written as they are: no escapes.
class SafetensorsWriter {
 public:
  // `dtype` in the format's spelling ("F32", "BF16", …); `data` are the bytes as stored.
  SafetensorsWriter& Add(std::string_view name, std::string_view dtype,
                         const std::vector<uint64_t>& shape, std::string_view data);
  SafetensorsWriter& AddFloats(std::string_view name, const std::vector<uint64_t>& shape,
                               const std::vector<float>& values);

  // The bytes of the file; the header is padded with spaces to a multiple of 8.
  std::string Build() const;

 private:
  std::string header_;
  std::string data_;
};

}  // namespace pocketlm::testing
