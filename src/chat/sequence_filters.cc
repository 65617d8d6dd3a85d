// Filters on sequences and mappings.
#include <algorithm>
#include <unordered_set>

#include "chat/filters.h"
#include "chat/python_format.h"

namespace pocketlm::chat {
namespace {

using Bound = std::vector<std::optional<Value>>;

// Looks up "a.b.0" with the rules of subscripts.
class AttributeGetter {
 public:
  AttributeGetter(Interpreter& interpreter, const Value& path) : interpreter_(interpreter) {
    if (path.IsNone()) return;
    if (!path.IsString()) {
      parts_.push_back(path);
      return;
    }
    const std::string& text = path.As<TextData>().bytes;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      Int index = 0;
      const bool number =
          !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      parts_.push_back(number && ParsePythonInt(part, 10, &index) ? Value::Integer(index)
                                                                  : Value::String(Text(part)));
      begin = end + 1;
    }
  }

  Value Get(Value item, const Value* missing = nullptr) const {
    for (const Value& part : parts_) {
      item = interpreter_.GetItem(item, part);
      if (missing != nullptr && item.IsUndefined()) item = *missing;
    }
    return item;
  }

 private:
  Interpreter& interpreter_;
  std::vector<Value> parts_;
};

Value IgnoreCase(const Value& value) {
  return value.IsString() ? Value::String(MapCase(value.text(), CaseStyle::kLower)) : value;
}

bool IsTrue(const std::optional<Value>& value) { return value && Truthy(*value); }
Value OrNone(const std::optional<Value>& value) { return value ? *value : Value::None(); }

Value LengthFilter(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("length", args, {}, 0);
  return Value::Integer(static_cast<Int>(Length(input)));
}

Value First(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("first", args, {}, 0);
  Value item;
  if (input.Is(Kind::kGenerator)) {
    if (input.generator().TakeOne(&item)) return item;
  } else if (IndexSequence(input, Value::Integer(0), &item)) {
    return item;
  } else {
    const std::vector<Value> items = Iterate(input);
    if (!items.empty()) return items[0];
  }
  return Value::Undefined("No first item, sequence was empty.");
}

// reversed(): what Python can walk backwards.
std::vector<Value> Reversed(const Value& input) {
  if (input.Is(Kind::kGenerator) || (!IsIterable(input) || input.Is(Kind::kLoop))) {
    Fail(std::string("'") + TypeName(input) + "' object is not reversible");
  }
  std::vector<Value> items = Iterate(input);
  std::reverse(items.begin(), items.end());
  return items;
}

Value Last(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("last", args, {}, 0);
  Value item;
  if (IndexSequence(input, Value::Integer(-1), &item)) return item;
  const std::vector<Value> items = Reversed(input);
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items[0];
}

Value ReverseFilter(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("reverse", args, {}, 0);
  if (input.IsString())
    return Value::String(Slice(input, Value(), Value(), Value::Integer(-1)).text());
  if (input.Is(Kind::kGenerator)) {
    std::vector<Value> items = Iterate(input);
    std::reverse(items.begin(), items.end());
    return Value::List(std::move(items));
  }
  std::vector<Value> items = Reversed(input);
  return MakeGenerator(input.depth(), [items] { return items; });
}

Value ListFilter(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("list", args, {}, 0);
  return Value::List(Iterate(input), input.literal());
}

Value Items(Interpreter&, const Value& input, CallArgs& args) {
  BindArgs("items", args, {}, 0);
  if (input.IsUndefined()) return MakeGenerator(0, [] { return std::vector<Value>(); });
  const Value dict = input;
  return MakeGenerator(input.depth(), [dict] {
    if (!dict.Is(Kind::kDict)) Fail("items: can only get item pairs from a mapping");
    return Iterate(
        Value::Of(Kind::kDictView, std::make_shared<DictViewData>(dict, ViewOf::kItems)));
  });
}

Value Join(Interpreter& interpreter, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("join", args, {"d", "attribute"}, 0);
  const Text separator = bound[0] ? Str(*bound[0]) : Text();
  const AttributeGetter getter(interpreter, OrNone(bound[1]));
  TextBuilder out;
  bool first = true;
  for (const Value& item : Iterate(input)) {
    if (!first) out.Append(separator);
    first = false;
    out.Append(Str(getter.Get(item)));
    ChargeSteps(1);
  }
  return Value::String(out.Build());
}

// Stable sort by keys, as sorted(items, key=…, reverse=…).
std::vector<Value> SortBy(std::vector<Value> items, bool reverse,
                          const std::function<Value(const Value&)>& key) {
  std::vector<std::pair<Value, Value>> keyed;
  keyed.reserve(items.size());
  for (Value& item : items) {
    Value k = key(item);
    keyed.emplace_back(std::move(k), std::move(item));
  }
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return Less(a.first, b.first); });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [k, item] : keyed) out.push_back(std::move(item));
  return out;
}

