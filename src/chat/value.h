// Values of a running template. Internal to src/chat; see text.h for ownership and errors.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/text.h"

namespace pocketlm::chat {

using Int = __int128;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kDictView,
  kGenerator,
  kMacro,
  kMethod,
  kFunction,
  kLoop,
};

class ListData;
class DictData;
struct RangeData;
struct NamespaceData;
struct DictViewData;
struct GeneratorData;
struct MethodData;
struct UndefinedData;

// A Python object: cheap to copy, containers are shared and never change (only namespaces and generators do).
class Value {
 public:
  Value() = default;  // None
  static Value None(bool literal = false) { return Scalar(Kind::kNone, 0, literal); }
  static Value Bool(bool b, bool literal = false) {
    return Scalar(Kind::kBool, b ? 1 : 0, literal);
  }
  static Value Integer(Int i, bool literal = false) { return Scalar(Kind::kInt, i, literal); }
  static Value Float(double d, bool literal = false);
  static Value String(Text text);
  static Value String(const char* trusted) { return String(Text(std::string(trusted))); }
  // `message`: what an operation on the value reports, "'x' is undefined".
  static Value Undefined(std::string message);
  static Value List(std::vector<Value> items, bool literal = false);
  static Value Tuple(std::vector<Value> items, bool literal = false);
  static Value Of(Kind kind, std::shared_ptr<const Object> object);

  // Data from outside: every string, number and container in it is literal.
  static Value FromJson(const nlohmann::ordered_json& json, int depth = 0);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsIntLike() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool IsNumber() const { return IsIntLike() || kind_ == Kind::kFloat; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Each requires the kind.
  bool bool_value() const { return int_ != 0; }
  Int int_value() const { return int_; }
  double float_value() const { return float_; }
  double AsDouble() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  Text text() const { return Text(std::static_pointer_cast<const TextData>(object_)); }
  const ListData& list() const;  // list or tuple
  const DictData& dict() const;
  const RangeData& range() const;
  NamespaceData& name_space() const;
  const DictViewData& view() const;
  GeneratorData& generator() const;
  const MethodData& method() const;
  const std::string& undefined_message() const;

  const std::shared_ptr<const Object>& object() const { return object_; }
  template <typename T>
  const T& As() const {
    return static_cast<const T&>(*object_);
  }
  int depth() const { return object_ ? object_->depth() : 0; }
  Value WithLiteral(bool literal) const {
    Value copy = *this;
    copy.literal_ = literal;
    return copy;
  }
  // Scalars and containers: came from data. Strings carry this per byte instead.
  bool literal() const { return literal_; }

 private:
  static Value Scalar(Kind kind, Int i, bool literal);

  Kind kind_ = Kind::kNone;
  bool literal_ = false;
  union {
    Int int_ = 0;
    double float_;
  };
  std::shared_ptr<const Object> object_;
};

class ListData final : public Object {
 public:
  explicit ListData(std::vector<Value> items_in);
  const std::vector<Value> items;
};

using DictItems = std::vector<std::pair<Value, Value>>;

// Insertion-ordered, keys equal as in Python (1 == 1.0 == True).
class DictData final : public Object {
 public:
  explicit DictData(DictItems items_in);
  const DictItems items;                      // keys are distinct
  const Value* Find(const Value& key) const;  // throws for an unhashable key
  const Value* Find(std::string_view key) const;

 private:
  std::unordered_map<std::string_view, size_t> by_text_;  // views into the keys in `items`
  bool only_text_keys_ = true;
};

// Collects dict items; a repeated key replaces the value and keeps the place.
class DictBuilder {
 public:
  void Set(Value key, Value value);
  Value Build(bool literal = false);

 private:
  DictItems items_;
  std::unordered_map<std::string, size_t> by_text_;
};

struct RangeData final : Object {
  RangeData(Int start_in, Int stop_in, Int step_in);
  const Int start, stop, step;
  Int Length() const;
};

struct NamespaceData final : Object {
  NamespaceData() : Object(256, 1) {}
  // A namespace is the one container that a template changes; the interpreter clears it at the end.
  std::vector<std::pair<Text, Value>> attributes;
  Value* Find(std::string_view name);
  void Set(const Text& name, Value value);
};

enum class ViewOf { kKeys, kValues, kItems };

struct DictViewData final : Object {
  DictViewData(Value dict_in, ViewOf of_in)
      : Object(0, dict_in.depth() + 1), dict(std::move(dict_in)), of(of_in) {}
  const Value dict;
  const ViewOf of;
};

// An iterator: made once on first use, consumed once.
struct GeneratorData final : Object {
  GeneratorData(int source_depth, std::function<std::vector<Value>()> make_in)
      : Object(0, source_depth + 1), make(std::move(make_in)) {}
  // The items that are left; the generator is empty afterwards.
  std::vector<Value> TakeAll();
  bool TakeOne(Value* out);
  std::function<std::vector<Value>()> make;

 private:
  void Fill();
  std::vector<Value> items_;
  size_t next_ = 0;
};

struct MethodData final : Object {
  MethodData(Value self_in, std::string name_in)
      : Object(0, self_in.depth() + 1), self(std::move(self_in)), name(std::move(name_in)) {}
  const Value self;
  const std::string name;
};

struct UndefinedData final : Object {
  explicit UndefinedData(std::string message_in)
      : Object(message_in.size(), 0), message(std::move(message_in)) {}
  const std::string message;
};

Value MakeGenerator(int source_depth, std::function<std::vector<Value>()> make);

// Python's name of the type, for messages: 'str', 'int', …
const char* TypeName(const Value& value);

}  // namespace pocketlm::chat
