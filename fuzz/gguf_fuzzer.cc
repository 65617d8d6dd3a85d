// GGUF reader: any bytes; what loads is read through every accessor.
#include <cstring>
#include <memory>

#include "format/gguf.h"

namespace {

// Touches every byte that a view claims, so that the sanitizer sees a view that is too long.
unsigned Touch(const std::byte* data, size_t size) {
  unsigned sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<unsigned>(data[i]);
  return sum;
}

unsigned ReadArray(const pocketlm::GgufArray& array) {
  unsigned sum = 0;
  for (std::string_view text : array.strings()) {
    sum += Touch(reinterpret_cast<const std::byte*>(text.data()), text.size());
  }
  for (size_t i = 0; i <= array.size(); ++i) {
    sum += array.Int(i).has_value() + array.Float(i).has_value() + array.Bool(i).has_value();
  }
  return sum;
}

unsigned ReadAll(const pocketlm::GgufFile& file) {
  unsigned sum = 0;
  for (size_t i = 0; i < file.num_keys(); ++i) {
    const std::string_view key = file.key(i);
    sum += file.GetUint(key).ok() + file.GetInt(key).ok() + file.GetFloat(key).ok() +
           file.GetBool(key).ok();
    if (const auto text = file.GetString(key); text.ok()) {
      sum += Touch(reinterpret_cast<const std::byte*>(text->data()), text->size());
    }
    if (const auto array = file.GetArray(key); array.ok()) sum += ReadArray(*array);
  }
  for (const pocketlm::TensorView& tensor : file.tensors()) {
    if (file.FindTensor(tensor.name) != &tensor) __builtin_trap();
    sum += Touch(tensor.data.data(), tensor.data.size());
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A heap block of exactly this size: reading one byte more is an error that ASan reports.
  const std::unique_ptr<std::byte[]> copy(new std::byte[size]);
  if (size > 0) std::memcpy(copy.get(), data, size);
  const auto file = pocketlm::GgufFile::Parse({copy.get(), size});
  volatile unsigned sink = file.ok() ? ReadAll(*file) : 0;
  (void)sink;
  return 0;
}
