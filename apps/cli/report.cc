#include "report.h"

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "cli_error.h"

namespace pocketlm::cli {

std::string ToJsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool TryWriteStdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void WriteStdout(std::string_view text) {
  if (!TryWriteStdout(text)) {
    Fail(std::string("write: standard output: ") + std::strerror(errno) +
         "; check the disk or the reading program");
  }
}

void PrintJson(const Json& report) { WriteStdout(ToJsonText(report) + "\n"); }

Json MemoryJson(const plm_memory_usage& usage) {
  return {{"peak_rss_bytes", usage.peak_rss_bytes},
          {"anonymous_bytes", usage.anonymous_bytes},
          {"file_bytes", usage.file_bytes},
          {"swap_bytes", usage.swap_bytes}};
}

std::string ReadWholeFile(const std::string& path) {
  const bool from_stdin = path == "-";
  std::error_code error;
  if (!from_stdin && std::filesystem::is_directory(path, error)) {
    Fail("read: " + path + ": expected a file, got a folder");
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      from_stdin ? stdin : std::fopen(path.c_str(), "rb"),
      from_stdin ? [](std::FILE*) { return 0; } : std::fclose);
  if (file == nullptr) {
    Fail("read: " + path + ": expected a readable file, got \"" + std::strerror(errno) +
         "\"; check the path");
  }
  std::string content;
  std::vector<char> buffer(size_t{1} << 16);
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0)
    content.append(buffer.data(), count);
  if (std::ferror(file.get()) != 0) Fail("read: " + path + ": " + std::strerror(errno));
  return content;
}

std::string TextArgument(bool has_text, const std::string& text, const std::string& file) {
  if (has_text == !file.empty()) {
    FailUsage(std::string("text: expected either -p TEXT or -f FILE, got ") +
              (has_text ? "both" : "none") + "; -f - reads standard input");
  }
  return has_text ? text : ReadWholeFile(file);
}

std::string Thousands(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string Printf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  va_list copy;
  va_copy(copy, arguments);
  const int size = std::vsnprintf(nullptr, 0, format, copy);
  va_end(copy);
  std::string text(static_cast<size_t>(std::max(size, 0)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace pocketlm::cli
