// Cuts a vocabulary to the tokens that are worth their rows of the embedding table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// How a token comes about when its own text is tokenized.
struct TokenDerivation {
  // The two tokens whose merge gives it; -1 for single symbols (bytes, characters) and for what no merge makes.
  int32_t left = -1;
  int32_t right = -1;
  // False for a token that its text does not merge into. True for control tokens.
  bool reachable = false;
};

// Of every id of the tokenizer. Tokens of more than 256 symbols count as not reachable.
std::vector<TokenDerivation> DeriveTokens(const Tokenizer& tokenizer);

struct VocabularyCutOptions {
  size_t size = 0;              // tokens to keep
  std::vector<double> weights;  // by id: how often a token is expected in text, ≥ 0
  std::vector<int32_t> keep;    // ids to keep whatever their weight, such as end tokens
};

struct VocabularyCut {
  TokenizerSpec spec;            // ids renumbered densely in the old order
  std::vector<int32_t> old_ids;  // by new id, ascending
  std::vector<int32_t> new_ids;  // by old id; -1: cut
  size_t forced = 0;             // tokens that were kept whatever their weight
  double expected_increase =
      0.0;  // tokens that the weights' text gains, over the sum of the weights
};

// Keeps `size` tokens of `spec`, the spec of `tokenizer`, so that text of the given weights grows by few tokens.
//
//   forced    Byte tokens, printable ASCII characters, control and user-defined tokens (placeholders such as
//             "<unused7>" excepted), BOS, EOS, UNK, PAD and options.keep; without byte fallback, every single
//             character of a SentencePiece vocabulary.
//   closure   A kept token keeps the tokens that it is merged from, and theirs.
//   merges    All merges among kept tokens, in their old order.
//
// Hence every text round-trips as before, and a text whose tokens are all kept has the same tokens.
// Which tokens: from the whole vocabulary, again and again the token goes that costs least, among those that no kept
// token is merged from. A token of weight w that is merged from two costs w, since each of its uses becomes those two,
// whose weights grow by w. Ties: the higher id goes.
//
// Errors  kInvalidArgument: a size that is not below the number of tokens, or too small for the forced ones.
Result<VocabularyCut> CutVocabulary(const TokenizerSpec& spec, const Tokenizer& tokenizer,
                                    const VocabularyCutOptions& options);

}  // namespace pocketlm
