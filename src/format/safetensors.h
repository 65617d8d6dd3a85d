// Reader of safetensors files.
//
// Source    The safetensors format description (huggingface/safetensors, README "Format").
// Trust     The file is hostile: header length, JSON, shapes and offsets are checked at load, so
//           that no later access can fail on bounds.
// Memory    Names, shapes and __metadata__ are copied; all tables and the parser together take at
//           most 10 times the length of the header, plus 1 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "base/tensor_view.h"

namespace pocketlm {

// A safetensors file, checked whole. Immutable: reading is safe from any thread. Moving keeps all
// views valid.
//
// Accepted  F32, F16 and BF16 tensors of up to 8 dimensions, which may be 0. Tensors of other types
//           are listed by unsupported(); they are an error only when someone asks for one.
// Refused   With kDataError: a header longer than the file or than 100,000,000 bytes; JSON that is
//           malformed, nested deeper than the format is, or has unknown fields; a name or a
//           metadata key that occurs twice; offsets that do not agree with shape and type; tensors
//           that overlap, leave a hole, or do not end where the file ends; more than 16,384
//           metadata entries.
class SafetensorsFile {
 public:
  // A tensor that the file holds and we do not read: I64, F8_E4M3, …
  struct UnsupportedTensor {
    std::string name;
    std::string dtype;
    std::vector<uint64_t> shape;
  };

  // Maps and checks a file. Also kNotFound, kIoError, kInvalidArgument as MappedFile::Open.
  static Result<SafetensorsFile> Open(const std::string& path);

  // Checks bytes in memory, which must outlive the result.
  static Result<SafetensorsFile> Parse(std::span<const std::byte> bytes);

  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  // Tensors sorted by name. Their data may start at any address: the format does not align it, so
  // load values with memcpy. The views live as long as the file.
  std::span<const TensorView> tensors() const { return tensors_; }
  std::span<const UnsupportedTensor> unsupported() const { return unsupported_; }  // sorted by name

  const TensorView* FindTensor(std::string_view name) const;  // nullptr if absent or not readable

  // As FindTensor, but says why not: kNotFound; kUnsupported naming tensor and type.
  Result<const TensorView*> GetTensor(std::string_view name) const;

  // The pairs of __metadata__, in file order.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

  uint64_t file_size_bytes() const { return bytes_.size(); }

 private:
  friend class SafetensorsHeaderBuilder;
  SafetensorsFile() = default;

  std::optional<MappedFile> mapping_;  // of Open; bytes_ then lies in it
  std::span<const std::byte> bytes_;
  std::vector<TensorView> tensors_;
  std::vector<UnsupportedTensor> unsupported_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

}  // namespace pocketlm
