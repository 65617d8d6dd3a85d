#include "chat/expression_parser.h"

#include <algorithm>
#include <cmath>

#include "chat/interpreter.h"

namespace pocketlm::chat {

ExpressionParser::Nesting::Nesting(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->nesting_ > kMaxTemplateDepth) {
    --parser_->nesting_;
    FailAt(parser_->Current().line, "nested too deeply", StatusCode::kUnsupported);
  }
}

Token ExpressionParser::Next() {
  Token token = tokens_[pos_];
  if (pos_ + 1 < tokens_.size()) ++pos_;
  return token;
}

bool ExpressionParser::SkipOp(std::string_view op) {
  if (!Current().IsOp(op)) return false;
  Next();
  return true;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Next();
  return true;
}

void ExpressionParser::FailAt(int line, const std::string& message, StatusCode code) {
  throw TemplateError{code, message, line};
}

void ExpressionParser::FailHere(const std::string& message) const {
  FailAt(Current().line, message);
}

void ExpressionParser::ExpectOp(std::string_view op) {
  if (!SkipOp(op)) FailHere("expected '" + std::string(op) + "', got " + Describe(Current()));
}

void ExpressionParser::Expect(TokenType type, const char* what) {
  if (Current().type != type)
    FailHere(std::string("expected ") + what + ", got " + Describe(Current()));
  Next();
}

std::string ExpressionParser::ExpectName() {
  if (Current().type != TokenType::kName) FailHere("expected a name, got " + Describe(Current()));
  return Next().text;
}

ExprPtr ExpressionParser::Make(ExprKind kind, int line, ExprPtr a, ExprPtr b) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  if (a != nullptr) expr->children.push_back(std::move(a));
  if (b != nullptr) expr->children.push_back(std::move(b));
  return Finish(std::move(expr));
}

ExprPtr ExpressionParser::Finish(ExprPtr expr) {
  int depth = 0;
  for (const auto& child : expr->children) depth = std::max(depth, child ? child->depth : 0);
  if (expr->call != nullptr) {
    for (const auto& arg : expr->call->args) depth = std::max(depth, arg->depth);
    for (const auto& [name, arg] : expr->call->kwargs) depth = std::max(depth, arg->depth);
    if (expr->call->star_args) depth = std::max(depth, expr->call->star_args->depth);
    if (expr->call->star_kwargs) depth = std::max(depth, expr->call->star_kwargs->depth);
  }
  expr->depth = depth + 1;
  if (expr->depth > kMaxTemplateDepth)
    FailAt(expr->line, "expression is nested too deeply", StatusCode::kUnsupported);
  return expr;
}

const char* ExpressionParser::KindName(ExprKind kind) {
  switch (kind) {
    case ExprKind::kConst:
      return "a constant";
    case ExprKind::kCall:
      return "a call";
    case ExprKind::kGetattr:
    case ExprKind::kGetitem:
      return "an attribute";
    default:
      return "an expression";
  }
}

ExprPtr ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting nesting(this);
  return with_conditional ? ParseConditional() : ParseOr();
}

ExprPtr ExpressionParser::ParseConditional() {
  const Nesting nesting(this);
  ExprPtr then = ParseOr();
  int line = Current().line;
  while (SkipName("if")) {
    ExprPtr condition = ParseOr();
    ExprPtr otherwise = SkipName("else") ? ParseConditional() : nullptr;
    ExprPtr node = Make(ExprKind::kConditional, line, std::move(condition), std::move(then));
    node->children.push_back(std::move(otherwise));
    then = Finish(std::move(node));
    line = Current().line;
  }
  return then;
}

ExprPtr ExpressionParser::ParseOr() {
  ExprPtr left = ParseAnd();
  for (int line = Current().line; SkipName("or"); line = Current().line) {
    left = Make(ExprKind::kOr, line, std::move(left), ParseAnd());
  }
  return left;
}

ExprPtr ExpressionParser::ParseAnd() {
  ExprPtr left = ParseNot();
  for (int line = Current().line; SkipName("and"); line = Current().line) {
    left = Make(ExprKind::kAnd, line, std::move(left), ParseNot());
  }
  return left;
}

