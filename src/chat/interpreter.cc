#include "chat/interpreter.h"

#include <algorithm>
#include <chrono>

#include "chat/interpreter_values.h"
#include "chat/python_format.h"

namespace pocketlm::chat {

// Bounds recursion and remembers the line that an error belongs to.
class Interpreter::DepthGuard {
 public:
  DepthGuard(Interpreter* interpreter, int line)
      : interpreter_(interpreter), line_(interpreter->line_) {
    interpreter->meter_->Step();
    interpreter->line_ = line;
    if (interpreter->depth_ >= kMaxRenderDepth) FailLimit("recursion is too deep");
    ++interpreter->depth_;
  }
  // An error keeps the innermost line.
  ~DepthGuard() { --interpreter_->depth_; }
  void Done() { interpreter_->line_ = line_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Interpreter* interpreter_;
  int line_;
};

Interpreter::Interpreter(const RenderInput& input, Meter* meter)
    : input_(input), meter_(meter), scope_(std::make_shared<Scope>(nullptr)) {
  auto& globals = scope_->variables;
  globals["messages"] = Value::FromJson(input.messages);
  globals["tools"] = Value::FromJson(input.tools);
  globals["documents"] = Value::None();
  globals["add_generation_prompt"] = Value::Bool(input.add_generation_prompt);
  if (!input.bos_token.empty()) globals["bos_token"] = Value::String(Text(input.bos_token));
  if (!input.eos_token.empty()) globals["eos_token"] = Value::String(Text(input.eos_token));
  for (const auto& [name, value] : input.extra.items()) {
    // Keys live in `input.extra`, which outlives the scope.
    globals[std::string_view(input.extra.find(name).key())] = Value::FromJson(value);
  }
  scope_ = std::make_shared<Scope>(scope_);
}

Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& loop : loops_)
    const_cast<LoopData&>(static_cast<const LoopData&>(*loop)).last_changed.reset();
  for (const auto& scope : closures_) scope->variables.clear();
}

RenderedPrompt Interpreter::Run(const TemplateTree& tree) {
  TextBuilder out;
  out_ = &out;
  Hide(scope_.get(), tree.hidden);
  Exec(tree.body);
  return out.TakePrompt();
}

