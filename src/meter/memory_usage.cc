#include "meter/memory_usage.h"

#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace pocketlm {
namespace {

// The kB of the line "name:   123 kB" in bytes.
uint64_t Field(std::string_view text, std::string_view name) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.size() == name.size() || line[name.size()] != ':') continue;
    line.remove_prefix(name.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    uint64_t kilobytes = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), kilobytes);
    const bool good = parsed.ec == std::errc() && kilobytes <= UINT64_MAX / 1024;
    return good ? kilobytes * 1024 : 0;
  }
  return 0;
}

}  // namespace

namespace internal {
MemoryUsage ParseProcStatus(std::string_view text) {
  return {Field(text, "VmHWM"), Field(text, "RssAnon"), Field(text, "RssFile"),
          Field(text, "VmSwap")};
}
}  // namespace internal

MemoryUsage ReadMemoryUsage() {
  std::ifstream status("/proc/self/status");
  const std::string text((std::istreambuf_iterator<char>(status)),
                         std::istreambuf_iterator<char>());
  return internal::ParseProcStatus(text);
}

}  // namespace pocketlm
