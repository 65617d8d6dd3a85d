// A model with the tokens that a corpus needs: the work of `pocketlm prune-vocab`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "compress/convert.h"
#include "compress/text_corpus.h"

namespace pocketlm {

struct PruneVocabOptions {
  size_t size = 0;  // tokens to keep; the tables get rows of zeros up to a multiple of 64
  std::vector<CorpusText> corpus;
  std::vector<CorpusText> evaluation;  // empty: the corpus
  ConvertOptions encoding;
};

// Writes the model at `input` with a vocabulary cut to `size` tokens (CutVocabulary, TokenWeights) to `output`: rows of
// the embedding table and the output head as in the source, all else as ConvertModel does it. Kept whatever the corpus:
// what CutVocabulary forces, end tokens, and the tokens of what the chat template writes around messages. With an output that ends in
// ".json", `input` may be a tokenizer.json, and a tokenizer.json is all that is written.
//
// Returns the report of WriteModel (for a tokenizer.json: output, bytes) with {input, size, tokens: {before, after,
// forced}, judged_on: "evaluation"|"corpus", sets: [{set, …figures}], languages: [{language, …figures}]} in front;
// the figures are {passages, unchanged, characters, bytes, tokens_before, tokens_after, increase,
// tokens_per_character_before, tokens_per_character_after}, where `unchanged` is the share of passages that keep their
// tokens and `increase` a fraction.
// Errors  Those of ConvertModel, CutVocabulary and PassagesOf; kInternal if a judged passage decodes to other bytes
//         than with the source's tokenizer.
Result<nlohmann::ordered_json> PruneVocab(const std::string& input, const std::string& output,
                                          const PruneVocabOptions& options,
                                          const ConversionProgress& progress);

}  // namespace pocketlm
