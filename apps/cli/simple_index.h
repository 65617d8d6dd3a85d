// Project pages of a Python package index: PEP 503 (HTML) and PEP 691 (JSON).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm::cli {

struct IndexFile {
  std::string file_name;
  std::string url;                     // absolute
  std::string sha256;                  // lower case; empty if the page has none
  std::optional<uint64_t> size_bytes;  // if the page tells
};

// The Accept header of a client that knows both kinds.
inline constexpr char kSimpleIndexAccept[] =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, "
    "text/html;q=0.01";

// The files that a page lists, in its order; entries that make no sense are left out. `page_url` is where the page
// came from. A content type that names JSON is parsed so, everything else as HTML.
std::vector<IndexFile> ParseIndexPage(std::string_view body, const std::string& content_type,
                                      const std::string& page_url);

// PEP 503: lower case, runs of '-', '_' and '.' become one '-'.
std::string NormalizedProject(const std::string& name);

// Whether a file name is a wheel of that project and version.
bool IsWheelOf(const std::string& file_name, const std::string& project,
               const std::string& version);

}  // namespace pocketlm::cli
