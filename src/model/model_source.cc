#include "model/model_source.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/quote.h"

namespace pocketlm {
namespace {

// Prefixes of tensor names in safetensors: plain, text-only part of a multimodal model, and its older form.
constexpr const char* kFolderPrefixes[] = {"model.", "model.language_model.",
                                           "language_model.model."};

bool HasSuffix(const std::string& text, std::string_view suffix) {
  return text.size() >= suffix.size() &&
         std::string_view(text).substr(text.size() - suffix.size()) == suffix;
}

// tokenizer_config.json beside a tokenizer.json; "" if there is none.
Result<std::string> ReadOptional(const std::string& path) {
  if (!FileExists(path)) return std::string();
  return ReadFile(path);
}

// True for a .plm, false for a GGUF file; an error for anything else.
Result<bool> IsPlm(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (HasPlmMagic(file.bytes())) return true;
  constexpr std::string_view kGguf = "GGUF";
  const std::string_view start(reinterpret_cast<const char*>(file.bytes().data()),
                               std::min<size_t>(file.bytes().size(), 8));
  if (start.substr(0, kGguf.size()) == kGguf) return false;
  return DataError(
      "load " + path +
      ": expected a .plm or GGUF file or a Hugging Face folder; the file begins with " +
      Quote(start));
}

}  // namespace

Result<const TensorView*> ModelSource::Find(const std::string& hf_name,
                                            const std::string& gguf_name) const {
  if (gguf) return gguf->FindTensor(gguf_name);
  if (plm) return plm->FindTensor(hf_name.empty() ? gguf_name : hf_name);
  if (hf_name.empty()) return static_cast<const TensorView*>(nullptr);
  std::vector<std::string> names;
  if (hf_name == "lm_head.weight") {
    names = {hf_name, "language_model." + hf_name};
  } else {
    for (const char* prefix : kFolderPrefixes) names.push_back(prefix + hf_name);
  }
  for (const std::string& name : names) {
    auto tensor = folder->GetTensor(name);
    if (tensor.ok()) return tensor.value();
    if (tensor.status().code() != StatusCode::kNotFound) return tensor.status();
  }
  return static_cast<const TensorView*>(nullptr);
}

std::vector<const TensorView*> ModelSource::Tensors() const {
  std::vector<const TensorView*> out;
  if (gguf) {
    for (const TensorView& tensor : gguf->tensors()) out.push_back(&tensor);
  } else if (plm) {
    for (const TensorView& tensor : plm->tensors()) out.push_back(&tensor);
  } else {
    out.assign(folder->tensors().begin(), folder->tensors().end());
  }
  return out;
}

void ModelSource::PrefetchWeights() const {
  if (plm) plm->PrefetchPayload();
}

Result<ModelSource> OpenModelSource(const std::string& path) {
  if (IsDirectory(path)) {
    auto folder = HfFolder::Open(path);
    if (!folder.ok()) return folder.status();
    auto source = ModelSourceFromFolder(std::move(folder).value());
    if (!source.ok()) return source.status().WithContext(path);
    return source;
  }
  POCKETLM_ASSIGN_OR_RETURN(const bool is_plm, IsPlm(path));
  if (is_plm) {
    POCKETLM_ASSIGN_OR_RETURN(PlmFile plm, PlmFile::Open(path));
    auto source = ModelSourceFromPlm(std::move(plm));
    if (!source.ok()) return source.status().WithContext(path);
    return source;
  }
  auto file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  auto source = ModelSourceFromGguf(std::move(file).value());
  if (!source.ok()) return source.status().WithContext(path);
  return source;
}

Status VerifyModelFile(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(const bool is_plm,
                            IsDirectory(path) ? Result<bool>(false) : IsPlm(path));
  if (!is_plm) return Unsupported("verify " + path + ": only .plm files hold checksums");
  POCKETLM_ASSIGN_OR_RETURN(const PlmFile file, PlmFile::Open(path));
  return file.Verify().WithContext("verify " + path);
}

Result<TokenizerSpec> OpenTokenizerSpec(const std::string& path) {
  const bool is_folder = IsDirectory(path);
  if (is_folder || HasSuffix(path, ".json")) {
    const std::string json_path = is_folder ? JoinPath(path, "tokenizer.json") : path;
    POCKETLM_ASSIGN_OR_RETURN(const std::string tokenizer, ReadFile(json_path));
    std::string config;
    if (is_folder) {
      POCKETLM_ASSIGN_OR_RETURN(config, ReadOptional(JoinPath(path, "tokenizer_config.json")));
    }
    auto spec = ParseTokenizerJson(tokenizer, config);
    if (!spec.ok()) return spec.status().WithContext(json_path);
    return spec;
  }
  POCKETLM_ASSIGN_OR_RETURN(const bool is_plm, IsPlm(path));
  if (is_plm) {
    POCKETLM_ASSIGN_OR_RETURN(const PlmFile plm, PlmFile::Open(path));
    auto spec = TokenizerSpecFromPlm(plm);
    if (!spec.ok()) return spec.status().WithContext(path);
    return spec;
  }
  POCKETLM_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  auto spec = TokenizerSpecFromGguf(file);
  if (!spec.ok()) return spec.status().WithContext(path);
  return spec;
}

}  // namespace pocketlm
