// Writes a file that appears under its name only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace pocketlm {

// Writes go to "<path>.<process id>.part" in the same folder; Commit renames it. Destruction without Commit
// removes it. Movable, not thread-safe.
class FileWriter {
 public:
  // kNotFound if the folder is missing, else kIoError.
  static Result<FileWriter> Create(const std::string& path);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Appends. After an error (kIoError: a full disk…) the writer is of no more use.
  Status Write(std::span<const std::byte> bytes);
  // Overwrites bytes that were written before; the place of the next Write stays.
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  // Bytes appended so far.
  uint64_t size_bytes() const { return size_; }

  // Waits until the bytes are on the disk, then replaces `path`. Call once.
  Status Commit();

 private:
  FileWriter() = default;
  Status Error(const char* operation) const;

  int fd_ = -1;
  uint64_t size_ = 0;
  std::string path_;
  std::string part_path_;
};

}  // namespace pocketlm
