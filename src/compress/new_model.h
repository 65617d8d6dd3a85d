// Models with random weights: the work of `pocketlm new`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "compress/convert.h"

namespace pocketlm {

struct NewModelOptions {
  std::string config;     // "pocket-0.3b", "qwen3-0.6b", or the path of a Hugging Face config.json
  std::string tokenizer;  // of a model or a tokenizer.json; "": MakeSyntheticTokenizer
  uint64_t seed = 0;
  ConvertOptions encoding;
};

// Writes a model of the given shape to `output` (.plm or GGUF): norms are 1, matrices have the deviation
// 1 / sqrt(fan in), those that feed the residual stream a further 1 / sqrt(2 · layers), so that activations keep their
// size; the table 1 / sqrt(hidden_size). The same seed gives the same weights whatever the machine, threads and
// type (before rounding). The chat template is ChatML if the tokenizer has its markers.
// Returns WriteModel's report with `config` and `seed` in front. Errors as WriteModel; kInvalidArgument for an unknown
// config or a vocabulary that is larger than the table; kNotFound, kDataError for the files.
Result<nlohmann::ordered_json> WriteNewModel(const std::string& output,
                                             const NewModelOptions& options,
                                             const ConversionProgress& progress);

}  // namespace pocketlm
