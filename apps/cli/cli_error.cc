#include "cli_error.h"

#include <cstdio>

namespace pocketlm::cli {

void Fail(const std::string& message) { throw CliError(kExitFailed, message); }

void FailUsage(const std::string& message) { throw CliError(kExitUsage, message); }

std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_space = byte <= 0x20 || byte == 0x7f;
    if (!is_space) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

void PrintError(const std::string& message) {
  std::fprintf(stderr, "pocketlm: %s\n", OneLine(message).c_str());
}

void PrintNote(const std::string& message) { PrintError(message); }

}  // namespace pocketlm::cli