int64_t Interpreter::Now() const {
  if (input_.now) return *input_.now;
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void Interpreter::Write(const Text& text) {
  out_->Append(text);
  if (out_->size() > meter_->limits().max_output_bytes)
    FailLimit("the rendered prompt is too long");
}

Interpreter::Flow Interpreter::Exec(const Block& block) {
  for (const auto& stmt : block) {
    const Flow flow = ExecStmt(*stmt);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

void Interpreter::Hide(Scope* scope, const HiddenNames& hidden) {
  for (const auto& [name, undefined] : hidden) scope->variables[name] = undefined;
}

ScopePtr Interpreter::NewScope(const ScopePtr& parent, const HiddenNames& hidden) {
  const auto scope = std::make_shared<Scope>(parent);
  Hide(scope.get(), hidden);
  return scope;
}

Interpreter::Flow Interpreter::ExecInScope(const Block& block, const HiddenNames& hidden) {
  const ScopePtr outer = scope_;
  scope_ = NewScope(outer, hidden);
  const Flow flow = Exec(block);
  scope_ = outer;
  return flow;
}

Text Interpreter::Capture(const Stmt& stmt) {
  TextBuilder captured;
  TextBuilder* outer = out_;
  out_ = &captured;
  ExecInScope(stmt.body, stmt.hidden);
  out_ = outer;
  return captured.Build();
}

Interpreter::Flow Interpreter::ExecStmt(const Stmt& stmt) {
  DepthGuard guard(this, stmt.line);
  Flow flow = Flow::kNormal;
  switch (stmt.kind) {
    case StmtKind::kText:
      Write(stmt.text.text());
      break;
    case StmtKind::kOutput:
      Write(Str(Eval(*stmt.expr)));
      break;
    case StmtKind::kSet:
      Assign(scope_, stmt.target, Eval(*stmt.expr));
      break;
    case StmtKind::kSetBlock: {
      Value value = Value::String(Capture(stmt));
      if (stmt.expr) value = EvalFilter(*stmt.expr, &value);
      Assign(scope_, stmt.target, value);
      break;
    }
    case StmtKind::kIf:
      flow = ExecIf(stmt);
      break;
    case StmtKind::kFor: {
      const Value iterable = Eval(*stmt.expr);
      flow = ExecFor(stmt, Iterate(iterable), iterable.depth(), scope_, 0);
      break;
    }
    case StmtKind::kMacro:
      scope_->variables[stmt.macro->name] = MakeMacro(stmt);
      break;
    case StmtKind::kCallBlock:
      ExecCallBlock(stmt);
      break;
    case StmtKind::kFilterBlock: {
      const Value body = Value::String(Capture(stmt));
      Write(AsText(EvalFilter(*stmt.expr, &body), "the result of a filter block"));
      break;
    }
    case StmtKind::kWith:
      flow = ExecWith(stmt);
      break;
    case StmtKind::kScope:
      flow = ExecInScope(stmt.body, stmt.hidden);
      break;
    case StmtKind::kBreak:
      flow = Flow::kBreak;
      break;
    case StmtKind::kContinue:
      flow = Flow::kContinue;
      break;
  }
  guard.Done();
  return flow;
}

Interpreter::Flow Interpreter::ExecIf(const Stmt& stmt) {
  for (const auto& [condition, body] : stmt.branches) {
    if (Truthy(Eval(*condition))) return Exec(body);
  }
  return Exec(stmt.else_body);
}

Interpreter::Flow Interpreter::ExecWith(const Stmt& stmt) {
  const ScopePtr outer = scope_;
  const ScopePtr inner = NewScope(outer, stmt.hidden);
  for (const auto& [target, value] : stmt.with) Assign(inner, target, Eval(*value));
  scope_ = inner;
  const Flow flow = Exec(stmt.body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::ExecFor(const Stmt& stmt, std::vector<Value> items, int items_depth,
                                       const ScopePtr& outer, int depth0) {
  const ScopePtr saved = scope_;
  std::function<bool(const Value&)> keep;
  if (stmt.condition) {
    keep = [this, &stmt, outer](const Value& item) {
      const ScopePtr caller_scope = scope_;
      scope_ = std::make_shared<Scope>(outer);
      Assign(scope_, stmt.target, item);
      const bool result = Truthy(Eval(*stmt.condition));
      scope_ = caller_scope;
      return result;
    };
  }
  const auto loop = std::make_shared<LoopData>(std::move(items), items_depth, std::move(keep),
                                               &stmt, outer, depth0);
  const Value loop_value = Value::Of(Kind::kLoop, loop);
  bool any = false;
  ScopePtr turn;
  while (loop->Advance()) {
    any = true;
    meter_->Step(2);
    if (turn != nullptr && turn.use_count() == 1) {
      turn->variables.clear();  // nothing holds on to the last turn's scope
    } else {
      turn = std::make_shared<Scope>(outer);
    }
    scope_ = turn;
    Hide(turn.get(), stmt.hidden);
    scope_->variables["loop"] = loop_value;
    Assign(scope_, stmt.target, loop->current());
    const Flow turn_flow = Exec(stmt.body);
    scope_ = saved;
    if (turn_flow == Flow::kBreak) break;
  }
  Flow flow = Flow::kNormal;
  if (!any) {
    scope_ = NewScope(outer, stmt.else_hidden);
    flow = Exec(stmt.else_body);
  }
  scope_ = saved;
  return flow;
}

void Interpreter::ExecCallBlock(const Stmt& stmt) {
  const Value caller = MakeMacro(stmt);
  Write(Str(EvalCall(*stmt.expr, &caller)));
}

void Interpreter::Assign(const ScopePtr& scope, const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = Iterate(value);
    if (items.size() != target.parts.size()) {
      Fail("expected " + std::to_string(target.parts.size()) + " values to unpack, got " +
           std::to_string(items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(scope, target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope->variables[target.name] = value;
    return;
  }
  Expr name;
  name.kind = ExprKind::kName;
  name.line = target.line;
  name.name = target.name;
  const Value space = EvalName(name);
  if (!space.Is(Kind::kNamespace))
    Fail("cannot assign attribute on non-namespace object '" + target.name + "'");
  if (target.attribute[0] == '_')
    Fail("a namespace attribute cannot begin with '_': '" + target.attribute + "'");
  space.name_space().Set(Text(target.attribute), value);
}

Value Interpreter::MakeMacro(const Stmt& stmt) {
  const auto macro = std::make_shared<MacroData>(&stmt, scope_);
  closures_.push_back(scope_);
  return Value::Of(Kind::kMacro, macro);
}

namespace {

// Removes and returns a keyword argument.
std::optional<Value> TakeKeyword(CallArgs* args, std::string_view name) {
  const auto it = std::find_if(args->kwargs.begin(), args->kwargs.end(),
                               [&](const auto& kw) { return kw.first == name; });
  if (it == args->kwargs.end()) return std::nullopt;
  Value value = std::move(it->second);
  args->kwargs.erase(it);
  return value;
}

}  // namespace

Value Interpreter::CallMacro(const Value& value, CallArgs& args) {
  const auto& macro = value.As<MacroData>();
  const MacroSignature& signature = *macro.stmt->macro;
  const ScopePtr inner = NewScope(macro.closure, macro.stmt->hidden);
  const ScopePtr outer = scope_;
  scope_ = inner;
  const auto& params = signature.params;
  bool caller_bound = args.args.size() >= params.size() &&
                      std::find(params.begin(), params.end(), "caller") != params.end();
  for (size_t i = 0; i < params.size(); ++i) {
    std::optional<Value> arg;
    if (i < args.args.size()) {
      arg = args.args[i];
    } else {
      arg = TakeKeyword(&args, params[i]);
      caller_bound = caller_bound || params[i] == "caller";
    }
    if (!arg) {
      const size_t first_default = params.size() - signature.defaults.size();
      arg = i >= first_default ? Eval(*signature.defaults[i - first_default])
                               : Value::Undefined("parameter '" + params[i] + "' was not provided");
    }
    inner->variables[params[i]] = std::move(*arg);
  }
  if (signature.uses_caller && !caller_bound) {
    auto caller = TakeKeyword(&args, "caller");
    inner->variables["caller"] =
        caller && !caller->IsNone() ? *caller : Value::Undefined("No caller defined");
  }
  if (signature.uses_kwargs) {
    DictBuilder dict;
    for (const auto& [name, kwarg] : args.kwargs) dict.Set(Value::String(Text(name)), kwarg);
    inner->variables["kwargs"] = dict.Build();
  } else if (!args.kwargs.empty()) {
    Fail("macro '" + signature.name + "' takes no keyword argument '" + args.kwargs[0].first + "'");
  }
  const size_t used = std::min(params.size(), args.args.size());
  if (signature.uses_varargs) {
    inner->variables["varargs"] =
        Value::Tuple({args.args.begin() + static_cast<ptrdiff_t>(used), args.args.end()});
  } else if (used < args.args.size()) {
    Fail("macro '" + signature.name + "' takes not more than " + std::to_string(params.size()) +
         " argument(s)");
  }
  TextBuilder captured;
  TextBuilder* saved_out = out_;
  out_ = &captured;
  Exec(macro.stmt->body);
  out_ = saved_out;
  scope_ = outer;
  return Value::String(captured.Build());
}

Value Interpreter::CallLoop(const Value& value, CallArgs& args) {
  const auto& loop = value.As<LoopData>();
  if (!loop.stmt->recursive) Fail("the loop must have the 'recursive' marker to be called");
  const auto bound = BindArgs("loop", args, {"iterable"}, 1);
  TextBuilder captured;
  TextBuilder* saved_out = out_;
  out_ = &captured;
  ExecFor(*loop.stmt, Iterate(*bound[0]), bound[0]->depth(), loop.outer, loop.depth0 + 1);
  out_ = saved_out;
  return Value::String(captured.Build());
}

Value Interpreter::Eval(const Expr& expr) {
  DepthGuard guard(this, expr.line);
  Value result;
  switch (expr.kind) {
    case ExprKind::kConst:
      result = expr.constant;
      break;
    case ExprKind::kName:
      result = EvalName(expr);
      break;
    case ExprKind::kAnd:
      result = Eval(*expr.children[0]);
      if (Truthy(result)) result = Eval(*expr.children[1]);
      break;
    case ExprKind::kOr:
      result = Eval(*expr.children[0]);
      if (!Truthy(result)) result = Eval(*expr.children[1]);
      break;
    case ExprKind::kCall:
      result = EvalCall(expr, nullptr);
      break;
    case ExprKind::kFilter:
      result = EvalFilter(expr, nullptr);
      break;
    case ExprKind::kBinary: {
      const Value left = Eval(*expr.children[0]);
      result = Arithmetic(expr.binary, left, Eval(*expr.children[1]));
      break;
    }
    default:
      result = EvalOther(expr);
      break;
  }
  guard.Done();
  return result;
}

Value Interpreter::EvalOther(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kNot:
      return Value::Bool(!Truthy(Eval(*expr.children[0])));
    case ExprKind::kNegative:
      return Negate(Eval(*expr.children[0]), true);
    case ExprKind::kPositive:
      return Negate(Eval(*expr.children[0]), false);
    case ExprKind::kConditional: {
      const bool condition = Truthy(Eval(*expr.children[0]));
      const Expr* branch = expr.children[condition ? 1 : 2].get();
      if (branch != nullptr) return Eval(*branch);
      return Value::Undefined(
          "the inline if-expression evaluated to false and no else section was defined");
    }
    case ExprKind::kCompare:
      return EvalCompare(expr);
    case ExprKind::kConcat:
      return EvalConcat(expr);
    case ExprKind::kGetattr:
      return GetAttr(Eval(*expr.children[0]), expr.name);
    case ExprKind::kGetitem:
      return EvalSubscript(expr);
    case ExprKind::kTest: {
      const Value input = Eval(*expr.children[0]);
      CallArgs args = EvalArgs(*expr.call);
      return Value::Bool(expr.test->apply(*this, input, args));
    }
    case ExprKind::kSlice:
      FailUnsupported("a slice inside a tuple");
    default:
      return EvalCollection(expr);
  }
}

Value Interpreter::EvalName(const Expr& expr) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const Value* found = scope->variables.Find(expr.name)) return *found;
  }
  if (IsGlobalFunction(expr.name))
    return Value::Of(Kind::kFunction, std::make_shared<MethodData>(Value(), expr.name));
  return Value::Undefined("'" + expr.name + "' is undefined");
}

Value Interpreter::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.children[0]);
  for (size_t i = 0; i < expr.compares.size(); ++i) {
    const Value right = Eval(*expr.children[i + 1]);
    bool result = false;
    switch (expr.compares[i]) {
      case CompareOp::kEq:
        result = Equals(left, right);
        break;
      case CompareOp::kNe:
        result = !Equals(left, right);
        break;
      case CompareOp::kLt:
        result = Less(left, right);
        break;
      case CompareOp::kGt:
        result = Less(right, left);
        break;
      case CompareOp::kLe:
        result = LessOrEqual(left, right);
        break;
      case CompareOp::kGe:
        result = LessOrEqual(right, left);
        break;
      case CompareOp::kIn:
        result = Contains(right, left);
        break;
      case CompareOp::kNotIn:
        result = !Contains(right, left);
        break;
    }
    if (!result) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Interpreter::EvalConcat(const Expr& expr) {
  TextBuilder out;
  std::vector<Value> parts;
  parts.reserve(expr.children.size());
  for (const auto& child : expr.children) parts.push_back(Eval(*child));
  for (const Value& part : parts) out.Append(Str(part));
  return Value::String(out.Build());
}

Value Interpreter::EvalCollection(const Expr& expr) {
  if (expr.kind == ExprKind::kDict) {
    DictBuilder dict;
    for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
      Value key = Eval(*expr.children[i]);
      dict.Set(std::move(key), Eval(*expr.children[i + 1]));
    }
    return dict.Build();
  }
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const auto& child : expr.children) items.push_back(Eval(*child));
  return expr.kind == ExprKind::kList ? Value::List(std::move(items))
                                      : Value::Tuple(std::move(items));
}

Value Interpreter::EvalSubscript(const Expr& expr) {
  const Value object = Eval(*expr.children[0]);
  const Expr& index = *expr.children[1];
  if (index.kind != ExprKind::kSlice) return GetItem(object, Eval(index));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.children[i]) bounds[i] = Eval(*index.children[i]);
  }
  return Slice(object, bounds[0], bounds[1], bounds[2]);
}