ExprPtr ExpressionParser::ParseNot() {
  const int line = Current().line;
  if (!SkipName("not")) return ParseCompare();
  const Nesting nesting(this);
  return Make(ExprKind::kNot, line, ParseNot());
}

ExprPtr ExpressionParser::ParseCompare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  const int line = Current().line;
  ExprPtr first = ParseSum();
  std::vector<CompareOp> ops;
  std::vector<ExprPtr> others;
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& o) { return Current().IsOp(o.first); });
    if (op != std::end(kOps)) {
      ops.push_back(op->second);
      Next();
    } else if (SkipName("in")) {
      ops.push_back(CompareOp::kIn);
    } else if (Current().IsName("not") && Look().IsName("in")) {
      Next();
      Next();
      ops.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    others.push_back(ParseSum());
  }
  if (ops.empty()) return first;
  ExprPtr node = Make(ExprKind::kCompare, line, std::move(first));
  for (auto& other : others) node->children.push_back(std::move(other));
  node->compares = std::move(ops);
  return Finish(std::move(node));
}

namespace {

ExprPtr Binary(ExprPtr node, BinaryOp op) {
  node->binary = op;
  return node;
}

}  // namespace

ExprPtr ExpressionParser::ParseSum() {
  ExprPtr left = ParseConcat();
  while (Current().IsOp("+") || Current().IsOp("-")) {
    const Token op = Next();
    left = Binary(Make(ExprKind::kBinary, op.line, std::move(left), ParseConcat()),
                  op.text == "+" ? BinaryOp::kAdd : BinaryOp::kSub);
  }
  return left;
}

ExprPtr ExpressionParser::ParseConcat() {
  const int line = Current().line;
  ExprPtr first = ParseProduct();
  if (!Current().IsOp("~")) return first;
  ExprPtr node = Make(ExprKind::kConcat, line, std::move(first));
  while (SkipOp("~")) node->children.push_back(ParseProduct());
  return Finish(std::move(node));
}

ExprPtr ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMul},
                                                                   {"/", BinaryOp::kDiv},
                                                                   {"//", BinaryOp::kFloorDiv},
                                                                   {"%", BinaryOp::kMod}};
  ExprPtr left = ParsePower();
  while (true) {
    const auto* op = std::find_if(std::begin(kOps), std::end(kOps),
                                  [&](const auto& o) { return Current().IsOp(o.first); });
    if (op == std::end(kOps)) return left;
    const int line = Next().line;
    left = Binary(Make(ExprKind::kBinary, line, std::move(left), ParsePower()), op->second);
  }
}

ExprPtr ExpressionParser::ParsePower() {
  ExprPtr left = ParseUnary(true);
  for (int line = Current().line; SkipOp("**"); line = Current().line) {
    left = Binary(Make(ExprKind::kBinary, line, std::move(left), ParseUnary(true)), BinaryOp::kPow);
  }
  return left;
}

