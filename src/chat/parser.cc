#include "chat/parser.h"

#include <algorithm>
#include <unordered_set>

#include "chat/expression_parser.h"
#include "chat/interpreter.h"
#include "chat/scope_analysis.h"

namespace pocketlm::chat {
namespace {

using Names = std::unordered_set<std::string>;

// Which names and attributes a template gives values to, and what it calls.
struct NameUse {
  Names assigned;
  Names attributes;
  struct Called {
    std::string name;
    int line;
    bool is_method;
  };
  std::vector<Called> calls;
};

class Parser : public ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Block Run() {
    Block body = ParseBody({});
    if (Current().type != TokenType::kEnd) FailHere("unexpected " + Describe(Current()));
    return body;
  }

 private:
  using EndNames = std::vector<std::string_view>;

  static std::unique_ptr<Stmt> MakeStmt(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  bool AtEndName(const EndNames& ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view e) { return Current().IsName(e); });
  }

  // Statements until a block that begins with one of `ends`, which stays current.
  Block ParseBody(const EndNames& ends) {
    const Nesting nesting(this);
    Block body;
    while (Current().type != TokenType::kEnd) {
      const Token token = Next();
      if (token.type == TokenType::kData) {
        body.push_back(MakeStmt(StmtKind::kText, token.line));
        body.back()->text = Value::String(Text(token.text));
      } else if (token.type == TokenType::kVariableBegin) {
        body.push_back(MakeStmt(StmtKind::kOutput, token.line));
        body.back()->expr = ParseTuple(true, "", false);
        Expect(TokenType::kVariableEnd, "end of print statement");
      } else {
        if (AtEndName(ends)) return body;
        ParseStatement(&body, ends);
        Expect(TokenType::kBlockEnd, "end of statement block");
      }
    }
    if (!ends.empty())
      FailHere("unexpected end of template, expected '" + std::string(ends.back()) + "'");
    return body;
  }

  // The rest of an opening tag, the body, and (`drop_end`) the name of the end tag.
  Block ParseTagBody(const EndNames& ends, bool drop_end) {
    SkipOp(":");
    Expect(TokenType::kBlockEnd, "end of statement block");
    Block body = ParseBody(ends);
    if (drop_end) Next();
    return body;
  }

  void ParseStatement(Block* out, const EndNames& ends) {
    const Token& token = Current();
    const int line = token.line;
    if (token.type != TokenType::kName) FailHere("tag name expected, got " + Describe(token));
    const std::string tag = token.text;
    Next();
    if (tag == "set") return out->push_back(ParseSet(line));
    if (tag == "if") return out->push_back(ParseIf(line));
    if (tag == "for") return out->push_back(ParseFor(line));
    if (tag == "macro") return out->push_back(ParseMacro(line));
    if (tag == "call") return out->push_back(ParseCallBlock(line));
    if (tag == "filter") return out->push_back(ParseFilterBlock(line));
    if (tag == "with") return out->push_back(ParseWith(line));
    if (tag == "print") return ParsePrint(line, out);
    if (tag == "break" || tag == "continue") {
      if (loop_depth_ == 0) FailAt(line, "'" + tag + "' outside of a loop");
      return out->push_back(
          MakeStmt(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, line));
    }
    if (tag == "generation") {
      auto stmt = MakeStmt(StmtKind::kScope, line);
      stmt->body = ParseFunctionBody("endgeneration");
      return out->push_back(std::move(stmt));
    }
    for (const char* refused :
         {"include", "import", "from", "extends", "block", "autoescape", "do", "trans", "debug"}) {
      if (tag == refused)
        FailAt(line, "tag '" + tag + "' is not supported", StatusCode::kUnsupported);
    }
    const std::string hint = ends.empty() ? "" : ", expected '" + std::string(ends.back()) + "'";
    FailAt(line, "unknown tag '" + tag + "'" + hint, StatusCode::kUnsupported);
  }

  // A body that is a function of its own: break and continue do not reach out of it.
  Block ParseFunctionBody(std::string_view end) {
    const int saved = loop_depth_;
    loop_depth_ = 0;
    Block body = ParseTagBody({end}, true);
    loop_depth_ = saved;
    return body;
  }

  void CheckTargetName(const std::string& name, int line) const {
    for (const char* reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (name == reserved) FailAt(line, "cannot assign to '" + name + "'");
    }
  }

  Target ParseSingleTarget(bool with_namespace) {
    Target target;
    target.line = Current().line;
    if (SkipOp("(")) {
      target = ParseTarget(with_namespace, "");
      ExpectOp(")");
      return target;
    }
    if (Current().type != TokenType::kName) FailHere("cannot assign to " + Describe(Current()));
    target.name = Next().text;
    CheckTargetName(target.name, target.line);
    if (with_namespace && SkipOp(".")) target.attribute = ExpectName();
    return target;
  }

