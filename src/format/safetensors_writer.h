// Writer of safetensors files.
//
// Source    The safetensors format description (huggingface/safetensors, README "Format").
// Order     DeclareTensor in any order, then Append with the bytes of each in the order of declaration, then Finish. The file appears
//           under its name only when Finish succeeds (base/file_writer.h).
// Memory    The header; tensor bytes are not copied.
// Threads   One at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/file_writer.h"
#include "base/status.h"

namespace pocketlm {

class SafetensorsFileWriter {
 public:
  // Opens a temporary file beside `path`; kIoError, kNotFound if that fails.
  static Result<SafetensorsFileWriter> Create(const std::string& path);

  // Announces a tensor: F32, F16 or BF16, row-major. kInvalidArgument: another type; a name that is taken, empty, no UTF-8 or
  // "__metadata__"; a size that overflows.
  Status DeclareTensor(std::string_view name, DType type, const std::vector<uint64_t>& shape);

  // Writes the whole next tensor, the header before the first. kInvalidArgument: more tensors than were declared, or
  // another number of bytes. kIoError.
  Status Append(std::span<const std::byte> data);

  // Writes what is left and gives the file its name. kInvalidArgument if a declared tensor was not appended.
  Status Finish();

 private:
  explicit SafetensorsFileWriter(FileWriter file) : file_(std::move(file)) {}
  Status WriteHeader();

  FileWriter file_;
  nlohmann::ordered_json header_;
  std::vector<uint64_t> sizes_;  // bytes of each tensor
  uint64_t end_ = 0;             // of the tensors declared so far
  size_t appended_ = 0;
  bool header_written_ = false;
};

}  // namespace pocketlm