Value Sort(Interpreter& interpreter, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("sort", args, {"reverse", "case_sensitive", "attribute"}, 0);
  const bool case_sensitive = IsTrue(bound[1]);
  std::vector<AttributeGetter> getters;
  if (bound[2] && bound[2]->IsString()) {
    const std::string paths = bound[2]->text().bytes();
    for (size_t begin = 0; begin <= paths.size();) {
      const size_t end = std::min(paths.find(',', begin), paths.size());
      getters.emplace_back(interpreter, Value::String(Text(paths.substr(begin, end - begin))));
      begin = end + 1;
    }
  } else {
    getters.emplace_back(interpreter, OrNone(bound[2]));
  }
  return Value::List(
      SortBy(Iterate(input), IsTrue(bound[0]),
             [&](const Value& item) {
               std::vector<Value> keys;
               for (const auto& getter : getters)
                 keys.push_back(case_sensitive ? getter.Get(item) : IgnoreCase(getter.Get(item)));
               return Value::List(std::move(keys));
             }),
      input.literal());
}

Value DictSort(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("dictsort", args, {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = bound[1] ? AsText(*bound[1], "by").bytes() : "key";
  if (by != "key" && by != "value")
    Fail("dictsort: you can only sort by either \"key\" or \"value\"");
  if (input.IsUndefined()) Fail(input.undefined_message());
  if (!input.Is(Kind::kDict)) Fail("dictsort: a mapping is required");
  const bool case_sensitive = IsTrue(bound[0]);
  const size_t part = by == "key" ? 0 : 1;
  std::vector<Value> items =
      Iterate(Value::Of(Kind::kDictView, std::make_shared<DictViewData>(input, ViewOf::kItems)));
  return Value::List(SortBy(std::move(items), IsTrue(bound[2]),
                            [&](const Value& item) {
                              const Value& key = item.list().items[part];
                              return case_sensitive ? key : IgnoreCase(key);
                            }),
                     input.literal());
}

Value Unique(Interpreter& interpreter, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("unique", args, {"case_sensitive", "attribute"}, 0);
  const bool case_sensitive = IsTrue(bound[0]);
  const AttributeGetter getter(interpreter, OrNone(bound[1]));
  return MakeGenerator(input.depth(), [=] {
    std::vector<Value> out;
    std::unordered_set<std::string> seen_text;
    std::vector<Value> seen;
    for (const Value& item : Iterate(input)) {
      const Value key = case_sensitive ? getter.Get(item) : IgnoreCase(getter.Get(item));
      CheckHashable(key);
      bool fresh = true;
      if (key.IsString()) {
        fresh = seen_text.insert(key.text().bytes()).second;
      } else {
        fresh = std::none_of(seen.begin(), seen.end(),
                             [&](const Value& other) { return Equals(other, key); });
        if (fresh) seen.push_back(key);
      }
      if (fresh) out.push_back(item);
      ChargeSteps(1);
    }
    return out;
  });
}

Value MinOrMax(Interpreter& interpreter, const Value& input, CallArgs& args, bool max) {
  const Bound bound = BindArgs(max ? "max" : "min", args, {"case_sensitive", "attribute"}, 0);
  const bool case_sensitive = IsTrue(bound[0]);
  const AttributeGetter getter(interpreter, OrNone(bound[1]));
  const std::vector<Value> items = Iterate(input);
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    return case_sensitive ? getter.Get(item) : IgnoreCase(getter.Get(item));
  };
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    const Value key = key_of(items[i]);
    if (max ? Less(best_key, key) : Less(key, best_key)) {
      best = i;
      best_key = key;
    }
  }
  return items[best];
}

Value Min(Interpreter& i, const Value& input, CallArgs& args) {
  return MinOrMax(i, input, args, false);
}
Value Max(Interpreter& i, const Value& input, CallArgs& args) {
  return MinOrMax(i, input, args, true);
}

Value Sum(Interpreter& interpreter, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("sum", args, {"attribute", "start"}, 0);
  const AttributeGetter getter(interpreter, OrNone(bound[0]));
  Value total = bound[1] ? *bound[1] : Value::Integer(0);
  if (total.IsString()) Fail("sum: cannot sum strings");
  for (const Value& item : Iterate(input)) {
    total = Arithmetic(BinaryOp::kAdd, total, getter.Get(item));
    ChargeSteps(1);
  }
  return total;
}

Value Batch(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("batch", args, {"linecount", "fill_with"}, 1);
  const Value count = *bound[0];
  const Value fill = OrNone(bound[1]);
  return MakeGenerator(input.depth() + 1, [=] {
    std::vector<Value> out;
    std::vector<Value> row;
    for (const Value& item : Iterate(input)) {
      if (Equals(Value::Integer(static_cast<Int>(row.size())), count))
        out.push_back(Value::List(std::exchange(row, {})));
      row.push_back(item);
    }
    if (row.empty()) return out;
    const int64_t width = fill.IsNone() ? 0 : AsIndex(count, "linecount");
    if (width > 100000) FailLimit("batch: row is too long");
    while (static_cast<int64_t>(row.size()) < width) row.push_back(fill);
    out.push_back(Value::List(std::move(row)));
    return out;
  });
}

