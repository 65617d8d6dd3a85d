// What a corpus tells about the tokens that a text needs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/text_corpus.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary_cut.h"

namespace pocketlm {

// How often each token stands in the texts. `proceed` is told of the bytes done and may return false: kCancelled.
// Errors  those of PassagesOf; kDataError where the texts have no token at all.
Result<std::vector<uint64_t>> CountTokens(const Tokenizer& tokenizer,
                                          const std::vector<CorpusText>& texts, ThreadPool* pool,
                                          const std::function<bool(size_t bytes)>& proceed);

// Expected occurrences of each token in a text like the corpus, for CutVocabulary.
//
// A corpus is never the text to come. By Good and Turing's estimate, what occurred nowhere is worth the number of
// tokens that occurred once, divided by that of those which did not (Good 1953, "The population frequencies of
// species and the estimation of population parameters"). It is taken among tokens alike: by script, case, a leading
// space and rank (16,384 ids at a time, since a trained vocabulary is sorted by frequency), ten times over, because
// new text differs more from the corpus than the corpus from itself. Tokens with no Han character count 2.2 times:
// their vocabulary is larger and less complete in a corpus of any size. Both figures are the least that kept
// English within 3 % on held-out sets (docs/compression.md).
std::vector<double> TokenWeights(const Tokenizer& tokenizer, const std::vector<uint64_t>& counts);

// Scripts that have at least 0.5 % of the vocabulary's tokens, of which the corpus uses less than 1 %, by name: "Arabic",
// "Cyrillic".
std::vector<std::string> ScriptsWithoutUse(const Tokenizer& tokenizer,
                                           const std::vector<uint64_t>& counts);

}  // namespace pocketlm
