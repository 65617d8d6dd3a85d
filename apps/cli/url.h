// Addresses: taking apart, joining, and what may become a file name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pocketlm::cli {

struct Url {
  std::string scheme;  // lower case: "https", "http", "file"
  std::string host;    // lower case, without port; empty for file
  std::string path;    // percent-decoded, begins with '/'
  std::string fragment;
};

// nullopt for what is no absolute URL or holds a NUL byte.
std::optional<Url> ParseUrl(const std::string& text);

// `reference` as seen from the page `base`; nullopt if either is malformed.
std::optional<std::string> JoinUrl(const std::string& base, const std::string& reference);

// The address without user name, password and query, for messages.
std::string PublicUrl(const std::string& text);

// The part of a decoded URL path after the last '/'.
std::string LastSegment(std::string_view path);

// One path component for the query or path of a URL, with reserved characters escaped; '/' is kept.
std::string EscapePath(const std::string& path);

// "127.0.0.1", "::1", "localhost".
bool IsLoopbackHost(const std::string& host);

// Whether a name that came from outside may become a file or folder of ours: not empty, at most 200 bytes, no
// leading '.', '-' or '~', none of / \ : * ? " < > | or control characters, valid on every system.
bool IsSafeFileName(std::string_view name);

}  // namespace pocketlm::cli
