#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pocketlm {
namespace {

// Closes a descriptor at scope end.
struct ScopedFd {
  int fd;
  ~ScopedFd() {
    if (fd >= 0) ::close(fd);
  }
};

Status OpenError(const std::string& path) {
  const int error = errno;
  std::string message = "open: " + path + ": " + std::strerror(error);
  return error == ENOENT ? NotFound(std::move(message)) : IoError(std::move(message));
}

// Opens a regular file for reading and reports its size.
Result<int> OpenRegular(const std::string& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return OpenError(path);
  struct stat st;
  if (::fstat(fd, &st) != 0) {
    Status status = IoError("stat: " + path + ": " + std::strerror(errno));
    ::close(fd);
    return status;
  }
  if (!S_ISREG(st.st_mode)) {
    ::close(fd);
    return InvalidArgument("open: " + path + ": expected a regular file, got something else");
  }
  *size = static_cast<uint64_t>(st.st_size);
  return fd;
}

}  // namespace

Result<MappedFile> MappedFile::Open(const std::string& path) {
  uint64_t size = 0;
  POCKETLM_ASSIGN_OR_RETURN(int raw_fd, OpenRegular(path, &size));
  ScopedFd fd{raw_fd};
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(size);
  if (size == 0) return file;
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.fd, 0);
  if (data == MAP_FAILED) return IoError("map: " + path + ": " + std::strerror(errno));
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::Prefetch(uint64_t offset, uint64_t size) const {
  if (offset > size_ || size > size_ - offset) return;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t begin = offset / page * page;
  // Advice only: a failure changes nothing but speed.
  (void)::madvise(const_cast<std::byte*>(data_) + begin, static_cast<size_t>(offset + size - begin),
                  MADV_WILLNEED);
}

Result<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  POCKETLM_ASSIGN_OR_RETURN(int raw_fd, OpenRegular(path, &size));
  ScopedFd fd{raw_fd};
  if (size > max_bytes) {
    return DataError("read: " + path + ": expected at most " + std::to_string(max_bytes) +
                     " bytes, got " + std::to_string(size));
  }
  std::string content(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(fd.fd, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return IoError("read: " + path + ": " + std::strerror(errno));
    if (n == 0) break;  // the file shrank meanwhile
    done += static_cast<size_t>(n);
  }
  content.resize(done);
  return content;
}

bool IsDirectory(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool FileExists(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0;
}

std::string JoinPath(const std::string& directory, const std::string& name) {
  if (directory.empty()) return name;
  return directory.back() == '/' ? directory + name : directory + "/" + name;
}

}  // namespace pocketlm
