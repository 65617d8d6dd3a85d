// Aligned, uninitialized memory that reports failure instead of throwing.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "base/status.h"

namespace pocketlm {

// An owned array of trivially constructible T, aligned to 64 bytes, contents undefined. Pages of large buffers
// become resident only when touched.
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // `what` names the buffer in the kOutOfMemory error.
  static Result<AlignedBuffer> Allocate(size_t count, const char* what) {
    AlignedBuffer out;
    if (count > SIZE_MAX / sizeof(T)) return OutOfMemory(std::string(what) + ": size overflows");
    void* data = ::operator new (count * sizeof(T), std::align_val_t{64}, std::nothrow);
    if (data == nullptr) {
      return OutOfMemory(std::string(what) + ": cannot allocate " +
                         std::to_string(count * sizeof(T)) + " bytes");
    }
    out.data_.reset(static_cast<T*>(data));
    out.size_ = count;
    return out;
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace pocketlm
