// Conversion of model files: the work of `pocketlm convert`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "compress/write_model.h"
#include "model/model_source.h"

namespace pocketlm {

struct ConvertOptions {
  // As ParseEncodingOptions reads them.
  std::string type, head_type, offset;
  uint32_t group_size = 0;
  bool requantize = false;
  std::vector<CorpusText> calibration;  // see EncodingOptions, as target_bytes
  uint64_t target_bytes = 0;
  int num_threads = 0;  // 0: AvailableCpus()
  std::string program;  // name and version, for the file's provenance
};

// What an opened model says, as content to write: tensors, configuration, tokenizer, origin. `source` outlives it.
Result<ModelContent> ReadModelContent(const std::string& input, const ModelSource& source,
                                      const std::string& program);

// The encoding that the options ask for in a file of output's ending; see ParseEncodingOptions. kInvalidArgument too: a
// target size beside what it decides, or without calibration texts.
Result<EncodingOptions> ReadEncoding(const std::string& output, const ConvertOptions& options);

// kInvalidArgument if both are the same file.
Status CheckIsAnotherFile(const std::string& input, const std::string& output);

// Converts the model at `input` (.plm, GGUF, Hugging Face folder) to `output`. The report of WriteModel with `input`
// in front. Errors as WriteModel and OpenModelSource; kInvalidArgument too if both are the same file.
Result<nlohmann::ordered_json> ConvertModel(const std::string& input, const std::string& output,
                                            const ConvertOptions& options,
                                            const ConversionProgress& progress);

}  // namespace pocketlm
