#include "model/plm_metadata.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "model/json_fields.h"

namespace pocketlm {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kCausal = "causal";

Status ReadEndTokens(const JsonFields& fields, std::vector<int32_t>* out) {
  const json* ids = fields.Find("end_tokens");
  if (ids == nullptr) return OkStatus();
  if (!ids->is_array()) return fields.Wrong("end_tokens", "an array of token ids", *ids);
  for (const json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX)
      return fields.Wrong("end_tokens", "an array of token ids", *ids);
    out->push_back(id.get<int32_t>());
  }
  std::sort(out->begin(), out->end());
  out->erase(std::unique(out->begin(), out->end()), out->end());
  return OkStatus();
}

// An object that is kept as it is; null if it is absent.
Status ReadObject(const JsonFields& fields, const char* key, ordered_json* out) {
  const json* value = fields.Find(key);
  if (value == nullptr) return OkStatus();
  if (!value->is_object()) return fields.Wrong(key, "an object", *value);
  *out = ordered_json(*value);
  return OkStatus();
}

Result<json> RequireObject(const JsonFields& fields, const char* key) {
  const json* value = fields.Find(key);
  if (value == nullptr) return DataError("metadata: " + std::string(key) + " is missing");
  if (!value->is_object()) return fields.Wrong(key, "an object", *value);
  return *value;
}

}  // namespace

Status FinishPlm(const PlmDescription& description, PlmWriter* writer) {
  ordered_json metadata = {{"config", ConfigToPlmJson(description.config)},
                           {"attention_mask", kCausal},
                           {"tokenizer", TokenizerToPlmJson(description.tokenizer)},
                           {"end_tokens", description.end_tokens}};
  if (!description.quantization.is_null()) metadata["quantization"] = description.quantization;
  if (!description.provenance.is_null()) metadata["provenance"] = description.provenance;
  if (!description.license.empty()) metadata["license"] = description.license;
  if (description.chat_template) {
    if (!IsValidUtf8(*description.chat_template))
      return InvalidArgument("plm: chat_template: expected valid UTF-8");
    metadata["chat_template"] = *description.chat_template;
  }
  POCKETLM_ASSIGN_OR_RETURN(std::string tables, TokenizerToPlmBytes(description.tokenizer));
  POCKETLM_RETURN_IF_ERROR(writer->AddSection(kPlmTokenizerSection, std::move(tables)));
  return writer->Finish(metadata);
}

Result<PlmDescription> ReadPlmDescription(const PlmFile& file) {
  PlmDescription out;
  const JsonFields fields(file.metadata(), "metadata");
  POCKETLM_ASSIGN_OR_RETURN(const std::string mask, fields.StringOr("attention_mask", kCausal));
  if (mask != kCausal)
    return Unsupported("metadata: attention_mask: expected causal, got " + Quote(mask));
  POCKETLM_ASSIGN_OR_RETURN(const json config, RequireObject(fields, "config"));
  POCKETLM_ASSIGN_OR_RETURN(out.config, ConfigFromPlmJson(config));
  POCKETLM_ASSIGN_OR_RETURN(const json tokenizer, RequireObject(fields, "tokenizer"));
  const auto tables = file.FindSection(kPlmTokenizerSection);
  if (!tables) return DataError("section 'tokenizer' is missing");
  POCKETLM_ASSIGN_OR_RETURN(out.tokenizer, TokenizerFromPlm(tokenizer, *tables));
  POCKETLM_RETURN_IF_ERROR(ReadEndTokens(fields, &out.end_tokens));
  if (fields.Find("chat_template") != nullptr) {
    POCKETLM_ASSIGN_OR_RETURN(out.chat_template, fields.StringOr("chat_template", ""));
  }
  POCKETLM_RETURN_IF_ERROR(ReadObject(fields, "quantization", &out.quantization));
  POCKETLM_RETURN_IF_ERROR(ReadObject(fields, "provenance", &out.provenance));
  POCKETLM_ASSIGN_OR_RETURN(out.license, fields.StringOr("license", ""));
  return out;
}

}  // namespace pocketlm
