// ModelSource from a Hugging Face folder.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "model/model_source.h"

namespace pocketlm {
namespace {

using nlohmann::json;

Status AddEndTokens(const json& config, const char* where, std::vector<int32_t>* out) {
  if (!config.is_object()) return OkStatus();
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return OkStatus();
  const json ids = it->is_array() ? *it : json::array({*it});
  for (const json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return DataError(std::string(where) + ": eos_token_id: expected token ids");
    }
    out->push_back(id.get<int32_t>());
  }
  return OkStatus();
}

}  // namespace

Result<ModelSource> ModelSourceFromFolder(HfFolder folder) {
  ModelSource source;
  POCKETLM_ASSIGN_OR_RETURN(source.config, ConfigFromHuggingFace(folder.config()));
  POCKETLM_ASSIGN_OR_RETURN(const std::string tokenizer, folder.ReadTokenizerJson());
  const json& tokenizer_config = folder.tokenizer_config();
  auto spec =
      ParseTokenizerJson(tokenizer, tokenizer_config.is_null() ? "" : tokenizer_config.dump());
  if (!spec.ok()) return spec.status().WithContext("tokenizer.json");
  source.tokenizer = std::move(spec).value();

  POCKETLM_RETURN_IF_ERROR(AddEndTokens(folder.config(), "config.json", &source.end_tokens));
  if (folder.config().contains("text_config")) {
    POCKETLM_RETURN_IF_ERROR(AddEndTokens(folder.config()["text_config"],
                                          "config.json: text_config", &source.end_tokens));
  }
  POCKETLM_RETURN_IF_ERROR(
      AddEndTokens(folder.generation_config(), "generation_config.json", &source.end_tokens));
  if (source.tokenizer.eos_id >= 0) source.end_tokens.push_back(source.tokenizer.eos_id);
  std::sort(source.end_tokens.begin(), source.end_tokens.end());
  source.end_tokens.erase(std::unique(source.end_tokens.begin(), source.end_tokens.end()),
                          source.end_tokens.end());

  if (folder.chat_template()) source.chat_template = *folder.chat_template();
  source.folder = std::move(folder);
  return source;
}

}  // namespace pocketlm
