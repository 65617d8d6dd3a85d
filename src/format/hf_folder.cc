#include "format/hf_folder.h"

#include <algorithm>
#include <map>
#include <new>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/quote.h"

namespace pocketlm {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;
constexpr uint64_t kMaxSideFileBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr size_t kMaxShards = 4096;

// Reads a JSON object. Names the file in every error.
Result<json> ReadJsonObject(const std::string& path, uint64_t max_bytes) {
  POCKETLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  JsonLimits limits;
  limits.max_bytes = max_bytes;
  auto value = ParseJson(text, limits);
  if (!value.ok()) return value.status().WithContext("load " + path);
  if (!value->is_object()) {
    return DataError("load " + path + ": expected a JSON object, got " + value->type_name());
  }
  return value;
}

// The same for a file that may be missing: null then.
Result<json> ReadOptionalJsonObject(const std::string& path, uint64_t max_bytes) {
  if (!FileExists(path)) return json(nullptr);
  return ReadJsonObject(path, max_bytes);
}

// CRLF and CR as LF, no byte order mark.
std::string NormalizeText(std::string_view text) {
  text = SkipByteOrderMark(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    }
  }
  return out;
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
}

// The string member `name` of an object; nullptr if it is no such thing.
const std::string* StringMember(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(name);
  return at != object.end() ? at->get_ptr<const json::string_t*>() : nullptr;
}

// Looks for the template called "default" in a list of {"name": …, "template": …}.
Result<std::optional<std::string>> DefaultTemplate(const json& list) {
  std::optional<std::string> found;
  for (const json& entry : list) {
    const std::string* name = StringMember(entry, "name");
    const std::string* text = StringMember(entry, "template");
    if (name == nullptr || text == nullptr) {
      return DataError("chat_template: expected a list of {\"name\", \"template\"} with strings");
    }
    if (*name == "default" && !found) found = *text;
  }
  return found;
}

// Shard file names of a weight_map, each with the tensors that it must hold.
Result<std::map<std::string, std::vector<std::string>>> ReadWeightMap(const json& index) {
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    return DataError("expected an object \"weight_map\"");
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    const auto* file = shard.get_ptr<const json::string_t*>();
    if (file == nullptr || !IsPlainFileName(*file)) {
      return DataError("weight_map: " + Quote(tensor) +
                       ": expected the name of a file in the folder, got " +
                       (file != nullptr ? Quote(*file) : std::string(shard.type_name())));
    }
    shards[*file].push_back(tensor);
    if (shards.size() > kMaxShards) return DataError("weight_map: over 4096 shards");
  }
  if (shards.empty()) return DataError("weight_map is empty");
  return shards;
}

// Whether the file holds all of `names`, readable or not.
Status CheckHolds(const SafetensorsFile& shard, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto tensor = shard.GetTensor(name);
    if (!tensor.ok() && tensor.status().code() == StatusCode::kNotFound) {
      return DataError("tensor " + Quote(name) +
                       " is missing, although weight_map names this file");
    }
  }
  return OkStatus();
}

}  // namespace

Result<HfFolder> HfFolder::Open(const std::string& directory) {
  if (!IsDirectory(directory)) return NotFound("open: " + directory + ": no such folder");
  try {
    HfFolder folder;
    folder.directory_ = directory;
    POCKETLM_RETURN_IF_ERROR(folder.ReadSideFiles());
    POCKETLM_RETURN_IF_ERROR(folder.OpenWeights());
    POCKETLM_RETURN_IF_ERROR(folder.IndexTensors());
    return folder;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("load " + directory + ": no memory for the tables");
  }
}

Status HfFolder::ReadSideFiles() {
  const auto path = [this](const char* name) { return JoinPath(directory_, name); };
  POCKETLM_ASSIGN_OR_RETURN(config_, ReadJsonObject(path("config.json"), kMaxConfigBytes));
  POCKETLM_ASSIGN_OR_RETURN(
      generation_config_, ReadOptionalJsonObject(path("generation_config.json"), kMaxConfigBytes));
  POCKETLM_ASSIGN_OR_RETURN(
      tokenizer_config_, ReadOptionalJsonObject(path("tokenizer_config.json"), kMaxSideFileBytes));
  return ReadChatTemplate();
}