Value SliceFilter(Interpreter&, const Value& input, CallArgs& args) {
  const Bound bound = BindArgs("slice", args, {"slices", "fill_with"}, 1);
  const Value slices_value = *bound[0];
  const Value fill = OrNone(bound[1]);
  return MakeGenerator(input.depth() + 1, [=] {
    const std::vector<Value> items = Iterate(input);
    const int64_t slices = AsIndex(slices_value, "slices");
    if (slices == 0) Fail("integer division or modulo by zero");
    if (slices > 100000) FailLimit("slice: too many slices");
    std::vector<Value> out;
    const auto length = static_cast<int64_t>(items.size());
    int64_t begin = 0;
    for (int64_t i = 0; i < slices; ++i) {
      const bool longer = i < length % slices;
      const int64_t end = begin + length / slices + (longer ? 1 : 0);
      std::vector<Value> row(items.begin() + begin, items.begin() + end);
      if (!fill.IsNone() && !longer) row.push_back(fill);
      out.push_back(Value::List(std::move(row)));
      begin = end;
    }
    return out;
  });
}

Value Map(Interpreter& interpreter, const Value& input, CallArgs& args) {
  Interpreter* const self = &interpreter;
  if (args.args.empty()) {
    const Bound bound = BindArgs("map", args, {"attribute", "default"}, 1);
    const AttributeGetter getter(interpreter, *bound[0]);
    const std::optional<Value> missing = bound[1] && !bound[1]->IsNone() ? bound[1] : std::nullopt;
    return MakeGenerator(input.depth(), [=] {
      std::vector<Value> out;
      if (!Truthy(input)) return out;
      for (const Value& item : Iterate(input)) {
        out.push_back(getter.Get(item, missing ? &*missing : nullptr));
      }
      return out;
    });
  }
  const CallArgs call = args;
  return MakeGenerator(input.depth(), [=] {
    if (!Truthy(input)) return std::vector<Value>();
    const std::string name = AsText(call.args[0], "the filter of map").bytes();
    const Filter* filter = FindFilter(name);
    if (filter == nullptr) FailUnsupported("unknown filter '" + name + "'");
    std::vector<Value> out;
    for (const Value& item : Iterate(input)) {
      CallArgs rest{{call.args.begin() + 1, call.args.end()}, call.kwargs};
      out.push_back(filter->apply(*self, item, rest));
      ChargeSteps(1);
    }
    return out;
  });
}

Value SelectBy(Interpreter& interpreter, const Value& input, CallArgs& args, bool keep,
               bool by_attribute) {
  Interpreter* const self = &interpreter;
  const CallArgs call = args;
  return MakeGenerator(input.depth(), [=] {
    std::vector<Value> out;
    if (!Truthy(input)) return out;
    const size_t first = by_attribute ? 1 : 0;
    if (call.args.size() < first) Fail("missing parameter for attribute name");
    const AttributeGetter getter(*self, by_attribute ? call.args[0] : Value::None());
    const Test* test = nullptr;
    if (call.args.size() > first) {
      const std::string name = AsText(call.args[first], "the test").bytes();
      test = FindTest(name);
      if (test == nullptr) FailUnsupported("unknown test '" + name + "'");
    }
    for (const Value& item : Iterate(input)) {
      const Value value = getter.Get(item);
      bool result = false;
      if (test == nullptr) {
        result = Truthy(value);
      } else {
        CallArgs rest{{call.args.begin() + static_cast<ptrdiff_t>(first) + 1, call.args.end()},
                      call.kwargs};
        result = test->apply(*self, value, rest);
      }
      if (result == keep) out.push_back(item);
      ChargeSteps(1);
    }
    return out;
  });
}

Value Select(Interpreter& i, const Value& input, CallArgs& args) {
  return SelectBy(i, input, args, true, false);
}
Value Reject(Interpreter& i, const Value& input, CallArgs& args) {
  return SelectBy(i, input, args, false, false);
}
Value SelectAttr(Interpreter& i, const Value& input, CallArgs& args) {
  return SelectBy(i, input, args, true, true);
}
Value RejectAttr(Interpreter& i, const Value& input, CallArgs& args) {
  return SelectBy(i, input, args, false, true);
}

constexpr Filter kFilters[] = {
    {"batch", Batch},
    {"count", LengthFilter},
    {"dictsort", DictSort},
    {"first", First},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", LengthFilter},
    {"list", ListFilter},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Reject},
    {"rejectattr", RejectAttr},
    {"reverse", ReverseFilter},
    {"select", Select},
    {"selectattr", SelectAttr},
    {"slice", SliceFilter},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

const Filter* FindSequenceFilter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const Filter& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it;
}

}  // namespace pocketlm::chat
