// Writes a model to a .plm or GGUF file or a Hugging Face folder and checks what was written. Memory: one tensor at a time.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "compress/model_tensors.h"
#include "compress/plan.h"
#include "model/config.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// A model on its way to a file.
struct ModelContent {
  ModelConfig config;  // norm_weights_minus_one is false: the tensors come with the "+1" applied
  TokenizerSpec tokenizer;
  std::optional<std::string> chat_template;
  std::vector<int32_t> end_tokens;
  std::vector<ModelTensor> tensors;
  std::string name;  // "" if it is not known, as license
  std::string license;
  nlohmann::ordered_json provenance;  // an object
};

// Fraction in [0, 1]; false cancels.
using ConversionProgress = std::function<bool(double fraction)>;

// Writes `content` to `path`, whose ending tells the format. The file is complete and checked, or not there: it is
// written under another name beside `path`, opened again as any model, held to the values, configuration and
// tokenizer that were meant, and renamed.
//
// GGUF needs llama's q_proj and k_proj in interleaved order and llama3's rotary scaling as a tensor of divisors;
// both are made where the source has them otherwise.
//
// A folder (config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json) needs them in halves, and rotary scaling
// in the configuration; Gemma's norms are stored less one there.
//
// Returns a report: {output, format, type, bytes, architecture, parameters, bits_per_weight, types: [{type, tensors,
// parameters, bytes, exact, relative_rms_error, max_error}], notes: [text], verified: true, seconds}. An error is the
// stored values' against the source's; exact means that there is none.
// Errors  kInvalidArgument: `path` is taken by something else than a file, or for a folder than an empty one. kDataError: a tensor and its row named.
//         kUnsupported: what GGUF cannot say. kIoError: the disk. kCancelled. kInternal: the check failed.
Result<nlohmann::ordered_json> WriteModel(const ModelContent& content, const std::string& path,
                                          const EncodingOptions& options, int num_threads,
                                          const ConversionProgress& progress);

}  // namespace pocketlm
