// The neutral description of a tokenizer, filled from GGUF metadata (src/model) or from a Hugging Face
// tokenizer.json (ParseTokenizerJson), and consumed by Tokenizer::Create.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/splitter.h"

namespace pocketlm {

enum class TokenizerKind : uint8_t {
  kByteLevelBpe,  // GGUF "gpt2": text is split by a pattern, pieces merge from bytes
  kSentencePieceBpe,  // GGUF "llama": space becomes U+2581, text merges from characters, bytes as fallback
};

// The numbers are those of GGUF's tokenizer.ggml.token_type minus 1.
enum class TokenType : uint8_t {
  kNormal,
  kUnknown,
  kControl,      // special: only a template or parse_special makes it, never plain text
  kUserDefined,  // added, but not special: matched as a whole in any text
  kUnused,
  kByte,  // <0x00> … <0xFF> of SentencePiece
};

// How an added token (kControl or kUserDefined) is matched, where it differs from "exactly, in the text as
// given": the `tokenizers` package's AddedToken. GGUF files have no such flags.
struct AddedTokenFlags {
  int32_t id = 0;
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces after it
  bool single_word = false;  // not next to a word character
  bool normalized = false;   // its normalized form is matched in the normalized text
  bool in_model = true;      // false: known as an added token only, never the result of merges
};

// A merge by token ids: the text of `result` is that of `left` and then `right`.
struct MergeIds {
  uint32_t left = 0;
  uint32_t right = 0;
  uint32_t result = 0;
};

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kByteLevelBpe;
  Splitter splitter = Splitter::kNone;  // kByteLevelBpe only
  bool nfc = false;                     // kByteLevelBpe only: normalize the text to NFC first

  // Indexed by token id. An empty string is a hole: an id that no token has.
  // kByteLevelBpe: normal tokens in GPT-2's byte alphabet ("Ġthe"), added tokens as plain text.
  // kSentencePieceBpe: "▁the", byte tokens "<0x0A>"; without added_flags (GGUF),
  // spaces in user-defined tokens mean U+2581.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;  // size of `tokens`, or empty: all normal
  std::vector<float> scores;     // kSentencePieceBpe without merges: size of `tokens`

  // "left right" in order of rank, divided at the first space after position 0; or "left\0right", where a
  // part contains a space. For kSentencePieceBpe it may be empty: then merges follow from `scores`, user-
  // defined tokens first, as sentencepiece does and as the Hugging Face converters write them down.
  std::vector<std::string> merges;

  // Instead of `merges` and `reachable` tokens, as Tokenizer::ExportTables gives them: with these, Create looks up
  // and merges nothing, and takes a quarter of the time. A token of a byte-level vocabulary is reachable if merging
  // its bytes gives the token.
  std::vector<MergeIds> merge_ids;
  std::vector<bool> reachable;  // size of `tokens`, or empty: found out by merging

  std::vector<AddedTokenFlags> added_flags;

  // kSentencePieceBpe: a U+2581 before every text that is not empty, and no leading space in decoded text.
  // kByteLevelBpe (kGpt2 and kNone splitters only): a space before every text that does not begin with one.
  bool add_space_prefix = false;
  bool ignore_merges = false;  // kByteLevelBpe: a piece that is a token is not merged (Llama 3)
  bool byte_fallback = true;   // kSentencePieceBpe: unknown characters become byte tokens
  bool fuse_unk = false;       // neighbouring unknown characters are one unk_id
  // Unknown characters become unk_id; false: they are dropped (as the package).
  bool unk_in_text = false;

  bool add_bos = false;
  bool add_eos = false;
  int32_t bos_id = -1;  // -1: none
  int32_t eos_id = -1;
  int32_t unk_id = -1;
  int32_t pad_id = -1;
};

// The merges as texts, as TokenizerSpec::merges has them, from whichever form `spec` uses. Ids beyond the vocabulary
// are left out.
std::vector<std::string> MergeTexts(const TokenizerSpec& spec);

// The splitter of GGUF's tokenizer.ggml.pre. A name that is not known is kUnsupported and named in the
// error; there is no default.
Result<Splitter> SplitterFromGgufPre(std::string_view pre);

// Sets splitter, nfc and ignore_merges of a byte-level spec as tokenizer.ggml.pre implies.
Status ApplyGgufPre(std::string_view pre, TokenizerSpec* spec);

// Reads a Hugging Face tokenizer.json: byte-level BPE (GPT-2, Qwen2/3, SmolLM2, Llama 3) or SentencePiece-
// like BPE with byte fallback (Gemma). `tokenizer_config_json` (may be empty) adds bos, eos, pad, unk and
// add_bos_token, add_eos_token. A byte order mark and any line endings are accepted.
// Errors    kDataError: malformed (with the byte offset), ids that clash or leave wide holes, merges of
//           unknown tokens; kUnsupported: a normalizer, split pattern, model or decoder that is not one of
//           the above, named.
// Memory    A small multiple of the two texts; nesting deeper than 64 is an error.
Result<TokenizerSpec> ParseTokenizerJson(std::string_view tokenizer_json,
                                         std::string_view tokenizer_config_json);

}  // namespace pocketlm
