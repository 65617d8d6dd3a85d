// SHA-256, by OpenSSL.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace pocketlm::cli {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Update(const void* data, size_t size_bytes);
  // 64 lower-case hexadecimal digits. Ends the computation.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of a whole file; throws CliError if it cannot be read.
std::string Sha256OfFile(const std::filesystem::path& path);

// Whether `text` is 64 hexadecimal digits, of either case.
bool IsSha256(const std::string& text);

std::string LowerCase(std::string text);  // ASCII letters

}  // namespace pocketlm::cli
