#include "base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pocketlm {

struct Xxh3Stream::State {
  XXH3_state_t xxh;  // has members of 64-byte alignment
};

uint64_t Xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
Xxh3Stream::Xxh3Stream(Xxh3Stream&&) noexcept = default;
Xxh3Stream& Xxh3Stream::operator=(Xxh3Stream&&) noexcept = default;
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

uint64_t Xxh3Stream::Digest() const { return XXH3_64bits_digest(&state_->xxh); }

std::string ChecksumText(uint64_t checksum) {
  std::string out(16, '0');
  for (size_t i = out.size(); i-- > 0; checksum >>= 4) out[i] = "0123456789abcdef"[checksum & 15];
  return out;
}

}  // namespace pocketlm
