// Conversion of model files: the work of `pocketlm convert`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "compress/write_model.h"

namespace pocketlm {

struct ConvertOptions {
  // As ParseEncodingOptions reads them.
  std::string type, head_type, offset;
  uint32_t group_size = 0;
  bool requantize = false;
  int num_threads = 0;  // 0: AvailableCpus()
  std::string program;  // name and version, for the file's provenance
};

// Converts the model at `input` (.plm, GGUF, Hugging Face folder) to `output`. The report of WriteModel with `input`
// in front. Errors as WriteModel and OpenModelSource; kInvalidArgument too if both are the same file.
Result<nlohmann::ordered_json> ConvertModel(const std::string& input, const std::string& output,
                                            const ConvertOptions& options,
                                            const ConversionProgress& progress);

}  // namespace pocketlm
