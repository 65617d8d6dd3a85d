// Safetensors reader: any bytes; what loads is read through every accessor.
#include <cstring>
#include <memory>

#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A heap block of exactly this size: reading one byte more is an error that ASan reports.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  const auto file = pocketlm::SafetensorsFile::Parse({copy.get(), size});
  if (!file.ok()) return 0;
  size_t covered = 0;
  volatile unsigned sink = 0;
  for (const pocketlm::TensorView& tensor : file->tensors()) {
    if (file->FindTensor(tensor.name) != &tensor) __builtin_trap();
    for (const std::byte value : tensor.data) sink = sink + static_cast<unsigned>(value);
    covered += tensor.data.size();
  }
  if (covered > size) __builtin_trap();
  for (const auto& other : file->unsupported()) {
    if (file->GetTensor(other.name).ok()) __builtin_trap();
  }
  return 0;
}
