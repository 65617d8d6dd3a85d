// The syntax tree of a template. Immutable after parsing; freed by recursion, so its depth is bounded
// by kMaxTemplateDepth (the parser enforces it).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/value_ops.h"

namespace pocketlm::chat {

struct Filter;
struct Test;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kConst,
  kName,
  kTuple,
  kList,
  kDict,
  kGetattr,
  kGetitem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kConditional,
  kCompare,
  kBinary,
  kConcat,
};

enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallSyntax {
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> kwargs;
  ExprPtr star_args;
  ExprPtr star_kwargs;
};

// Children by kind: kGetattr, kNot, …: [operand]; kGetitem: [object, index]; kSlice: [start, stop, step],
// each may be null; kConditional: [condition, then, else or null]; kCompare: [first, others…];
// kDict: [key, value, key, …]; kFilter and kTest: [input or null]; kCall: [callee].
struct Expr {
  ExprKind kind;
  int line;
  int depth = 1;
  std::vector<ExprPtr> children;
  Value constant;
  std::string name;  // variable, attribute, filter, test
  BinaryOp binary = BinaryOp::kAdd;
  std::vector<CompareOp> compares;
  std::unique_ptr<CallSyntax> call;
  const Filter* filter = nullptr;
  const Test* test = nullptr;
};

enum class StmtKind {
  kText,
  kOutput,
  kSet,
  kSetBlock,
  kIf,
  kFor,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue,
};

// Names that are undefined when a block begins, and the value that says so (scope_analysis.h).
using HiddenNames = std::vector<std::pair<std::string, Value>>;

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

// Where a value goes: a name, a namespace attribute, or a tuple of targets.
struct Target {
  int line = 0;
  std::string name;
  std::string attribute;  // not empty: name.attribute
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct MacroSignature {
  std::string name;  // empty for a caller
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // of the last params
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

struct Stmt {
  StmtKind kind;
  int line;
  Value text;  // kText
  // kOutput, kSet, kFor (iterable), kCallBlock (call), filters of kSetBlock and kFilterBlock
  ExprPtr expr;
  Target target;                                    // kSet, kSetBlock, kFor
  ExprPtr condition;                                // kFor
  bool recursive = false;                           // kFor
  std::vector<std::pair<ExprPtr, Block>> branches;  // kIf
  std::vector<std::pair<Target, ExprPtr>> with;     // kWith
  Block body;
  Block else_body;                        // kIf, kFor
  std::unique_ptr<MacroSignature> macro;  // kMacro, kCallBlock
  HiddenNames hidden;                     // of `body`
  HiddenNames else_hidden;                // of `else_body`
};

struct TemplateTree {
  Block body;
  HiddenNames hidden;
};

}  // namespace pocketlm::chat
