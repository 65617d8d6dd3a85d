// Files: read-only mappings and whole-file reads. Paths are UTF-8 on every system.
// The only place in the library that talks to the operating system's file API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace pocketlm {

// A read-only, private mapping of a whole file. Movable, closes on destruction.
// Reading is safe from any thread. Truncating the file from outside while it is mapped is undefined.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Asks the system to read [offset, offset + size), within the file, ahead of its use. Returns at once; a
  // system that cannot do it reads at the first touch.
  void Prefetch(uint64_t offset, uint64_t size) const;

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string path_;
};

// Reads a whole file; fails with kDataError if it is larger than `max_bytes`.
Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

bool IsDirectory(const std::string& path);
bool FileExists(const std::string& path);

// `directory`/`name`, with exactly one separator.
std::string JoinPath(const std::string& directory, const std::string& name);

}  // namespace pocketlm
