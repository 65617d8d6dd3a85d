#include "simple_index.h"

#include <nlohmann/json.hpp>

#include "hash.h"
#include "url.h"

namespace pocketlm::cli {
namespace {

using nlohmann::json;

// Entities that occur in attribute values: the five of XML, and numbers below 128.
std::string DecodeEntities(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == '&' ? text.find(';', i) : std::string_view::npos;
    if (end == std::string_view::npos || end - i > 8) {
      out.push_back(text[i]);
      continue;
    }
    const std::string name(text.substr(i + 1, end - i - 1));
    long code = -1;
    if (name == "amp") code = '&';
    if (name == "lt") code = '<';
    if (name == "gt") code = '>';
    if (name == "quot") code = '"';
    if (name == "apos") code = '\'';
    if (name.size() > 1 && name[0] == '#') {
      const bool hex = name[1] == 'x' || name[1] == 'X';
      code = std::strtol(name.c_str() + (hex ? 2 : 1), nullptr, hex ? 16 : 10);
    }
    if (code <= 0 || code >= 128) {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>(code));
    i = end;
  }
  return out;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

// The value of one attribute of a start tag's inside ("a href='…' class=x"); nullopt if it is not there.
std::optional<std::string> Attribute(std::string_view tag, const std::string& wanted) {
  size_t i = 0;
  while (i < tag.size() && !IsSpace(tag[i])) ++i;
  while (i < tag.size()) {
    while (i < tag.size() && (IsSpace(tag[i]) || tag[i] == '/')) ++i;
    const size_t name_begin = i;
    while (i < tag.size() && !IsSpace(tag[i]) && tag[i] != '=') ++i;
    const std::string name = LowerCase(std::string(tag.substr(name_begin, i - name_begin)));
    while (i < tag.size() && IsSpace(tag[i])) ++i;
    std::string_view value;
    if (i < tag.size() && tag[i] == '=') {
      ++i;
      while (i < tag.size() && IsSpace(tag[i])) ++i;
      const char quote = i < tag.size() && (tag[i] == '"' || tag[i] == '\'') ? tag[i] : '\0';
      if (quote != '\0') ++i;
      const size_t begin = i;
      while (i < tag.size() && (quote != '\0' ? tag[i] != quote : !IsSpace(tag[i]))) ++i;
      value = tag.substr(begin, i - begin);
      if (quote != '\0' && i < tag.size()) ++i;
    } else if (name.empty()) {
      break;
    }
    if (name == wanted) return DecodeEntities(value);
  }
  return std::nullopt;
}

// Calls visit(lower-case tag name, inside) for each start tag.
template <typename Visit>
void ForEachTag(std::string_view html, const Visit& visit) {
  size_t i = 0;
  while ((i = html.find('<', i)) != std::string_view::npos) {
    if (html.compare(i, 4, "<!--") == 0) {
      const size_t end = html.find("-->", i);
      if (end == std::string_view::npos) return;
      i = end + 3;
      continue;
    }
    char quote = '\0';
    size_t end = i + 1;
    while (end < html.size() && (quote != '\0' || html[end] != '>')) {
      if (quote != '\0') {
        if (html[end] == quote) quote = '\0';
      } else if (html[end] == '"' || html[end] == '\'') {
        quote = html[end];
      }
      ++end;
    }
    const std::string_view inside = html.substr(i + 1, end - i - 1);
    size_t name_end = 0;
    while (name_end < inside.size() && !IsSpace(inside[name_end])) ++name_end;
    visit(LowerCase(std::string(inside.substr(0, name_end))), inside);
    i = end;
  }
}

std::string Sha256OfFragment(const std::string& fragment) {
  static constexpr std::string_view kKey = "sha256=";
  const size_t at = fragment.find(kKey);
  if (at == std::string::npos) return "";
  const std::string value = fragment.substr(at + kKey.size(), 64);
  return IsSha256(value) ? LowerCase(value) : "";
}

std::vector<IndexFile> ParseHtml(std::string_view body, const std::string& page_url) {
  std::vector<IndexFile> files;
  std::string base = page_url;
  ForEachTag(body, [&](const std::string& name, std::string_view inside) {
    if (name != "a" && name != "base") return;
    const auto href = Attribute(inside, "href");
    if (!href) return;
    const auto url = JoinUrl(base, *href);
    const auto parsed = url ? ParseUrl(*url) : std::nullopt;
    if (!parsed) return;
    if (name == "base") {
      base = *url;
      return;
    }
    IndexFile file;
    file.file_name = LastSegment(parsed->path);
    file.url = url->substr(0, url->find('#'));
    file.sha256 = Sha256OfFragment(parsed->fragment);
    files.push_back(file);
  });
  return files;
}

std::vector<IndexFile> ParseJson(std::string_view body, const std::string& page_url) {
  std::vector<IndexFile> files;
  const json page = json::parse(body.begin(), body.end(), nullptr, false);
  if (!page.is_object() || !page.contains("files") || !page["files"].is_array()) return files;
  for (const json& entry : page["files"]) {
    if (!entry.is_object()) continue;
    const auto text = [](const json& object, const char* key) {
      const auto found = object.find(key);
      return found != object.end() && found->is_string() ? found->get<std::string>()
                                                         : std::string();
    };
    IndexFile file;
    file.file_name = text(entry, "filename");
    const auto url = JoinUrl(page_url, text(entry, "url"));
    if (file.file_name.empty() || !url) continue;
    file.url = url->substr(0, url->find('#'));
    if (entry.contains("hashes") && entry["hashes"].is_object()) {
      const std::string sha256 = text(entry["hashes"], "sha256");
      if (IsSha256(sha256)) file.sha256 = LowerCase(sha256);
    }
    if (entry.contains("size") && entry["size"].is_number_unsigned())
      file.size_bytes = entry["size"].get<uint64_t>();
    files.push_back(file);
  }
  return files;
}

}  // namespace

std::vector<IndexFile> ParseIndexPage(std::string_view body, const std::string& content_type,
                                      const std::string& page_url) {
  return content_type.find("json") != std::string::npos ? ParseJson(body, page_url)
                                                        : ParseHtml(body, page_url);
}

std::string NormalizedProject(const std::string& name) {
  std::string out;
  for (const char c : LowerCase(name)) {
    const bool separator = c == '-' || c == '_' || c == '.';
    if (!separator) {
      out.push_back(c);
    } else if (out.empty() || out.back() != '-') {
      out.push_back('-');
    }
  }
  return out;
}

bool IsWheelOf(const std::string& file_name, const std::string& project,
               const std::string& version) {
  if (file_name.size() < 4 || file_name.compare(file_name.size() - 4, 4, ".whl") != 0) return false;
  const size_t first = file_name.find('-');
  const size_t second = first == std::string::npos ? first : file_name.find('-', first + 1);
  if (second == std::string::npos) return false;
  return NormalizedProject(file_name.substr(0, first)) == NormalizedProject(project) &&
         file_name.substr(first + 1, second - first - 1) == version;
}

}  // namespace pocketlm::cli
