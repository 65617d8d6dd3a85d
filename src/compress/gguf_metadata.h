// What llama.cpp and other readers of GGUF need to know about a model beside its tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/gguf_writer.h"
#include "model/config.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

struct GgufDescription {
  const ModelConfig* config = nullptr;
  const TokenizerSpec* tokenizer = nullptr;
  std::optional<std::string> chat_template;
  std::vector<int32_t> end_tokens;
  std::string name;  // of the model; "" if it is not known, as license
  std::string license;
  uint32_t file_type =
      1;  // general.file_type, llama.cpp's number: 0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 7 Q8_0
};

// Adds the keys of general.*, <architecture>.* and tokenizer.* (GGUF specification; src/llama-arch.cpp and
// src/models of llama.cpp b11434 say which each architecture reads). The token list is padded with unused tokens
// "[PAD<id>]" to the rows of the embedding table, since llama.cpp takes its size for theirs.
// Errors  kUnsupported: a setting that GGUF has no key for (attention_scale other than 1/sqrt(head_dim), a
//         splitter or merges that no tokenizer.ggml.pre or score stands for). What is lost without changing results
//         for ordinary text is one line in *notes.
Status AddGgufMetadata(const GgufDescription& model, GgufFileWriter* writer,
                       std::vector<std::string>* notes);

// The divisors of rotary frequencies that stand for `config`'s llama3 scaling in GGUF (rope_freqs.weight),
// [head_dim / 2]; empty for other kinds. Formula: modeling_rope_utils.py of Transformers.
std::vector<float> RopeFactors(const ModelConfig& config);

}  // namespace pocketlm
