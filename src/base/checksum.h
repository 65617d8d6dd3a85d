// XXH3-64 checksums: against damage, not against forgery.
//
// Source    xxHash 0.8 (its specification fixes XXH3 for all versions since), seed 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace pocketlm {

uint64_t Xxh3(std::span<const std::byte> bytes);

// The checksum of bytes that come in parts. Movable, not thread-safe.
class Xxh3Stream {
 public:
  Xxh3Stream();
  Xxh3Stream(Xxh3Stream&&) noexcept;
  Xxh3Stream& operator=(Xxh3Stream&&) noexcept;
  ~Xxh3Stream();

  void Update(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hexadecimal digits, most significant first, as xxhsum prints them.
std::string ChecksumText(uint64_t checksum);

}  // namespace pocketlm
