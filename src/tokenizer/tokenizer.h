// Text to token ids and back, equal to the Hugging Face `tokenizers` package.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/string_index.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {

// Immutable after Create; every method is safe from any number of threads at once. Time is linear in the
// text (n log n within one word). Bytes that are no UTF-8 never fail: byte-level BPE and SentencePiece with
// byte fallback make byte tokens of them, which decode to the same bytes (as far as the vocabulary has the
// byte; a byte that it lacks is dropped or unk, as in the package).
//
// No text becomes a control token by way of merges: a merge whose result is one is left out. Control tokens
// come from EncodeOptions::parse_special, EncodePrompt or FindToken alone.
class Tokenizer {
 public:
  using ByteRange = ::pocketlm::ByteRange;
  struct EncodeOptions {
    bool parse_special = false;  // control tokens in the text become their ids
  };

  // Errors (kDataError): equal tokens, sizes that do not fit, ids out of range, merges of unknown tokens or of
  // ids whose texts do not fit together.
  static Result<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);

  // Gives the spec that made this tokenizer its merges by ids, and the reachable tokens: Create then makes
  // an equal tokenizer in less time.
  void ExportTables(TokenizerSpec* spec) const;

  // Token ids of `text`, without BOS and EOS.
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const;
  std::vector<int32_t> Encode(std::string_view text) const { return Encode(text, EncodeOptions()); }

  // Token ids of a prompt that a chat template rendered. `literal`: sorted, disjoint ranges of `text` that
  // others wrote (user, tools); a control token that touches one is ordinary text. All text between two
  // added tokens is tokenized as one, across the borders of the ranges.
  std::vector<int32_t> EncodePrompt(std::string_view text,
                                    std::span<const ByteRange> literal) const;

  // Number of ids, holes included: valid ids are below it. A model may have more rows than that.
  int32_t vocab_size() const { return static_cast<int32_t>(pieces_.size()); }
  bool IsValid(int32_t id) const { return InRange(id) && !pieces_[Index(id)].empty(); }
  bool IsControl(int32_t id) const {
    return IsValid(id) &&
           (types_[Index(id)] == TokenType::kControl || types_[Index(id)] == TokenType::kUnknown);
  }
  // A hole, or declared unused, as GGUF files do with the padding of a table.
  bool IsUnused(int32_t id) const {
    return !IsValid(id) || types_[Index(id)] == TokenType::kUnused;
  }

  // The bytes that the token stands for in decoded text (a control token: its text); may be part of a
  // character. Empty for an id that is not valid. Lives as long as the tokenizer; so does Piece.
  std::string_view TokenBytes(int32_t id) const;
  // The token as the vocabulary stores it ("Ġthe", "▁the", "<0x0A>").
  std::string_view Piece(int32_t id) const;
  // The token of exactly this piece.
  std::optional<int32_t> FindToken(std::string_view piece) const;

  int32_t bos_id() const { return bos_id_; }  // -1: none; so are the next
  int32_t eos_id() const { return eos_id_; }
  int32_t unk_id() const { return unk_id_; }
  int32_t pad_id() const { return pad_id_; }
  bool add_bos() const { return add_bos_ && bos_id_ >= 0; }
  bool add_eos() const { return add_eos_ && eos_id_ >= 0; }
  TokenizerKind kind() const { return kind_; }
  // Decoded text loses one leading space (SentencePiece's dummy prefix).
  bool strips_leading_space() const { return strips_leading_space_; }

  // The bytes of `ids`, one after the other; ids that are not valid give nothing.
  std::string DecodeBytes(std::span<const int32_t> ids, bool skip_special) const;
  // The same as UTF-8, with U+FFFD for each maximal ill-formed part.
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const;

 private:
  friend class TokenizerBuilder;
  struct Scratch {
    std::string buffer;
    std::vector<uint32_t> symbols;
    BpeMerger merger;
  };

  Tokenizer() = default;
  static size_t Index(int32_t id) { return static_cast<size_t>(id); }
  bool InRange(int32_t id) const { return id >= 0 && Index(id) < pieces_.size(); }

  std::vector<int32_t> EncodeWith(std::string_view text, const ControlPolicy& policy) const;
  void EncodeSegment(std::string_view segment, const ControlPolicy& policy, Scratch* scratch,
                     std::vector<int32_t>* out) const;
  void Normalize(std::string_view text, const std::vector<ByteRange>* marks, std::string* out,
                 std::vector<ByteRange>* out_marks) const;
  void EncodePieces(std::string_view text, Scratch* scratch, std::vector<int32_t>* out) const;
  void EncodeWord(std::string_view word, Scratch* scratch, std::vector<int32_t>* out) const;
  void AppendByteSymbols(std::string_view word, std::vector<uint32_t>* symbols) const;
  void AppendCharSymbols(std::string_view word, std::vector<uint32_t>* symbols) const;
  uint32_t CharSymbol(std::string_view c) const;

  TokenizerKind kind_ = TokenizerKind::kByteLevelBpe;
  Splitter splitter_ = Splitter::kNone;
  bool nfc_ = false, add_space_prefix_ = false, strips_leading_space_ = false;
  bool fuse_unk_ = false, byte_fallback_ = false, unk_in_text_ = false;
  bool add_bos_ = false, add_eos_ = false;
  int32_t bos_id_ = -1, eos_id_ = -1, unk_id_ = -1, pad_id_ = -1;

  StringArena pieces_;
  StringArena bytes_;  // TokenBytes, where it is not the piece itself
  std::vector<TokenType> types_;
  std::vector<bool> mergeable_;  // takes part in merging: no control, no byte token, in the model
  StringIndex by_piece_;
  // kByteLevelBpe: tokens by their bytes, where merging those bytes gives just the token.
  StringIndex words_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_symbols_{};  // token of a byte, or -1
  AddedTokenMatcher raw_added_, normalized_added_;
};

}  // namespace pocketlm
