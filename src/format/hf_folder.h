// Reader of Hugging Face model folders: config, side files and safetensors weights.
//
// Source    The folder layout that transformers' save_pretrained writes.
// Trust     Every file is hostile; JSON is parsed with bounded depth and memory (base/json.h). Side
//           files are read alike with CRLF or LF, with or without a byte order mark and a last newline.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "base/tensor_view.h"
#include "format/safetensors.h"

namespace pocketlm {

// An open model folder. Immutable: reading is safe from any thread. Moving keeps all views valid.
class HfFolder {
 public:
  // Opens `directory` (UTF-8). Needs config.json (an object) and the weights: model.safetensors, or
  // else model.safetensors.index.json with the shards that its weight_map names, which must be
  // plain names of files in the folder, all present, holding the tensors that the map says.
  // Errors  kNotFound: no folder, no config.json, no weights, a missing shard (named).
  //         kDataError: a malformed file (named), a tensor in two shards, over 4,096 shards.
  static Result<HfFolder> Open(const std::string& directory);

  HfFolder(HfFolder&&) = default;
  HfFolder& operator=(HfFolder&&) = default;
  HfFolder(const HfFolder&) = delete;
  HfFolder& operator=(const HfFolder&) = delete;

  const std::string& directory() const { return directory_; }

  const nlohmann::json& config() const { return config_; }                        // an object
  const nlohmann::json& generation_config() const { return generation_config_; }  // null if absent
  const nlohmann::json& tokenizer_config() const { return tokenizer_config_; }    // null if absent

  // The chat template: chat_template.jinja with CRLF and CR made LF (as Python's text mode does);
  // else "chat_template" of tokenizer_config.json, a string, or of a list of named templates the
  // one called "default". nullopt if there is none of these.
  const std::optional<std::string>& chat_template() const { return chat_template_; }

  // The text of tokenizer.json, without byte order mark. Read at each call and not kept.
  // kNotFound if absent, kDataError if over 256 MiB.
  Result<std::string> ReadTokenizerJson() const;

  // Readable tensors over all shards, sorted by name. The views live as long as the folder object;
  // their data may start at any address (see safetensors.h).
  std::span<const TensorView* const> tensors() const { return tensors_; }
  const TensorView* FindTensor(std::string_view name) const;  // nullptr if absent or not readable

  // As FindTensor, but says why not: kNotFound; kUnsupported naming tensor and type.
  Result<const TensorView*> GetTensor(std::string_view name) const;

  std::span<const SafetensorsFile> shards() const { return shards_; }

 private:
  HfFolder() = default;
  Status ReadSideFiles();
  Status ReadChatTemplate();
  Status OpenWeights();
  Status OpenShards(const std::string& index_path);
  Status IndexTensors();

  std::string directory_;
  nlohmann::json config_;
  nlohmann::json generation_config_;
  nlohmann::json tokenizer_config_;
  std::optional<std::string> chat_template_;
  std::vector<SafetensorsFile> shards_;
  std::vector<const TensorView*> tensors_;  // of all shards, sorted by name
};

}  // namespace pocketlm
