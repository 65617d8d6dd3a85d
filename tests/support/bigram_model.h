// Bigram models: tiny model files whose next token depends only on the last one, so that a test can put any
// scripted output into a file and run it through the API or the program, with no test hook in the product.
//
// How      One llama layer whose attention output and FFN output are zero; one-hot embeddings; an untied head.
//          After token t the logits of the file are exactly the row that the test gave for t (unit norms, a
//          width that is a power of 4, so the only scaling is by a power of 2).
// Scripts  A script is a chain of successors, so every token of it must be distinct: a token that came twice
//          would have one successor only. Write "a", " a", "a " where a text repeats, or script single bytes.
// Tokens   Ids 0 … 255 are the byte tokens of the bytes 0 … 255; tokens that a test adds follow. There are no
//          merges: encoding a text gives its bytes, so after a raw prompt "x" the state is the byte 'x'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"

namespace pocketlm::testing {

// Not thread-safe.
class BigramModel {
 public:
  enum class Vocabulary { kByteLevel, kSentencePiece };
  enum class TokenKind { kNormal, kControl, kUserDefined };

  // Logit of a scripted successor; all others are 0 unless SetLogit says so.
  static constexpr float kSuccessorLogit = 40.0f;

  // kSentencePiece also adds <unk> as id 256.
  explicit BigramModel(Vocabulary vocabulary = Vocabulary::kByteLevel);

  // A token of its own, with the next free id. `text` is any bytes, but for kSentencePiece UTF-8.
  int32_t AddToken(std::string_view text, TokenKind kind = TokenKind::kNormal);
  int32_t AddControl(std::string_view text) { return AddToken(text, TokenKind::kControl); }

  // The token of a text: a byte token for one byte, else a token added before; -1 if there is none.
  int32_t Id(std::string_view text) const;
  const std::string& Text(int32_t id) const { return tokens_[static_cast<size_t>(id)].text; }
  int32_t num_tokens() const { return static_cast<int32_t>(tokens_.size()); }

  // After `from` comes `to`.
  void SetSuccessor(int32_t from, int32_t to) { SetLogit(from, to, kSuccessorLogit); }
  void SetLogit(int32_t from, int32_t token, float logit) { logits_[from][token] = logit; }

  // from → the tokens of `texts` → then; tokens that are missing are added. Returns their ids.
  std::vector<int32_t> Script(int32_t from, const std::vector<std::string>& texts, int32_t then);
  // The same with the single bytes of `bytes`, all distinct.
  std::vector<int32_t> ScriptBytes(int32_t from, std::string_view bytes, int32_t then);

  // Declared end of text; also the successor of every token without one.
  void set_eos(int32_t id) { eos_ = id; }
  int32_t eos() const { return eos_; }
  void set_eot(int32_t id) { eot_ = id; }
  void set_bos(int32_t id, bool add) { bos_ = id, add_bos_ = add; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }
  void set_context_length(uint32_t tokens) { context_length_ = tokens; }
  // NaN in the final norm weight: all logits are NaN (SAM-D2).
  void set_nan_norm() { nan_norm_ = true; }

  // The bytes of a GGUF file.
  std::string BuildGguf() const;
  // Writes it into a fresh scratch folder; returns the path.
  std::string WriteGguf() const;

  struct HuggingFaceOptions {
    // Rows of embedding and head beyond the tokens, with the largest logit of all (VOC-D2).
    int32_t padding_rows = 0;
    // The end tokens of generation_config.json; empty: no such file. config.json declares eos().
    std::vector<int32_t> generation_eos;
    bool crlf = false;  // side files with CRLF line ends and a byte order mark (FS-D3)
  };
  // Writes a Hugging Face folder (kByteLevel only) into a fresh scratch folder; returns the path.
  std::string WriteHuggingFace(const HuggingFaceOptions& options) const;
  std::string WriteHuggingFace() const { return WriteHuggingFace(HuggingFaceOptions()); }

 private:
  struct Token {
    std::string text;  // bytes
    TokenKind kind = TokenKind::kNormal;
  };

  size_t HiddenSize(size_t rows) const;
  std::string Piece(size_t id) const;  // as the vocabulary spells it
  std::vector<float> Embeddings(size_t rows) const;
  std::vector<float> Head(size_t rows, float padding_logit) const;
  std::vector<float> FinalNorm(size_t rows) const;
  std::string TokenizerJson() const;
  void AddTokenizer(GgufWriter* writer) const;

  Vocabulary vocabulary_;
  std::vector<Token> tokens_;
  std::map<int32_t, std::map<int32_t, float>> logits_;  // state → token → logit
  std::string chat_template_;
  int32_t eos_ = -1, eot_ = -1, bos_ = -1;
  bool add_bos_ = false;
  bool nan_norm_ = false;
  uint32_t context_length_ = 256;
};

}  // namespace pocketlm::testing