ExprPtr ExpressionParser::ParseUnary(bool with_filter) {
  const Nesting nesting(this);
  const int line = Current().line;
  ExprPtr node;
  if (SkipOp("-")) {
    node = Make(ExprKind::kNegative, line, ParseUnary(false));
  } else if (SkipOp("+")) {
    node = Make(ExprKind::kPositive, line, ParseUnary(false));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParseFilterOrTest(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::ParseNameOrConst() {
  const Token token = Next();
  ExprPtr node = Make(ExprKind::kConst, token.line);
  if (token.text == "true" || token.text == "True") {
    node->constant = Value::Bool(true);
  } else if (token.text == "false" || token.text == "False") {
    node->constant = Value::Bool(false);
  } else if (token.text != "none" && token.text != "None") {
    node->kind = ExprKind::kName;
    node->name = token.text;
  }
  return node;
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token& token = Current();
  const int line = token.line;
  ExprPtr node;
  switch (token.type) {
    case TokenType::kName:
      return ParseNameOrConst();
    case TokenType::kString: {
      std::string text;
      while (Current().type == TokenType::kString) text += Next().text;
      node = Make(ExprKind::kConst, line);
      node->constant = Value::String(Text(std::move(text)));
      return node;
    }
    case TokenType::kInteger:
      node = Make(ExprKind::kConst, line);
      node->constant = Value::Integer(Next().integer);
      return node;
    case TokenType::kFloat:
      node = Make(ExprKind::kConst, line);
      node->constant = Value::Float(Next().real);
      return node;
    default:
      break;
  }
  if (SkipOp("(")) {
    node = ParseTuple(true, "", true);
    ExpectOp(")");
    return node;
  }
  if (token.IsOp("[")) return ParseList();
  if (token.IsOp("{")) return ParseDict();
  FailHere("unexpected " + Describe(token));
}

ExprPtr ExpressionParser::ParseTuple(bool with_conditional, std::string_view end_name,
                                     bool parenthesized) {
  const int line = Current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) ExpectOp(",");
    const Token& token = Current();
    if (token.type == TokenType::kVariableEnd || token.type == TokenType::kBlockEnd ||
        token.IsOp(")") || (!end_name.empty() && token.IsName(end_name))) {
      break;
    }
    items.push_back(ParseExpression(with_conditional));
    if (!Current().IsOp(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parenthesized) FailHere("expected an expression, got " + Describe(Current()));
  }
  ExprPtr node = Make(ExprKind::kTuple, line);
  node->children = std::move(items);
  return Finish(std::move(node));
}

ExprPtr ExpressionParser::ParseList() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!Current().IsOp("]")) {
    if (!node->children.empty()) ExpectOp(",");
    if (Current().IsOp("]")) break;
    node->children.push_back(ParseExpression());
  }
  ExpectOp("]");
  return Finish(std::move(node));
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!Current().IsOp("}")) {
    if (!node->children.empty()) ExpectOp(",");
    if (Current().IsOp("}")) break;
    node->children.push_back(ParseExpression());
    ExpectOp(":");
    node->children.push_back(ParseExpression());
  }
  ExpectOp("}");
  return Finish(std::move(node));
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (Current().IsOp(".") || Current().IsOp("[")) {
      node = ParseSubscript(std::move(node));
    } else if (Current().IsOp("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParseFilterOrTest(ExprPtr node) {
  while (true) {
    if (Current().IsOp("|")) {
      node = ParseFilters(std::move(node), false);
    } else if (Current().IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (Current().IsOp("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr node) {
  const Token open = Next();
  if (open.text == ".") {
    const Token name = Next();
    if (name.type == TokenType::kName) {
      ExprPtr attr = Make(ExprKind::kGetattr, open.line, std::move(node));
      attr->name = name.text;
      return attr;
    }
    if (name.type != TokenType::kInteger) FailAt(name.line, "expected name or number after '.'");
    ExprPtr index = Make(ExprKind::kConst, name.line);
    index->constant = Value::Integer(name.integer);
    return Make(ExprKind::kGetitem, open.line, std::move(node), std::move(index));
  }
  std::vector<ExprPtr> args;
  while (!Current().IsOp("]")) {
    if (!args.empty()) ExpectOp(",");
    args.push_back(ParseSubscribed());
  }
  ExpectOp("]");
  if (args.size() == 1)
    return Make(ExprKind::kGetitem, open.line, std::move(node), std::move(args[0]));
  ExprPtr tuple = Make(ExprKind::kTuple, open.line);
  tuple->children = std::move(args);
  return Make(ExprKind::kGetitem, open.line, std::move(node), Finish(std::move(tuple)));
}

ExprPtr ExpressionParser::ParseSubscribed() {
  const int line = Current().line;
  ExprPtr bounds[3];
  if (!Current().IsOp(":")) {
    bounds[0] = ParseExpression();
    if (!Current().IsOp(":")) return std::move(bounds[0]);
  }
  Next();
  if (!Current().IsOp(":") && !Current().IsOp("]") && !Current().IsOp(","))
    bounds[1] = ParseExpression();
  if (SkipOp(":") && !Current().IsOp("]") && !Current().IsOp(",")) bounds[2] = ParseExpression();
  ExprPtr node = Make(ExprKind::kSlice, line);
  for (auto& bound : bounds) node->children.push_back(std::move(bound));
  return Finish(std::move(node));
}

std::unique_ptr<CallSyntax> ExpressionParser::ParseCallArgs() {
  const int line = Current().line;
  ExpectOp("(");
  auto call = std::make_unique<CallSyntax>();
  bool first = true;
  const auto ensure = [&](bool ok) {
    if (!ok) FailAt(line, "invalid syntax for function call expression");
  };
  while (!Current().IsOp(")")) {
    if (!first) ExpectOp(",");
    if (!first && Current().IsOp(")")) break;
    first = false;
    if (SkipOp("*")) {
      ensure(!call->star_args && !call->star_kwargs);
      call->star_args = ParseExpression();
    } else if (SkipOp("**")) {
      ensure(!call->star_kwargs);
      call->star_kwargs = ParseExpression();
    } else if (Current().type == TokenType::kName && Look().IsOp("=")) {
      ensure(!call->star_kwargs);
      std::string name = Next().text;
      Next();
      call->kwargs.emplace_back(std::move(name), ParseExpression());
    } else {
      ensure(!call->star_args && !call->star_kwargs && call->kwargs.empty());
      call->args.push_back(ParseExpression());
    }
  }
  ExpectOp(")");
  return call;
}

ExprPtr ExpressionParser::ParseCall(ExprPtr callee) {
  ExprPtr node = Make(ExprKind::kCall, Current().line, std::move(callee));
  node->call = ParseCallArgs();
  for (size_t i = 0; i < node->call->kwargs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (node->call->kwargs[i].first == node->call->kwargs[j].first) {
        FailAt(node->line, "keyword argument '" + node->call->kwargs[i].first + "' repeated");
      }
    }
  }
  return Finish(std::move(node));
}

std::string ExpressionParser::DottedName() {
  std::string name = ExpectName();
  while (SkipOp(".")) name += "." + ExpectName();
  return name;
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr input, bool first_without_pipe) {
  while (first_without_pipe || SkipOp("|")) {
    first_without_pipe = false;
    const int line = Current().line;
    const std::string name = DottedName();
    auto node = std::make_unique<Expr>();
    node->kind = ExprKind::kFilter;
    node->line = line;
    node->name = name;
    node->filter = FindFilter(name);
    if (node->filter == nullptr)
      FailAt(line, "unknown filter '" + name + "'", StatusCode::kUnsupported);
    node->children.push_back(std::move(input));
    node->call = Current().IsOp("(") ? ParseCallArgs() : std::make_unique<CallSyntax>();
    input = Finish(std::move(node));
  }
  return input;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr node) {
  const int line = Next().line;
  const bool negated = SkipName("not");
  const std::string name = DottedName();
  auto call = std::make_unique<CallSyntax>();
  const Token& token = Current();
  const bool starts_argument = token.type == TokenType::kName || token.type == TokenType::kString ||
                               token.type == TokenType::kInteger ||
                               token.type == TokenType::kFloat || token.IsOp("[") ||
                               token.IsOp("{");
  if (token.IsOp("(")) {
    call = ParseCallArgs();
  } else if (starts_argument && !token.IsName("else") && !token.IsName("or") &&
             !token.IsName("and")) {
    if (token.IsName("is")) FailHere("tests cannot be chained with is");
    call->args.push_back(ParsePostfix(ParsePrimary()));
  }
  ExprPtr test = Make(ExprKind::kTest, line, std::move(node));
  test->name = name;
  test->test = FindTest(name);
  if (test->test == nullptr) FailAt(line, "unknown test '" + name + "'", StatusCode::kUnsupported);
  test->call = std::move(call);
  test = Finish(std::move(test));
  return negated ? Make(ExprKind::kNot, line, std::move(test)) : std::move(test);
}

}  // namespace pocketlm::chat
