// A cursor over untrusted bytes. Every read is checked against what is left; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"

namespace pocketlm {

// Little-endian reader. Does not own the bytes, which must outlive it. Not thread-safe.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

  // Reads one trivially copyable value. `what` names it in the error.
  template <typename T>
  Result<T> Read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return Truncated(what, sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // A view of the next `size` bytes.
  Result<std::span<const std::byte>> ReadBytes(uint64_t size, std::string_view what) {
    if (size > remaining()) return Truncated(what, size);
    auto out = bytes_.subspan(position_, static_cast<size_t>(size));
    position_ += static_cast<size_t>(size);
    return out;
  }

  Result<std::string_view> ReadString(uint64_t size, std::string_view what) {
    POCKETLM_ASSIGN_OR_RETURN(auto raw, ReadBytes(size, what));
    return std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size());
  }

 private:
  Status Truncated(std::string_view what, uint64_t wanted) const {
    return DataError(std::string(what) + " at byte " + std::to_string(position_) + ": needs " +
                     std::to_string(wanted) + " bytes, file has " + std::to_string(remaining()) +
                     " left");
  }

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace pocketlm
