// Models from a Hugging Face hub: "hf:ORG/REPO" and "hf:ORG/REPO/FILE".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "http_client.h"

namespace pocketlm::cli {

struct HubSource {
  std::string organization;
  std::string repository;
  std::string file;  // path inside the repository; empty: the whole model
};

// "hf:ORG/REPO[/FILE]"; throws CliError (usage) for anything else, unsafe names among it.
HubSource ParseHubSource(const std::string& text);

// One file to fetch.
struct HubFile {
  std::string path;  // inside the repository
  std::string url;
  std::optional<uint64_t> size_bytes;
  std::string sha256;  // of files in large-file storage; else empty
};

// Address and token: $HF_ENDPOINT (else the hub's own address), $HF_TOKEN.
HttpSettings HubSettings();

// The one file, or the files that make up a model folder: configuration, tokenizer, safetensors; config.json is the
// last. Throws CliError if the repository has no such file or no model of that kind.
std::vector<HubFile> ListHubFiles(HttpClient& client, const HubSource& source);

}  // namespace pocketlm::cli
