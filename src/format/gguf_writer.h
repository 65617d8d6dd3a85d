// Writer of GGUF files, version 3, little-endian.
//
// Source    The GGUF specification (ggml/docs/gguf.md).
// Order     Add… (metadata) and DeclareTensor in any order, then Append with the bytes of each tensor in the order
//           of declaration, then Finish. The file appears under its name only when Finish succeeds
//           (base/file_writer.h).
// Memory    The header; tensor bytes are not copied.
// Threads   One at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file_writer.h"
#include "base/status.h"
#include "format/gguf.h"

namespace pocketlm {

class GgufFileWriter {
 public:
  // Opens a temporary file beside `path`; kIoError, kNotFound if that fails.
  static Result<GgufFileWriter> Create(const std::string& path);

  // Metadata. Keys are ASCII, not empty and not repeated.
  void AddUint32(std::string_view key, uint32_t value);
  void AddFloat32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddString(std::string_view key, std::string_view value);
  void AddStrings(std::string_view key, std::span<const std::string> values);
  void AddInt32s(std::string_view key, std::span<const int32_t> values);
  void AddFloat32s(std::string_view key, std::span<const float> values);
  void AddBools(std::string_view key, const std::vector<bool>& values);

  // Announces a tensor; `shape` is row-major. kInvalidArgument: a name that is empty, over 63 bytes (what readers
  // take) or taken; 0 or more than 4 dimensions; rows that are not whole blocks.
  Status DeclareTensor(std::string_view name, DType type, const std::vector<uint64_t>& shape);

  // Writes the whole next tensor, the header before the first. kInvalidArgument: more tensors than were declared, or
  // another number of bytes. kIoError.
  Status Append(std::span<const std::byte> data);

  // Writes what is left and gives the file its name. kInvalidArgument if a declared tensor was not appended.
  Status Finish();

 private:
  struct Tensor {
    std::string name;
    DType type;
    std::vector<uint64_t> shape;
    uint64_t bytes;
  };

  explicit GgufFileWriter(FileWriter file) : file_(std::move(file)) {}
  void Key(std::string_view key, GgufType type);
  Status WriteHeader();
  Status Pad();

  FileWriter file_;
  std::string metadata_;
  uint64_t num_keys_ = 0;
  std::vector<Tensor> tensors_;
  std::set<std::string, std::less<>> names_;
  size_t appended_ = 0;
  bool header_written_ = false;
};

}  // namespace pocketlm
