#include "text_files.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli_error.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

namespace fs = std::filesystem;

// More than any text that a vocabulary is chosen by; stops archives that unpack without end.
constexpr size_t kMaxTextBytes = size_t{1} << 32;

std::string Gunzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) Fail("read: " + path + ": expected a readable file");
  std::string content;
  std::vector<char> buffer(size_t{1} << 16);
  int count = 0;
  while ((count = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()))) > 0) {
    content.append(buffer.data(), static_cast<size_t>(count));
    if (content.size() > kMaxTextBytes)
      Fail("read: " + path + ": expected at most " + Thousands(kMaxTextBytes) + " bytes of text");
  }
  int error = Z_OK;
  const char* reason = gzerror(file.get(), &error);
  if (count < 0 || error != Z_OK)
    Fail("read: " + path + ": expected gzip data, got \"" + reason + "\"");
  return content;
}

TextFile ReadTextFile(const fs::path& path, const std::string& set) {
  if (path.extension() != ".gz") return {path.string(), set, ReadWholeFile(path.string())};
  fs::path name = path;
  return {name.replace_extension().string(), set, Gunzip(path.string())};
}

bool IsText(fs::path path) {
  if (path.extension() == ".gz") path.replace_extension();
  return path.extension() == ".txt" || path.extension() == ".jsonl";
}

std::vector<fs::path> TextsBelow(const std::string& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored) && IsText(it->path())) out.push_back(it->path());
  }
  if (error) Fail("read: " + folder + ": " + error.message());
  if (out.empty()) Fail("read: " + folder + ": expected .txt or .jsonl files (or .gz), got none");
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<TextFile> ReadTextFiles(const std::vector<std::string>& paths) {
  std::vector<TextFile> out;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      out.push_back(ReadTextFile(path, fs::path(path).filename().string()));
      continue;
    }
    for (const fs::path& file : TextsBelow(path))
      out.push_back(ReadTextFile(file, file.parent_path().filename().string()));
  }
  return out;
}

}  // namespace pocketlm::cli
