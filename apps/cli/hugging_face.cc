#include "hugging_face.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli_error.h"
#include "hash.h"
#include "url.h"

namespace pocketlm::cli {
namespace {

using nlohmann::json;

constexpr char kHub[] = "https://huggingface.co";
constexpr char kRevision[] = "main";

std::string HubAddress() {
  const char* value = std::getenv("HF_ENDPOINT");
  std::string address = value != nullptr && *value != '\0' ? value : kHub;
  while (!address.empty() && address.back() == '/') address.pop_back();
  const auto url = ParseUrl(address);
  const bool good =
      url && (url->scheme == "https" || (url->scheme == "http" && IsLoopbackHost(url->host)));
  if (!good)
    Fail("pull: HF_ENDPOINT: expected an https address, got \"" + address +
         "\"; correct or unset it");
  return address;
}

std::string Repository(const HubSource& source) {
  return source.organization + "/" + source.repository;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool IsModelSideFile(const std::string& name) {
  static const std::vector<std::string> names = {"generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "tokenizer.model",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "chat_template.jinja",
                                                 "chat_template.json",
                                                 "model.safetensors.index.json",
                                                 "LICENSE"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the hub lists in one folder of the repository, without subfolders.
std::vector<HubFile> ListFolder(HttpClient& client, const HubSource& source,
                                const std::string& folder) {
  const std::string address = HubAddress();
  std::string url =
      address + "/api/models/" + EscapePath(Repository(source)) + "/tree/" + kRevision;
  if (!folder.empty()) url += "/" + EscapePath(folder);
  std::string error;
  const auto page = client.GetPage(url, "application/json", &error);
  if (!page) {
    Fail("pull: hf:" + Repository(source) + ": " + PublicUrl(url) + ": " + error +
         "; check the name and the network (a gated model needs HF_TOKEN)");
  }
  const json entries = json::parse(page->body, nullptr, false);
  if (!entries.is_array())
    Fail("pull: " + PublicUrl(url) + ": expected a JSON array of files, got something else");
  std::vector<HubFile> files;
  for (const json& entry : entries) {
    const bool is_file = entry.is_object() && entry.contains("path") && entry["path"].is_string() &&
                         entry.contains("type") && entry["type"] == "file";
    if (!is_file) continue;
    HubFile file;
    file.path = entry["path"].get<std::string>();
    file.url = address + "/" + EscapePath(Repository(source)) + "/resolve/" + kRevision + "/" +
               EscapePath(file.path);
    if (entry.contains("size") && entry["size"].is_number_unsigned())
      file.size_bytes = entry["size"].get<uint64_t>();
    if (entry.contains("lfs") && entry["lfs"].is_object()) {
      const json& large = entry["lfs"];
      if (large.contains("oid") && large["oid"].is_string() &&
          IsSha256(large["oid"].get<std::string>())) {
        file.sha256 = LowerCase(large["oid"].get<std::string>());
      }
    }
    files.push_back(file);
  }
  return files;
}

// The weights among the files: the shards if there is an index, else model.safetensors, else all.
std::vector<HubFile> Weights(const std::vector<HubFile>& files) {
  const auto select = [&files](const auto& wanted) {
    std::vector<HubFile> out;
    std::copy_if(files.begin(), files.end(), std::back_inserter(out), [&](const HubFile& file) {
      return EndsWith(file.path, ".safetensors") && wanted(file.path);
    });
    return out;
  };
  const bool sharded = std::any_of(files.begin(), files.end(), [](const HubFile& file) {
    return file.path == "model.safetensors.index.json";
  });
  std::vector<HubFile> weights;
  if (sharded)
    weights = select([](const std::string& path) { return path.compare(0, 6, "model-") == 0; });
  if (weights.empty())
    weights = select([](const std::string& path) { return path == "model.safetensors"; });
  if (weights.empty()) weights = select([](const std::string&) { return true; });
  return weights;
}

[[noreturn]] void FailNoModel(const HubSource& source, const std::vector<HubFile>& files) {
  for (const HubFile& file : files) {
    if (!EndsWith(file.path, ".gguf")) continue;
    Fail("pull: hf:" + Repository(source) +
         ": expected a folder with config.json and safetensors, got GGUF files; " +
         "name one of them, as in `pocketlm pull hf:" + Repository(source) + "/" + file.path + "`");
  }
  Fail("pull: hf:" + Repository(source) +
       ": expected config.json and safetensors files, got none; check the name");
}

std::vector<HubFile> ModelFiles(const HubSource& source, const std::vector<HubFile>& all) {
  std::vector<HubFile> files;
  std::vector<HubFile> chosen = Weights(all);
  const bool has_weights = !chosen.empty();
  std::vector<HubFile> config;
  for (const HubFile& file : all) {
    if (file.path.find('/') != std::string::npos || !IsSafeFileName(file.path)) continue;
    if (file.path == "config.json") config.push_back(file);
    if (IsModelSideFile(file.path)) files.push_back(file);
  }
  if (config.empty() || !has_weights) FailNoModel(source, all);
  for (const HubFile& file : chosen) {
    if (file.path.find('/') == std::string::npos && IsSafeFileName(file.path))
      files.push_back(file);
  }
  files.push_back(config.front());
  return files;
}

}  // namespace

HubSource ParseHubSource(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 3;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('/', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool safe = std::all_of(parts.begin(), parts.end(),
                                [](const std::string& part) { return IsSafeFileName(part); });
  if (parts.size() < 2 || !safe) {
    FailUsage("pull: expected hf:ORG/REPO or hf:ORG/REPO/FILE with plain names, got \"" + text +
              "\"");
  }
  HubSource source{parts[0], parts[1], ""};
  for (size_t i = 2; i < parts.size(); ++i) source.file += (i > 2 ? "/" : "") + parts[i];
  return source;
}

HttpSettings HubSettings() {
  HttpSettings settings;
  const char* token = std::getenv("HF_TOKEN");
  if (token != nullptr) settings.bearer_token = token;
  return settings;
}

std::vector<HubFile> ListHubFiles(HttpClient& client, const HubSource& source) {
  if (source.file.empty()) return ModelFiles(source, ListFolder(client, source, ""));
  const size_t slash = source.file.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : source.file.substr(0, slash);
  for (const HubFile& file : ListFolder(client, source, folder)) {
    if (file.path == source.file) return {file};
  }
  Fail("pull: hf:" + Repository(source) + ": expected a file " + source.file +
       ", got no such file; check the name");
}

}  // namespace pocketlm::cli
