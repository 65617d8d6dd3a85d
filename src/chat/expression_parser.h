// The token cursor and the expression half of the parser.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/ast.h"
#include "chat/lexer.h"

namespace pocketlm::chat {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // Counts nested constructs; throws when they are too many for the stack.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser* parser);
    ~Nesting() { --parser_->nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser* parser_;
  };

  const Token& Current() const { return tokens_[pos_]; }
  const Token& Look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token Next();
  bool SkipOp(std::string_view op);
  bool SkipName(std::string_view name);
  void ExpectOp(std::string_view op);
  void Expect(TokenType type, const char* what);
  std::string ExpectName();
  [[noreturn]] void FailHere(const std::string& message) const;
  [[noreturn]] static void FailAt(int line, const std::string& message,
                                  StatusCode code = StatusCode::kDataError);

  ExprPtr ParseExpression(bool with_conditional = true);
  // Expressions separated by commas; one without a comma is itself. `end_name`: a name that ends it.
  ExprPtr ParseTuple(bool with_conditional, std::string_view end_name, bool parenthesized);
  // |filter(args)… applied to `input`, which is null for filter blocks.
  ExprPtr ParseFilters(ExprPtr input, bool first_without_pipe);

  static ExprPtr Make(ExprKind kind, int line, ExprPtr a = nullptr, ExprPtr b = nullptr);
  // Sets the depth of a finished node and refuses trees that are too deep.
  static ExprPtr Finish(ExprPtr expr);
  static const char* KindName(ExprKind kind);

 private:
  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter);
  ExprPtr ParsePrimary();
  ExprPtr ParseNameOrConst();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParseFilterOrTest(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscribed();
  ExprPtr ParseCall(ExprPtr callee);
  ExprPtr ParseTest(ExprPtr node);
  std::unique_ptr<CallSyntax> ParseCallArgs();
  std::string DottedName();

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
};

}  // namespace pocketlm::chat
