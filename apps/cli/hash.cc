#include "hash.h"

#include <openssl/evp.h>

#include <cstdio>
#include <new>
#include <vector>

#include "cli_error.h"

namespace pocketlm::cli {

struct Sha256::State {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  if (state_->context == nullptr ||
      EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(state_->context);
    throw std::bad_alloc();
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(state_->context); }

void Sha256::Update(const void* data, size_t size_bytes) {
  EVP_DigestUpdate(state_->context, data, size_bytes);
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(state_->context, digest, &size);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", digest[i]);
    text += digits;
  }
  return text;
}

std::string Sha256OfFile(const std::filesystem::path& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr)
    Fail("checksum: " + path.string() + ": cannot be read; check its permissions");
  Sha256 hash;
  std::vector<char> buffer(size_t{1} << 20);
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0)
    hash.Update(buffer.data(), count);
  if (std::ferror(file.get()) != 0)
    Fail("checksum: " + path.string() + ": reading failed; check the disk");
  return hash.Finish();
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

std::string LowerCase(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace pocketlm::cli