Status HfFolder::ReadChatTemplate() {
  const std::string path = JoinPath(directory_, "chat_template.jinja");
  if (FileExists(path)) {
    POCKETLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
    chat_template_ = NormalizeText(text);
    return OkStatus();
  }
  if (!tokenizer_config_.is_object()) return OkStatus();
  const auto at = tokenizer_config_.find("chat_template");
  if (at == tokenizer_config_.end() || at->is_null()) return OkStatus();
  const std::string config_path = JoinPath(directory_, "tokenizer_config.json");
  if (const auto* text = at->get_ptr<const json::string_t*>()) {
    chat_template_ = *text;
    return OkStatus();
  }
  if (!at->is_array()) {
    return DataError("load " + config_path + ": chat_template: expected a string or a list, got " +
                     at->type_name());
  }
  auto found = DefaultTemplate(*at);
  if (!found.ok()) return found.status().WithContext("load " + config_path);
  chat_template_ = std::move(*found);
  return OkStatus();
}

Status HfFolder::OpenWeights() {
  const std::string single = JoinPath(directory_, "model.safetensors");
  if (FileExists(single)) {
    POCKETLM_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(single));
    shards_.push_back(std::move(file));
    return OkStatus();
  }
  const std::string index = JoinPath(directory_, "model.safetensors.index.json");
  if (!FileExists(index)) {
    return NotFound("load " + directory_ +
                    ": expected model.safetensors or model.safetensors.index.json, found neither");
  }
  return OpenShards(index);
}

Status HfFolder::OpenShards(const std::string& index_path) {
  POCKETLM_ASSIGN_OR_RETURN(const json index, ReadJsonObject(index_path, kMaxSideFileBytes));
  auto shards = ReadWeightMap(index);
  if (!shards.ok()) return shards.status().WithContext("load " + index_path);
  for (const auto& [name, tensors] : *shards) {
    const std::string path = JoinPath(directory_, name);
    if (!FileExists(path))
      return NotFound("load " + directory_ + ": shard " + Quote(name) + " is missing");
    POCKETLM_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
    Status status = CheckHolds(file, tensors);
    if (!status.ok()) return status.WithContext("load " + path);
    shards_.push_back(std::move(file));
  }
  return OkStatus();
}

Status HfFolder::IndexTensors() {
  for (const SafetensorsFile& shard : shards_) {
    for (const TensorView& tensor : shard.tensors()) tensors_.push_back(&tensor);
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorView* a, const TensorView* b) { return a->name < b->name; });
  const auto twin = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const TensorView* a, const TensorView* b) { return a->name == b->name; });
  if (twin != tensors_.end()) {
    return DataError("load " + directory_ + ": tensor " + Quote((*twin)->name) +
                     " is in two shards");
  }
  return OkStatus();
}

Result<std::string> HfFolder::ReadTokenizerJson() const {
  POCKETLM_ASSIGN_OR_RETURN(std::string text,
                            ReadFile(JoinPath(directory_, "tokenizer.json"), kMaxTokenizerBytes));
  const size_t mark_bytes = text.size() - SkipByteOrderMark(text).size();
  text.erase(0, mark_bytes);
  return text;
}

const TensorView* HfFolder::FindTensor(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const TensorView* tensor, std::string_view wanted) { return tensor->name < wanted; });
  return at != tensors_.end() && (*at)->name == name ? *at : nullptr;
}

Result<const TensorView*> HfFolder::GetTensor(std::string_view name) const {
  if (const TensorView* tensor = FindTensor(name)) return tensor;
  for (const SafetensorsFile& shard : shards_) {
    auto tensor = shard.GetTensor(name);
    if (tensor.status().code() == StatusCode::kUnsupported) return tensor;
  }
  return NotFound("load " + directory_ + ": tensor " + Quote(name) + " is missing");
}

}  // namespace pocketlm
