#include "meter/model_identity.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/file.h"

namespace pocketlm {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashedBytes = size_t{1} << 20;

Result<std::vector<std::string>> WeightFiles(const std::string& path) {
  if (!IsDirectory(path)) return std::vector<std::string>{path};
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator entry(fs::path(std::u8string(path.begin(), path.end())), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() != ".safetensors") continue;
    const std::u8string name = entry->path().u8string();
    out.emplace_back(name.begin(), name.end());
  }
  if (error) return IoError("identify: " + path + ": " + error.message());
  if (out.empty()) return NotFound("identify: " + path + ": expected *.safetensors, got none");
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<ModelIdentity> IdentifyModel(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::string> files, WeightFiles(path));
  ModelIdentity out;
  uint64_t largest = 0, hash = 0;
  for (const std::string& name : files) {
    POCKETLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(name));
    const auto bytes = file.bytes();
    const uint64_t size = bytes.size();
    const size_t count = std::min(bytes.size(), kHashedBytes);
    hash = XXH3_64bits_withSeed(bytes.data(), count, hash);
    hash = XXH3_64bits_withSeed(bytes.data() + (bytes.size() - count), count, hash);
    hash = XXH3_64bits_withSeed(&size, sizeof(size), hash);
    out.file_bytes += size;
    if (out.largest_file.empty() || size > largest) {
      largest = size;
      out.largest_file = name;
    }
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  out.hash = digits;
  return out;
}

}  // namespace pocketlm
