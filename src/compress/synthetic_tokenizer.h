// A vocabulary made up from nothing, for random models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// Fewest rows of an embedding table that a synthetic vocabulary fits: the bytes and the ChatML markers.
inline constexpr uint32_t kMinSyntheticVocabulary = 256 + 3;

// A byte-level BPE vocabulary for an embedding table of `vocab_size` rows ≥ kMinSyntheticVocabulary: ids 0 … 255 are
// the bytes, then come tokens made by merges (pairs of earlier tokens, those of common letters first), then control
// tokens: <|endoftext|> (padding), <|im_start|> and <|im_end|> (end of an answer), and, where there is room, the
// other 23 added tokens of Qwen3. <|endoftext|> has the id `pad_id` if that leaves room for the bytes before and
// the markers behind it; else the added tokens are the last ids. Rows behind them are padding.
// Text is split as in GPT-2 and not normalized: every text comes back byte for byte.
TokenizerSpec MakeSyntheticTokenizer(uint32_t vocab_size, std::optional<uint32_t> pad_id);

// A ChatML template.
std::string ChatMlTemplate();

}  // namespace pocketlm
