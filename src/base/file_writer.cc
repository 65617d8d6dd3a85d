#include "base/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace pocketlm {

Result<FileWriter> FileWriter::Create(const std::string& path) {
  FileWriter file;
  file.path_ = path;
  const std::string part_path = path + "." + std::to_string(::getpid()) + ".part";
  file.fd_ = ::open(part_path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file.fd_ < 0) {
    std::string message = "write: " + part_path + ": " + std::strerror(errno);
    return errno == ENOENT ? NotFound(std::move(message)) : IoError(std::move(message));
  }
  file.part_path_ = part_path;
  return file;
}

FileWriter::FileWriter(FileWriter&& other) noexcept { *this = std::move(other); }

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  std::swap(part_path_, other.part_path_);
  return *this;
}

FileWriter::~FileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!part_path_.empty()) ::unlink(part_path_.c_str());
}

Status FileWriter::Error(const char* operation) const {
  return IoError(std::string(operation) + ": " + part_path_ + ": " + std::strerror(errno));
}

Status FileWriter::Write(std::span<const std::byte> bytes) {
  POCKETLM_RETURN_IF_ERROR(WriteAt(size_, bytes));
  size_ += bytes.size();
  return OkStatus();
}

Status FileWriter::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error("write");
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return OkStatus();
}

Status FileWriter::Commit() {
  if (::fsync(fd_) != 0) return Error("sync");
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) return Error("close");
  if (std::rename(part_path_.c_str(), path_.c_str()) != 0) {
    return IoError("rename: " + part_path_ + " to " + path_ + ": " + std::strerror(errno));
  }
  part_path_.clear();
  return OkStatus();
}

}  // namespace pocketlm
