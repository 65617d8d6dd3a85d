#include "chat/value.h"

#include <algorithm>

#include "chat/value_ops.h"

namespace pocketlm::chat {
namespace {

int MaxDepth(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

int MaxDepth(const DictItems& items) {
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  return depth;
}

}  // namespace

Value Value::Scalar(Kind kind, Int i, bool literal) {
  Value value;
  value.kind_ = kind;
  value.int_ = i;
  value.literal_ = literal;
  return value;
}

Value Value::Float(double d, bool literal) {
  Value value;
  value.kind_ = Kind::kFloat;
  value.float_ = d;
  value.literal_ = literal;
  return value;
}

Value Value::Of(Kind kind, std::shared_ptr<const Object> object) {
  Value value;
  value.kind_ = kind;
  value.object_ = std::move(object);
  return value;
}

Value Value::String(Text text) { return Of(Kind::kString, text.data()); }

Value Value::Undefined(std::string message) {
  return Of(Kind::kUndefined, std::make_shared<UndefinedData>(std::move(message)));
}

Value Value::List(std::vector<Value> items, bool literal) {
  Value value = Of(Kind::kList, std::make_shared<ListData>(std::move(items)));
  value.literal_ = literal;
  return value;
}

Value Value::Tuple(std::vector<Value> items, bool literal) {
  Value value = Of(Kind::kTuple, std::make_shared<ListData>(std::move(items)));
  value.literal_ = literal;
  return value;
}

Value Value::FromJson(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxValueDepth) FailLimit("data is nested too deeply");
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Bool(json.get<bool>(), true);
    case nlohmann::ordered_json::value_t::number_integer:
      return Integer(json.get<int64_t>(), true);
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Integer(json.get<uint64_t>(), true);
    case nlohmann::ordered_json::value_t::number_float:
      return Float(json.get<double>(), true);
    case nlohmann::ordered_json::value_t::string:
      return String(Text::Literal(json.get_ref<const std::string&>()));
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(FromJson(item, depth + 1));
      return List(std::move(items), true);
    }
    case nlohmann::ordered_json::value_t::object: {
      DictBuilder builder;
      for (const auto& [key, item] : json.items()) {
        builder.Set(String(Text::Literal(key)), FromJson(item, depth + 1));
      }
      return builder.Build(true);
    }
    default:
      return None(true);
  }
}

const ListData& Value::list() const { return As<ListData>(); }
const DictData& Value::dict() const { return As<DictData>(); }
const RangeData& Value::range() const { return As<RangeData>(); }
const DictViewData& Value::view() const { return As<DictViewData>(); }
const MethodData& Value::method() const { return As<MethodData>(); }
const std::string& Value::undefined_message() const { return As<UndefinedData>().message; }
NamespaceData& Value::name_space() const { return const_cast<NamespaceData&>(As<NamespaceData>()); }
GeneratorData& Value::generator() const { return const_cast<GeneratorData&>(As<GeneratorData>()); }

ListData::ListData(std::vector<Value> items_in)
    : Object(items_in.capacity() * sizeof(Value), MaxDepth(items_in) + 1),
      items(std::move(items_in)) {
  ChargeSteps(items.size() / 8);
}

DictData::DictData(DictItems items_in)
    : Object(items_in.size() * (2 * sizeof(Value) + 64), MaxDepth(items_in) + 1),
      items(std::move(items_in)) {
  ChargeSteps(items.size() / 4);
  for (size_t i = 0; i < items.size(); ++i) {
    const Value& key = items[i].first;
    if (key.IsString()) {
      by_text_.emplace(key.As<TextData>().bytes, i);
    } else {
      only_text_keys_ = false;
    }
  }
}

const Value* DictData::Find(std::string_view key) const {
  const auto it = by_text_.find(key);
  return it == by_text_.end() ? nullptr : &items[it->second].second;
}

const Value* DictData::Find(const Value& key) const {
  CheckHashable(key);
  if (key.IsString()) return Find(key.As<TextData>().bytes);
  if (only_text_keys_) return nullptr;
  ChargeSteps(items.size());
  for (const auto& [k, v] : items) {
    if (Equals(k, key)) return &v;
  }
  return nullptr;
}

void DictBuilder::Set(Value key, Value value) {
  CheckHashable(key);
  if (key.IsString()) {
    const auto [it, fresh] = by_text_.emplace(key.As<TextData>().bytes, items_.size());
    if (!fresh) {
      items_[it->second].second = std::move(value);
      return;
    }
  } else {
    ChargeSteps(items_.size());
    for (auto& [k, v] : items_) {
      if (!k.IsString() && Equals(k, key)) {
        v = std::move(value);
        return;
      }
    }
  }
  items_.emplace_back(std::move(key), std::move(value));
}

Value DictBuilder::Build(bool literal) {
  Value value = Value::Of(Kind::kDict, std::make_shared<DictData>(std::move(items_)));
  return value.WithLiteral(literal);
}

RangeData::RangeData(Int start_in, Int stop_in, Int step_in)
    : Object(0, 0), start(start_in), stop(stop_in), step(step_in) {}

Int RangeData::Length() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value* NamespaceData::Find(std::string_view name) {
  ChargeSteps(attributes.size() / 8);
  for (auto& [key, value] : attributes) {
    if (key.view() == name) return &value;
  }
  return nullptr;
}

void NamespaceData::Set(const Text& name, Value value) {
  if (Value* slot = Find(name.view())) {
    *slot = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

void GeneratorData::Fill() {
  if (!make) return;
  auto fn = std::move(make);
  make = nullptr;
  items_ = fn();
}

std::vector<Value> GeneratorData::TakeAll() {
  Fill();
  std::vector<Value> rest(items_.begin() + static_cast<ptrdiff_t>(next_), items_.end());
  items_.clear();
  next_ = 0;
  return rest;
}

bool GeneratorData::TakeOne(Value* out) {
  Fill();
  if (next_ >= items_.size()) return false;
  *out = items_[next_++];
  return true;
}

Value MakeGenerator(int source_depth, std::function<std::vector<Value>()> make) {
  return Value::Of(Kind::kGenerator,
                   std::make_shared<GeneratorData>(source_depth, std::move(make)));
}

const char* TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kRange:
      return "range";
    case Kind::kDictView:
      return "dict view";
    case Kind::kGenerator:
      return "generator";
    case Kind::kMacro:
      return "macro";
    case Kind::kMethod:
      return "method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "loop";
  }
  return "?";
}

}  // namespace pocketlm::chat
