// Splits template source into tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"

namespace pocketlm::chat {

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  int line;
  std::string text;  // data, name, decoded string, operator
  Int integer = 0;
  double real = 0;

  bool IsName(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool IsOp(std::string_view op) const { return type == TokenType::kOperator && text == op; }
};

// The tokens of `source`, ended by one kEnd. Throws TemplateError with a line.
std::vector<Token> Tokenize(std::string_view source);

// How a token is named in messages.
std::string Describe(const Token& token);

}  // namespace pocketlm::chat
