#include "chat/scope_analysis.h"

#include <unordered_set>

namespace pocketlm::chat {
namespace {

// What one block that has variables of its own knows.
class Frame {
 public:
  explicit Frame(const Frame* parent) : parent_(parent) {}

  void Load(const std::string& name) {
    if (!Knows(name)) known_.insert(name);
  }
  void Parameter(const std::string& name) { known_.insert(name); }
  void Store(const std::string& name, bool in_branch) {
    if (!known_.insert(name).second) return;
    const bool known_outside = parent_ != nullptr && parent_->Knows(name);
    if (!known_outside && !in_branch)
      hidden_.emplace_back(name, Value::Undefined("'" + name + "' is undefined"));
  }
  HiddenNames TakeHidden() { return std::move(hidden_); }

 private:
  bool Knows(const std::string& name) const {
    for (const Frame* frame = this; frame != nullptr; frame = frame->parent_) {
      if (frame->known_.count(name) != 0) return true;
    }
    return false;
  }

  const Frame* parent_;
  std::unordered_set<std::string> known_;
  HiddenNames hidden_;
};

void Load(const Expr& expr, Frame* frame);

void Load(const CallSyntax& call, Frame* frame) {
  for (const auto& arg : call.args) Load(*arg, frame);
  for (const auto& [name, arg] : call.kwargs) Load(*arg, frame);
  if (call.star_args) Load(*call.star_args, frame);
  if (call.star_kwargs) Load(*call.star_kwargs, frame);
}

void Load(const Expr& expr, Frame* frame) {
  if (expr.kind == ExprKind::kName) frame->Load(expr.name);
  for (const auto& child : expr.children) {
    if (child) Load(*child, frame);
  }
  if (expr.call) Load(*expr.call, frame);
}

void Store(const Target& target, Frame* frame, bool in_branch, bool parameter) {
  for (const Target& part : target.parts) Store(part, frame, in_branch, parameter);
  if (target.is_tuple) return;
  if (!target.attribute.empty()) {
    frame->Load(target.name);
  } else if (parameter) {
    frame->Parameter(target.name);
  } else {
    frame->Store(target.name, in_branch);
  }
}

// The events of a block in its own frame; blocks with frames of their own are not entered.
void VisitOwn(const Block& body, Frame* frame, bool in_branch) {
  for (const auto& stmt : body) {
    switch (stmt->kind) {
      case StmtKind::kOutput:
      case StmtKind::kFor:
      case StmtKind::kFilterBlock:
      case StmtKind::kCallBlock:
        Load(*stmt->expr, frame);
        break;
      case StmtKind::kSet:
        Load(*stmt->expr, frame);
        Store(stmt->target, frame, in_branch, false);
        break;
      case StmtKind::kSetBlock:
        Store(stmt->target, frame, in_branch, false);
        break;
      case StmtKind::kMacro:
        frame->Store(stmt->macro->name, in_branch);
        break;
      case StmtKind::kWith:
        for (const auto& [target, value] : stmt->with) Load(*value, frame);
        break;
      case StmtKind::kIf:
        for (const auto& [condition, branch] : stmt->branches) {
          Load(*condition, frame);
          VisitOwn(branch, frame, true);
        }
        VisitOwn(stmt->else_body, frame, true);
        break;
      default:
        break;
    }
  }
}

void VisitNested(const Block& body, const Frame& frame);

HiddenNames Analyze(const Block& body, Frame* frame) {
  VisitOwn(body, frame, false);
  VisitNested(body, *frame);
  return frame->TakeHidden();
}

void EnterStatement(Stmt* stmt, const Frame& outer) {
  Frame frame(&outer);
  switch (stmt->kind) {
    case StmtKind::kFor: {
      Store(stmt->target, &frame, false, true);
      frame.Parameter("loop");
      stmt->hidden = Analyze(stmt->body, &frame);
      Frame otherwise(&outer);
      stmt->else_hidden = Analyze(stmt->else_body, &otherwise);
      return;
    }
    case StmtKind::kMacro:
    case StmtKind::kCallBlock:
      for (const auto& param : stmt->macro->params) frame.Parameter(param);
      if (stmt->macro->uses_caller) frame.Parameter("caller");
      if (stmt->macro->uses_kwargs) frame.Parameter("kwargs");
      if (stmt->macro->uses_varargs) frame.Parameter("varargs");
      for (const auto& value : stmt->macro->defaults) Load(*value, &frame);
      break;
    case StmtKind::kWith:
      for (const auto& [target, value] : stmt->with) Store(target, &frame, false, true);
      break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock:
    case StmtKind::kScope:
      break;
    default:
      return;
  }
  stmt->hidden = Analyze(stmt->body, &frame);
}

void VisitNested(const Block& body, const Frame& frame) {
  for (const auto& stmt : body) {
    if (stmt->kind == StmtKind::kIf) {
      for (const auto& [condition, branch] : stmt->branches) VisitNested(branch, frame);
      VisitNested(stmt->else_body, frame);
    } else {
      EnterStatement(stmt.get(), frame);
    }
  }
}

}  // namespace

HiddenNames AnalyzeScopes(const Block& body) {
  Frame root(nullptr);
  return Analyze(body, &root);
}

}  // namespace pocketlm::chat
