// What a .plm file says about a model, to and from its "metadata" and "tokenizer" sections (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/plm.h"
#include "format/plm_writer.h"
#include "model/config.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// The name of the section that holds the vocabulary.
inline constexpr char kPlmTokenizerSection[] = "tokenizer";

struct PlmDescription {
  ModelConfig config;
  TokenizerSpec tokenizer;
  std::optional<std::string> chat_template;
  std::vector<int32_t> end_tokens;  // every id that ends an answer, sorted

  // Kept as they are and shown by `pocketlm inspect`; null or an object.
  nlohmann::ordered_json
      quantization;  // method, group size, offsets, exactness, KL to the source …
  nlohmann::ordered_json provenance;  // source file and its hash, program version …
  std::string license;                // an SPDX identifier or a name; "" if it is not known
};

// Writes both sections and the header: the last step of a PlmWriter to which all tensors were added.
// Errors  kInvalidArgument: text that is no UTF-8. kDataError: a tokenizer that Tokenizer::Create would refuse
//         (merges of unknown tokens, sizes that do not fit). kIoError.
Status FinishPlm(const PlmDescription& description, PlmWriter* writer);

// Reads both sections. Errors name the member, what was expected and what was there. A value that this version
// does not know (an architecture, a splitter, an attention mask other than "causal") is kUnsupported; a member
// that it does not know is left alone.
Result<PlmDescription> ReadPlmDescription(const PlmFile& file);

// A config.json of Transformers for `config`, with what that has no word for under names of our own:
// rope_layout, embedding_scale, attention_scale, has_qk_norm, has_post_norms, norm_weights_minus_one.
// ConfigFromPlmJson gives every field back bit for bit.
nlohmann::ordered_json ConfigToPlmJson(const ModelConfig& config);
Result<ModelConfig> ConfigFromPlmJson(const nlohmann::json& config);

// A config.json for Transformers: without names of our own. kUnsupported, naming the field, if the model has what such a
// file cannot say: rotary pairs that are interleaved, another embedding scale than the class's. What norm_weights_minus_one says is taken for granted.
Result<nlohmann::ordered_json> ConfigToHuggingFaceJson(const ModelConfig& config);

// The tokenizer without its tables as JSON, and the tables as bytes.
nlohmann::ordered_json TokenizerToPlmJson(const TokenizerSpec& spec);
Result<std::string> TokenizerToPlmBytes(const TokenizerSpec& spec);
Result<TokenizerSpec> TokenizerFromPlm(const nlohmann::json& settings,
                                       std::span<const std::byte> tables);

}  // namespace pocketlm