CallArgs Interpreter::EvalArgs(const CallSyntax& call) {
  CallArgs out;
  out.args.reserve(call.args.size());
  for (const auto& arg : call.args) out.args.push_back(Eval(*arg));
  for (const auto& [name, arg] : call.kwargs) out.kwargs.emplace_back(name, Eval(*arg));
  if (call.star_args) {
    for (Value& item : Iterate(Eval(*call.star_args))) out.args.push_back(std::move(item));
  }
  if (call.star_kwargs) {
    const Value mapping = Eval(*call.star_kwargs);
    if (!mapping.Is(Kind::kDict)) Fail("argument after ** must be a mapping");
    for (const auto& [key, value] : mapping.dict().items) {
      const std::string name = AsText(key, "a keyword").bytes();
      for (const auto& [other, unused] : out.kwargs) {
        if (other == name) Fail("multiple values for keyword argument '" + name + "'");
      }
      out.kwargs.emplace_back(name, value);
    }
  }
  return out;
}

Value Interpreter::EvalCall(const Expr& expr, const Value* caller) {
  const Value callee = Eval(*expr.children[0]);
  CallArgs args = EvalArgs(*expr.call);
  if (caller != nullptr) args.kwargs.emplace_back("caller", *caller);
  return Call(callee, args);
}

Value Interpreter::EvalFilter(const Expr& expr, const Value* block_input) {
  Value input;
  if (expr.children[0] == nullptr) {
    input = *block_input;
  } else if (expr.children[0]->kind == ExprKind::kFilter) {
    input = EvalFilter(*expr.children[0], block_input);
  } else {
    input = Eval(*expr.children[0]);
  }
  CallArgs args = EvalArgs(*expr.call);
  line_ = expr.line;
  return expr.filter->apply(*this, input, args);
}

Value Interpreter::Call(const Value& callee, CallArgs& args) {
  DepthGuard guard(this, line_);
  Value result;
  switch (callee.kind()) {
    case Kind::kMacro:
      result = CallMacro(callee, args);
      break;
    case Kind::kMethod:
      result = CallMethod(*this, callee.method(), args);
      break;
    case Kind::kFunction:
      result = CallGlobal(callee.method().name, args);
      break;
    case Kind::kLoop:
      result = CallLoop(callee, args);
      break;
    case Kind::kUndefined:
      Fail(callee.undefined_message());
    default:
      Fail(std::string("'") + TypeName(callee) + "' object is not callable");
  }
  guard.Done();
  return result;
}

}  // namespace pocketlm::chat
