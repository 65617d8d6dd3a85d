// Builds little-endian binary test inputs, well-formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm::testing {

class ByteBuilder {
 public:
  // Appends the bytes of an arithmetic value.
  template <typename T>
  ByteBuilder& Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  ByteBuilder& U8(uint8_t value) { return Put(value); }
  ByteBuilder& U32(uint32_t value) { return Put(value); }
  ByteBuilder& U64(uint64_t value) { return Put(value); }
  ByteBuilder& Raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  // A 64-bit length, then the bytes.
  ByteBuilder& String(std::string_view text) { return U64(text.size()).Raw(text); }
  // Zeros up to a multiple of `alignment`.
  ByteBuilder& PadTo(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_ += '\0';
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A copy of bytes at an address aligned to 64, as a mapped file has.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::string_view text)
      : storage_(text.size() / sizeof(Line) + 1), size_(text.size()) {
    std::memcpy(storage_.data(), text.data(), text.size());
  }
  std::span<const std::byte> span() const {
    return {reinterpret_cast<const std::byte*>(storage_.data()), size_};
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  std::vector<Line> storage_;
  size_t size_;
};

}  // namespace pocketlm::testing
