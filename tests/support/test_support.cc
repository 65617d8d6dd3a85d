#include "support/test_support.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.h"

namespace pocketlm::testing {
namespace {

std::string EnvOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

// The scratch folders of this process, removed at exit.
struct ScratchRoot {
  std::filesystem::path path;
  int count = 0;
  ScratchRoot() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "pocketlm-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~ScratchRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

std::string SourceDir() { return EnvOr("POCKETLM_SOURCE_DIR", "."); }

std::optional<std::string> DataPath(const std::string& relative) {
  const std::string path =
      JoinPath(EnvOr("POCKETLM_DATA", JoinPath(SourceDir(), "../shared/data")), relative);
  if (!FileExists(path)) return std::nullopt;
  return path;
}

std::optional<std::string> PulledModelPath(const std::string& name) {
  const std::string cache = EnvOr("XDG_CACHE_HOME", EnvOr("HOME", ".") + "/.cache");
  const std::string path = EnvOr("POCKETLM_HOME", cache + "/pocketlm") + "/" + name + ".gguf";
  if (!FileExists(path)) return std::nullopt;
  return path;
}

bool DataIsRequired() { return EnvOr("POCKETLM_REQUIRE_DATA", "0") == "1"; }

std::string ScratchDir() {
  static ScratchRoot root;
  const auto path = root.path / std::to_string(root.count++);
  std::filesystem::create_directories(path);
  return path.string();
}

void WriteFileOrDie(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  POCKETLM_CHECK(out.good());
}

std::string ReadGzipOrDie(const std::string& path) {
  FILE* pipe = ::popen(("gzip -dc '" + path + "'").c_str(), "r");
  POCKETLM_CHECK(pipe != nullptr);
  std::string out;
  char buffer[65536];
  size_t n;
  while ((n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) out.append(buffer, n);
  POCKETLM_CHECK(::pclose(pipe) == 0);
  return out;
}

}  // namespace pocketlm::testing
