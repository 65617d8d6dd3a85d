// Builds a Tokenizer from its spec; the body of Tokenizer::Create.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {

class TokenizerBuilder {
 public:
  explicit TokenizerBuilder(TokenizerSpec spec);

  // Call once.
  Result<std::unique_ptr<Tokenizer>> Build();

 private:
  struct ScoredMerge {
    uint32_t left, right, result;
    uint32_t left_chars, right_chars;
  };

  Status CheckSizes() const;
  Status CheckIds() const;
  Status AddPieces();
  std::string DecodedBytes(std::string_view piece, TokenType type) const;
  Status FindByteTokens();
  Status AddMerges();
  Status AddMerge(size_t rank, std::string_view text);
  Status AddMergesByIds();
  Status AddMergesFromScores();
  void CollectSplits(uint32_t id, std::vector<ScoredMerge>* group) const;
  Result<uint32_t> MergePart(size_t rank, std::string_view piece) const;
  bool IsReachable(uint32_t id, std::string_view bytes, BpeMerger* merger,
                   std::vector<uint32_t>* symbols) const;
  Status IndexWords();
  Status AddAddedTokens();

  bool byte_level() const { return spec_.kind == TokenizerKind::kByteLevelBpe; }

  TokenizerSpec spec_;
  std::unique_ptr<Tokenizer> t_;
};

}  // namespace pocketlm
