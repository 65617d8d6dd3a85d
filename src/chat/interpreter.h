// Runs a parsed template. One Interpreter renders once, on one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/ast.h"
#include "chat/chat_template.h"

namespace pocketlm::chat {

class Interpreter;

struct CallArgs {
  std::vector<Value> args;
  std::vector<std::pair<std::string, Value>> kwargs;
};

struct Filter {
  const char* name;
  Value (*apply)(Interpreter& interpreter, const Value& input, CallArgs& args);
};

struct Test {
  const char* name;
  bool (*apply)(Interpreter& interpreter, const Value& input, CallArgs& args);
};

// nullptr if there is none of that name.
const Filter* FindFilter(std::string_view name);
const Test* FindTest(std::string_view name);
bool IsGlobalFunction(std::string_view name);
// Whether some type has a method of that name, those the sandbox forbids included.
bool IsMethodName(std::string_view name);

// Assigns positional and keyword arguments to `names`; throws for too many, unknown, repeated or missing
// ones (the first `required` must be there). Absent ones are nullopt.
std::vector<std::optional<Value>> BindArgs(const char* callee, CallArgs& args,
                                           const std::vector<const char*>& names, size_t required);

// Names to values; made for the few names of one block, and linear only in those.
class VariableMap {
 public:
  Value* Find(std::string_view name);
  // The key must outlive the map.
  Value& operator[](std::string_view name);
  void clear();

 private:
  static constexpr size_t kIndexed = 12;
  std::vector<std::pair<std::string_view, Value>> entries_;
  std::unordered_map<std::string_view, size_t> index_;  // used above kIndexed entries
};

// Variables of one block, looked up through its parents. Keys live in the syntax tree or the input.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent_in) : parent(std::move(parent_in)) {}
  VariableMap variables;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

struct MacroData final : Object {
  MacroData(const Stmt* stmt_in, ScopePtr closure_in)
      : Object(256, 1), stmt(stmt_in), closure(std::move(closure_in)) {}
  const Stmt* stmt;
  const ScopePtr closure;
};

// The state behind the variable `loop`.
class LoopData final : public Object {
 public:
  // `keep` decides which items the loop sees; null keeps all.
  LoopData(std::vector<Value> source, int source_depth, std::function<bool(const Value&)> keep,
           const Stmt* stmt_in, ScopePtr outer_in, int depth0_in);
  // Moves to the next item; false at the end.
  bool Advance();
  const Value& current() const { return *current_; }
  size_t Length();
  bool IsLast() { return !Peek(); }
  Value Attribute(std::string_view name, bool* found);

  int64_t index0 = -1;
  std::optional<Value> last_changed;
  const Stmt* const stmt;
  const ScopePtr outer;
  const int depth0;

 private:
  bool Pull(Value* out);
  bool Peek();

  std::vector<Value> source_;
  size_t next_ = 0;
  std::function<bool(const Value&)> keep_;
  std::optional<Value> after_, current_, before_;
  std::optional<size_t> length_;
};

class Interpreter {
 public:
  Interpreter(const RenderInput& input, Meter* meter);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  RenderedPrompt Run(const TemplateTree& tree);
  int line() const { return line_; }

  Value GetAttr(const Value& object, const std::string& name);
  Value GetItem(const Value& object, const Value& key);
  Value Call(const Value& callee, CallArgs& args);
  // Seconds since 1970 that strftime_now shows.
  int64_t Now() const;
  // Registers what could be part of a reference cycle, to be cut when the rendering ends.
  void Own(std::shared_ptr<NamespaceData> space) { namespaces_.push_back(std::move(space)); }
  void Own(std::shared_ptr<const Object> loop) { loops_.push_back(std::move(loop)); }

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class DepthGuard;

  Value Eval(const Expr& expr);
  Value EvalOther(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalCall(const Expr& expr, const Value* caller);
  Value EvalFilter(const Expr& expr, const Value* block_input);
  Value EvalSubscript(const Expr& expr);
  Value EvalCollection(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  CallArgs EvalArgs(const CallSyntax& call);

  Flow Exec(const Block& block);
  Flow ExecStmt(const Stmt& stmt);
  Flow ExecIf(const Stmt& stmt);
  Flow ExecFor(const Stmt& stmt, std::vector<Value> items, int items_depth, const ScopePtr& outer,
               int depth0);
  Flow ExecWith(const Stmt& stmt);
  static void Hide(Scope* scope, const HiddenNames& hidden);
  void ExecCallBlock(const Stmt& stmt);
  static ScopePtr NewScope(const ScopePtr& parent, const HiddenNames& hidden);
  Flow ExecInScope(const Block& block, const HiddenNames& hidden);
  // Runs a block in a scope of its own and returns what it writes.
  Text Capture(const Stmt& stmt);
  void Write(const Text& text);
  void Assign(const ScopePtr& scope, const Target& target, const Value& value);

  Value MakeMacro(const Stmt& stmt);
  Value CallMacro(const Value& macro, CallArgs& args);
  Value CallLoop(const Value& loop, CallArgs& args);
  Value CallGlobal(const std::string& name, CallArgs& args);

  const RenderInput& input_;
  Meter* meter_;
  int line_ = 0;
  int depth_ = 0;
  ScopePtr scope_;
  TextBuilder* out_ = nullptr;
  std::vector<std::shared_ptr<NamespaceData>> namespaces_;
  std::vector<std::shared_ptr<const Object>> loops_;
  std::vector<ScopePtr> closures_;
};

// methods.cc
Value CallMethod(Interpreter& interpreter, const MethodData& method, CallArgs& args);
// Attributes of built-in types; nullopt if Python has none of that name.
std::optional<Value> BuiltinAttribute(const Value& object, const std::string& name);
// str_methods.cc
enum class CaseStyle { kUpper, kLower, kCapitalize, kTitle, kSwap };
Value CallStrMethod(const Text& self, const std::string& name, CallArgs& args);
bool IsStrMethod(std::string_view name);
Text StripText(const Text& text, const std::optional<Value>& chars, bool left, bool right);
Text MapCase(const Text& text, CaseStyle style);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
Text ReplaceText(const Text& text, const Text& from, const Text& to, int64_t count);
// strftime.cc
Text FormatTime(const Text& format, int64_t seconds);

}  // namespace pocketlm::chat