  Target ParseTarget(bool with_namespace, std::string_view end_name) {
    const Nesting nesting(this);
    Target tuple;
    tuple.line = Current().line;
    tuple.is_tuple = true;
    bool comma = false;
    while (true) {
      if (!end_name.empty() && Current().IsName(end_name)) break;
      if (Current().type == TokenType::kBlockEnd || Current().IsOp("=") || Current().IsOp(")"))
        break;
      tuple.parts.push_back(ParseSingleTarget(with_namespace));
      if (!SkipOp(",")) break;
      comma = true;
    }
    if (tuple.parts.empty()) FailHere("expected a name to assign to, got " + Describe(Current()));
    if (comma) return tuple;
    Target single = std::move(tuple.parts[0]);
    return single;
  }

  std::unique_ptr<Stmt> ParseSet(int line) {
    auto stmt = MakeStmt(StmtKind::kSet, line);
    stmt->target = ParseTarget(true, "");
    if (SkipOp("=")) {
      stmt->expr = ParseTuple(true, "", false);
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->expr = ParseFilters(nullptr, false);
    stmt->body = ParseFunctionBody("endset");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseIf(int line) {
    auto stmt = MakeStmt(StmtKind::kIf, line);
    while (true) {
      ExprPtr condition = ParseTuple(false, "", false);
      Block body = ParseTagBody({"elif", "else", "endif"}, false);
      stmt->branches.emplace_back(std::move(condition), std::move(body));
      if (SkipName("elif")) continue;
      if (SkipName("else")) {
        stmt->else_body = ParseTagBody({"endif"}, true);
      } else {
        SkipName("endif");
      }
      return stmt;
    }
  }

  std::unique_ptr<Stmt> ParseFor(int line) {
    auto stmt = MakeStmt(StmtKind::kFor, line);
    stmt->target = ParseTarget(false, "in");
    if (!SkipName("in")) FailHere("expected 'in', got " + Describe(Current()));
    stmt->expr = ParseTuple(false, "recursive", false);
    if (SkipName("if")) stmt->condition = ParseExpression();
    stmt->recursive = SkipName("recursive");
    ++loop_depth_;
    stmt->body = ParseTagBody({"else", "endfor"}, false);
    --loop_depth_;
    if (Next().text == "else") stmt->else_body = ParseTagBody({"endfor"}, true);
    return stmt;
  }

  void ParseSignature(MacroSignature* signature) {
    ExpectOp("(");
    while (!Current().IsOp(")")) {
      if (!signature->params.empty()) ExpectOp(",");
      const int line = Current().line;
      signature->params.push_back(ExpectName());
      CheckTargetName(signature->params.back(), line);
      if (SkipOp("=")) {
        signature->defaults.push_back(ParseExpression());
      } else if (!signature->defaults.empty()) {
        FailHere("non-default argument follows default argument");
      }
    }
    ExpectOp(")");
  }

  std::unique_ptr<Stmt> ParseMacro(int line) {
    auto stmt = MakeStmt(StmtKind::kMacro, line);
    stmt->macro = std::make_unique<MacroSignature>();
    stmt->macro->name = ExpectName();
    CheckTargetName(stmt->macro->name, line);
    ParseSignature(stmt->macro.get());
    stmt->body = ParseFunctionBody("endmacro");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseCallBlock(int line) {
    auto stmt = MakeStmt(StmtKind::kCallBlock, line);
    stmt->macro = std::make_unique<MacroSignature>();
    if (Current().IsOp("(")) ParseSignature(stmt->macro.get());
    stmt->expr = ParseExpression();
    if (stmt->expr->kind != ExprKind::kCall)
      FailAt(line, "expected a call, got " + std::string(KindName(stmt->expr->kind)));
    stmt->body = ParseFunctionBody("endcall");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseFilterBlock(int line) {
    auto stmt = MakeStmt(StmtKind::kFilterBlock, line);
    stmt->expr = ParseFilters(nullptr, true);
    stmt->body = ParseFunctionBody("endfilter");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseWith(int line) {
    auto stmt = MakeStmt(StmtKind::kWith, line);
    while (Current().type != TokenType::kBlockEnd && !Current().IsOp(":")) {
      if (!stmt->with.empty()) ExpectOp(",");
      Target target = ParseSingleTarget(false);
      ExpectOp("=");
      stmt->with.emplace_back(std::move(target), ParseExpression());
    }
    stmt->body = ParseTagBody({"endwith"}, true);
    return stmt;
  }

  void ParsePrint(int line, Block* out) {
    bool first = true;
    while (Current().type != TokenType::kBlockEnd) {
      if (!first) ExpectOp(",");
      first = false;
      out->push_back(MakeStmt(StmtKind::kOutput, line));
      out->back()->expr = ParseExpression();
    }
  }

  int loop_depth_ = 0;
};

// Walks the tree once to collect NameUse and to mark what macros use.
class Collector {
 public:
  void Visit(const Block& body) {
    for (const auto& stmt : body) Visit(*stmt);
  }
  NameUse& use() { return use_; }

 private:
  struct Special {
    bool caller = false, kwargs = false, varargs = false;
  };

  void Visit(Stmt& stmt) {
    Special* outer = special_;
    Special own;
    if (stmt.macro != nullptr) {
      if (stmt.expr) Visit(*stmt.expr);
      if (!stmt.macro->name.empty()) use_.assigned.insert(stmt.macro->name);
      use_.assigned.insert(stmt.macro->params.begin(), stmt.macro->params.end());
      special_ = &own;
      for (const auto& value : stmt.macro->defaults) Visit(*value);
    } else if (stmt.expr) {
      Visit(*stmt.expr);
    }
    VisitTarget(stmt.target);
    if (stmt.condition) Visit(*stmt.condition);
    for (const auto& [condition, body] : stmt.branches) {
      Visit(*condition);
      Visit(body);
    }
    for (const auto& [target, value] : stmt.with) {
      VisitTarget(target);
      Visit(*value);
    }
    Visit(stmt.body);
    Visit(stmt.else_body);
    if (stmt.macro != nullptr) {
      MarkMacro(stmt.macro.get(), own);
      special_ = outer;
    }
  }

  static void MarkMacro(MacroSignature* macro, const Special& own) {
    const auto& params = macro->params;
    const auto is_param = [&](const char* name) {
      return std::find(params.begin(), params.end(), name) != params.end();
    };
    macro->uses_caller = own.caller || is_param("caller");
    macro->uses_kwargs = own.kwargs && !is_param("kwargs");
    macro->uses_varargs = own.varargs && !is_param("varargs");
  }

  void VisitTarget(const Target& target) {
    if (target.attribute.empty() && !target.is_tuple) use_.assigned.insert(target.name);
    if (!target.attribute.empty()) use_.attributes.insert(target.attribute);
    for (const Target& part : target.parts) VisitTarget(part);
  }

  void Visit(const Expr& expr) {
    if (expr.kind == ExprKind::kName && special_ != nullptr) {
      special_->caller = special_->caller || expr.name == "caller";
      special_->kwargs = special_->kwargs || expr.name == "kwargs";
      special_->varargs = special_->varargs || expr.name == "varargs";
    }
    if (expr.kind == ExprKind::kDict) {
      for (size_t i = 0; i < expr.children.size(); i += 2) {
        if (expr.children[i]->constant.IsString())
          use_.attributes.insert(expr.children[i]->constant.text().bytes());
      }
    }
    if (expr.kind == ExprKind::kCall) {
      const Expr& callee = *expr.children[0];
      const bool is_method = callee.kind == ExprKind::kGetattr;
      if (is_method || callee.kind == ExprKind::kName)
        use_.calls.push_back({callee.name, callee.line, is_method});
    }
    if (expr.kind == ExprKind::kFilter) CheckNamedArgument(expr);
    for (const auto& child : expr.children) {
      if (child) Visit(*child);
    }
    if (expr.call == nullptr) return;
    for (const auto& arg : expr.call->args) Visit(*arg);
    for (const auto& [name, arg] : expr.call->kwargs) {
      use_.attributes.insert(name);
      Visit(*arg);
    }
    if (expr.call->star_args) Visit(*expr.call->star_args);
    if (expr.call->star_kwargs) Visit(*expr.call->star_kwargs);
  }

  // map('upper'), select('odd'), selectattr('x', 'odd'): the name inside is known while parsing.
  static void CheckNamedArgument(const Expr& expr) {
    const bool is_map = expr.name == "map";
    const bool by_attribute = expr.name == "selectattr" || expr.name == "rejectattr";
    if (!is_map && !by_attribute && expr.name != "select" && expr.name != "reject") return;
    const size_t index = by_attribute ? 1 : 0;
    if (expr.call->args.size() <= index || !expr.call->args[index]->constant.IsString()) return;
    const std::string name = expr.call->args[index]->constant.text().bytes();
    if (is_map ? FindFilter(name) != nullptr : FindTest(name) != nullptr) return;
    throw TemplateError{StatusCode::kUnsupported,
                        std::string("unknown ") + (is_map ? "filter '" : "test '") + name + "'",
                        expr.line};
  }

  NameUse use_;
  Special* special_ = nullptr;
};

void CheckCalls(const NameUse& use) {
  for (const auto& call : use.calls) {
    const bool known = call.is_method
                           ? IsMethodName(call.name) || use.attributes.count(call.name) != 0
                           : IsGlobalFunction(call.name) || use.assigned.count(call.name) != 0 ||
                                 call.name == "caller" || call.name == "loop";
    if (!known) {
      throw TemplateError{
          StatusCode::kUnsupported,
          std::string("unknown ") + (call.is_method ? "method '" : "function '") + call.name + "'",
          call.line};
    }
  }
}

}  // namespace

TemplateTree ParseTemplate(std::string_view source) {
  TemplateTree tree;
  tree.body = Parser(Tokenize(source)).Run();
  Collector collector;
  collector.Visit(tree.body);
  CheckCalls(collector.use());
  tree.hidden = AnalyzeScopes(tree.body);
  return tree;
}

}  // namespace pocketlm::chat
