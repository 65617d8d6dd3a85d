// Small tokenizers for tests, made in code.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "support/test_support.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm::testing {

// Byte-level BPE: ids 0 … 255 are the bytes; then one token for each merge "left right" (in the byte
// alphabet); then the control tokens <|im_start|>, <|im_end|> and the user-defined token <think>.
inline TokenizerSpec ByteLevelSpec(const std::vector<std::string>& merges, Splitter splitter) {
  TokenizerSpec spec;
  spec.splitter = splitter;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    AppendByteCharacter(static_cast<unsigned char>(b), &piece);
    spec.tokens.push_back(piece);
  }
  for (const std::string& m : merges) {
    const size_t space = m.find(' ', 1);
    spec.tokens.push_back(m.substr(0, space) + m.substr(space + 1));
  }
  spec.merges = merges;
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
    spec.tokens.push_back(control);
    spec.types.push_back(TokenType::kControl);
  }
  spec.tokens.push_back("<think>");
  spec.types.push_back(TokenType::kUserDefined);
  return spec;
}

// SentencePiece BPE by scores: <unk>, <s>, the byte tokens, then `pieces` in falling score.
inline TokenizerSpec SentencePieceSpec(const std::vector<std::string>& pieces) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  spec.tokens = {"<unk>", "<s>"};
  spec.types = {TokenType::kUnknown, TokenType::kControl};
  const char* const hex = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    spec.tokens.push_back(std::string("<0x") + hex[b / 16] + hex[b % 16] + ">");
    spec.types.push_back(TokenType::kByte);
  }
  for (const std::string& p : pieces) {
    spec.tokens.push_back(p);
    spec.types.push_back(TokenType::kNormal);
  }
  for (size_t i = 0; i < spec.tokens.size(); ++i) spec.scores.push_back(-static_cast<float>(i));
  return spec;
}

inline std::unique_ptr<Tokenizer> CreateOrDie(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  POCKETLM_CHECK(tokenizer.ok());
  return std::move(tokenizer).value();
}

inline size_t CountControl(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  size_t count = 0;
  for (const int32_t id : ids) count += tokenizer.IsControl(id);
  return count;
}

}  // namespace pocketlm::testing
