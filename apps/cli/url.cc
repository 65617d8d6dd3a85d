#include "url.h"

#include <curl/curl.h>

#include <memory>

#include "hash.h"

namespace pocketlm::cli {
namespace {

using Handle = std::unique_ptr<CURLU, void (*)(CURLU*)>;

Handle NewHandle() { return Handle(curl_url(), curl_url_cleanup); }

std::optional<std::string> Part(CURLU* handle, CURLUPart part, unsigned flags) {
  char* text = nullptr;
  if (curl_url_get(handle, part, &text, flags) != CURLUE_OK || text == nullptr) return std::nullopt;
  std::string copy(text);
  curl_free(text);
  return copy;
}

}  // namespace

std::optional<Url> ParseUrl(const std::string& text) {
  if (text.find('\0') != std::string::npos) return std::nullopt;
  Handle handle = NewHandle();
  if (curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
      CURLUE_OK) {
    return std::nullopt;
  }
  Url url;
  url.scheme = LowerCase(Part(handle.get(), CURLUPART_SCHEME, 0).value_or(""));
  url.host = LowerCase(Part(handle.get(), CURLUPART_HOST, 0).value_or(""));
  url.fragment = Part(handle.get(), CURLUPART_FRAGMENT, 0).value_or("");
  const auto path = Part(handle.get(), CURLUPART_PATH, CURLU_URLDECODE);
  if (!path) return std::nullopt;
  url.path = *path;
  return url;
}

std::optional<std::string> JoinUrl(const std::string& base, const std::string& reference) {
  if (base.find('\0') != std::string::npos || reference.find('\0') != std::string::npos)
    return std::nullopt;
  Handle handle = NewHandle();
  if (curl_url_set(handle.get(), CURLUPART_URL, base.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
          CURLUE_OK ||
      curl_url_set(handle.get(), CURLUPART_URL, reference.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
          CURLUE_OK) {
    return std::nullopt;
  }
  return Part(handle.get(), CURLUPART_URL, 0);
}

std::string PublicUrl(const std::string& text) {
  Handle handle = NewHandle();
  if (curl_url_set(handle.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
      CURLUE_OK)
    return text;
  for (const CURLUPart part :
       {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY, CURLUPART_FRAGMENT}) {
    curl_url_set(handle.get(), part, nullptr, 0);
  }
  return Part(handle.get(), CURLUPART_URL, 0).value_or(text);
}

std::string LastSegment(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string EscapePath(const std::string& path) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == '/';
    if (plain) {
      out.push_back(c);
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

bool IsLoopbackHost(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == "[::1]";
}

bool IsSafeFileName(std::string_view name) {
  if (name.empty() || name.size() > 200) return false;
  if (name.front() == '.' || name.front() == '-' || name.front() == '~') return false;
  if (name.back() == '.' || name.back() == ' ') return false;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return false;
    if (std::string_view("/\\:*?\"<>|").find(c) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace pocketlm::cli
