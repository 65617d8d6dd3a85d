#include "model_files.h"

#include <cstdlib>
#include <optional>
#include <system_error>
#include <vector>

#include "cli_error.h"
#include "model_registry.h"
#include "url.h"

namespace fs = std::filesystem;

namespace pocketlm::cli {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The name as a path below a folder of models, or nullopt if it could leave it.
std::optional<fs::path> RelativeName(std::string name) {
  if (name.compare(0, 3, "hf:") == 0) name = name.substr(3);
  fs::path path;
  size_t begin = 0;
  while (begin <= name.size()) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (!IsSafeFileName(part)) return std::nullopt;
    path /= part;
    begin = end + 1;
  }
  return path;
}

}  // namespace

fs::path CacheFolder() {
  if (const std::string home = Environment("POCKETLM_HOME"); !home.empty()) return home;
  if (const std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "pocketlm";
  const std::string home = Environment("HOME");
  if (home.empty())
    Fail(
        "cache: expected POCKETLM_HOME, XDG_CACHE_HOME or HOME to name a folder, got none; set "
        "one");
  return fs::path(home) / ".cache" / "pocketlm";
}

std::string ResolveModel(const std::string& model) {
  if (model.empty()) FailUsage("model: expected a file or a name, got an empty text");
  if (Exists(model)) return model;
  if (const auto relative = RelativeName(model)) {
    for (const fs::path& folder : {fs::path("models"), CacheFolder()}) {
      const fs::path path = folder / *relative;
      const fs::path file = path.string() + ".gguf";
      if (IsFile(file)) return file.string();
      if (IsFile(path) || IsFile(path / "config.json")) return path.string();
    }
  }
  const bool pullable = FindKnownModel(model) != nullptr || model.compare(0, 3, "hf:") == 0;
  if (pullable) {
    Fail("model: " + model + ": not on this machine yet; run `pocketlm pull " + model + "` first");
  }
  Fail("model: " + model + ": expected a file, a folder or a name in models/ or " +
       CacheFolder().string() + ", got nothing there; check the path, or pull one of " +
       KnownModelNames());
}

}  // namespace pocketlm::cli
