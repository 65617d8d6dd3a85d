// The functions that every template can call, and argument binding.
#include <algorithm>

#include "chat/interpreter.h"

namespace pocketlm::chat {

std::vector<std::optional<Value>> BindArgs(const char* callee, CallArgs& args,
                                           const std::vector<const char*>& names, size_t required) {
  const std::string prefix = std::string(callee) + ": ";
  std::vector<std::optional<Value>> bound(names.size());
  if (args.args.size() > names.size()) {
    Fail(prefix + "takes at most " + std::to_string(names.size()) + " argument(s), got " +
         std::to_string(args.args.size()));
  }
  for (size_t i = 0; i < args.args.size(); ++i) bound[i] = args.args[i];
  for (const auto& [name, value] : args.kwargs) {
    const auto it = std::find_if(names.begin(), names.end(),
                                 [&, &key = name](const char* n) { return key == n; });
    if (it == names.end()) Fail(prefix + "unexpected keyword argument '" + name + "'");
    auto& slot = bound[static_cast<size_t>(it - names.begin())];
    if (slot) Fail(prefix + "multiple values for argument '" + name + "'");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!bound[i]) Fail(prefix + "missing argument '" + names[i] + "'");
  }
  return bound;
}

Value* VariableMap::Find(std::string_view name) {
  if (entries_.size() > kIndexed) {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &entries_[it->second].second;
  }
  for (auto& [key, value] : entries_) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value& VariableMap::operator[](std::string_view name) {
  if (Value* found = Find(name)) return *found;
  entries_.emplace_back(name, Value());
  if (entries_.size() == kIndexed + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  } else if (entries_.size() > kIndexed) {
    index_.emplace(name, entries_.size() - 1);
  }
  return entries_.back().second;
}

void VariableMap::clear() {
  index_.clear();
  entries_.clear();
}

bool IsGlobalFunction(std::string_view name) {
  return name == "range" || name == "dict" || name == "namespace" || name == "raise_exception" ||
         name == "strftime_now";
}

namespace {

constexpr Int kMaxRange = 100000;  // jinja2's sandbox

Value MakeRange(CallArgs& args) {
  if (!args.kwargs.empty()) Fail("range takes no keyword arguments");
  if (args.args.empty() || args.args.size() > 3) Fail("range expects 1 to 3 arguments");
  Int bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < args.args.size(); ++i) bounds[i] = AsIndex(args.args[i], "range argument");
  if (args.args.size() == 1) std::swap(bounds[0], bounds[1]);
  if (bounds[2] == 0) Fail("range argument 3 must not be zero");
  const auto range = std::make_shared<RangeData>(bounds[0], bounds[1], bounds[2]);
  if (range->Length() > kMaxRange) Fail("range too big: more than 100000 items");
  return Value::Of(Kind::kRange, range);
}

// The items of dict(mapping, **kwargs) or dict(pairs, **kwargs).
Value MakeDict(const char* callee, const CallArgs& args) {
  if (args.args.size() > 1) Fail(std::string(callee) + " expects at most 1 argument");
  DictBuilder out;
  if (!args.args.empty()) {
    const Value& source = args.args[0];
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.dict().items) out.Set(key, value);
    } else {
      for (const Value& pair : Iterate(source)) {
        const std::vector<Value> items = Iterate(pair);
        if (items.size() != 2) Fail(std::string(callee) + ": an element has not 2 items");
        out.Set(items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : args.kwargs) out.Set(Value::String(Text(name)), value);
  return out.Build();
}

}  // namespace

Value Interpreter::CallGlobal(const std::string& name, CallArgs& args) {
  if (name == "range") return MakeRange(args);
  if (name == "dict") return MakeDict("dict", args);
  if (name == "namespace") {
    const Value dict = MakeDict("namespace", args);
    const auto space = std::make_shared<NamespaceData>();
    for (const auto& [key, value] : dict.dict().items) {
      const Text attribute = AsText(key, "a namespace attribute");
      if (!attribute.empty() && attribute.bytes()[0] == '_')
        Fail("a namespace attribute cannot begin with '_': '" + attribute.bytes() + "'");
      space->attributes.emplace_back(attribute, value);
    }
    Own(space);
    return Value::Of(Kind::kNamespace, space);
  }
  if (name == "raise_exception") {
    const auto bound = BindArgs("raise_exception", args, {"message"}, 1);
    throw TemplateError{StatusCode::kInvalidArgument, Str(*bound[0]).bytes()};
  }
  const auto bound = BindArgs("strftime_now", args, {"format"}, 1);
  return Value::String(FormatTime(AsText(*bound[0], "format"), Now()));
}

}  // namespace pocketlm::chat
