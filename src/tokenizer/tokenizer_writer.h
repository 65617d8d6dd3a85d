// Writes tokenizers as the files of a Hugging Face folder: the way back of ParseTokenizerJson.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/status.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// A tokenizer.json (format 1.0 of `tokenizers` 0.20 and later: merges as pairs) whose ids in that package, and in
// Tokenizer by way of ParseTokenizerJson, are those of Tokenizer::Create(spec) for every text of valid UTF-8.
//
//   vocabulary  Every token keeps its id; holes stay holes. Unused tokens called "[PAD<id>]", which GGUF files have
//               in place of holes, become holes unless a merge uses them.
//   merges      In order of rank. Merges that a SentencePiece spec leaves to its scores are written out.
//   added       Control and user-defined tokens, with their flags. Tokens that only the list of added tokens knows
//               (not in_model; in GGUF files of byte-level vocabularies, all) are left out of the model's vocabulary if
//               the package would number them as the spec does, since it takes no notice of the ids in that list.
//   BOS, EOS    What add_bos and add_eos ask for becomes the post-processor's template.
//
// Errors  kDataError: what Tokenizer::Create refuses. kUnsupported: a token that is no valid UTF-8 (its id named).
// Memory  About twice the text, and a Tokenizer of the spec while the merges follow from scores.
Result<std::string> WriteTokenizerJson(const TokenizerSpec& spec);

// The tokenizer_config.json beside it: special tokens, chat template, longest input in tokens. Transformers takes
// the tokenizer.json as it is (PreTrainedTokenizerFast), whatever the model's class.
nlohmann::ordered_json TokenizerConfigJson(const TokenizerSpec& spec,
                                           const std::optional<std::string>& chat_template,
                                           uint32_t max_tokens);

}  // namespace pocketlm
