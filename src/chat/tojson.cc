// json.dumps as chat templates see it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "chat/python_format.h"
#include "chat/value_ops.h"

namespace pocketlm::chat {
namespace {

class JsonWriter {
 public:
  JsonWriter(const JsonOptions& options, bool literal) : options_(options), literal_(literal) {}
  void Write(const Value& value);
  Text Build() { return out_.Build(); }

 private:
  void Put(std::string_view bytes) { out_.AppendBytes(bytes, literal_); }
  void WriteString(const Text& text);
  void WriteEscaped(std::string_view bytes);
  void WriteFloat(double value);
  void WriteKey(const Value& key);
  void WriteList(const std::vector<Value>& items);
  void WriteDict(const DictItems& items);
  void NewLine();

  const JsonOptions& options_;
  bool literal_;
  size_t level_ = 0;
  TextBuilder out_;
};

void JsonWriter::NewLine() {
  if (!options_.pretty) return;
  Put("\n");
  for (size_t i = 0; i < level_; ++i) Put(options_.indent);
}

void JsonWriter::WriteEscaped(std::string_view bytes) {
  const DecodedCodepoint c = DecodeUtf8(bytes, 0);
  char buffer[16];
  switch (c.codepoint) {
    case '"':
      return Put("\\\"");
    case '\\':
      return Put("\\\\");
    case '\n':
      return Put("\\n");
    case '\r':
      return Put("\\r");
    case '\t':
      return Put("\\t");
    case '\f':
      return Put("\\f");
    case '\b':
      return Put("\\b");
    default:
      break;
  }
  const auto cp = static_cast<unsigned>(c.codepoint);
  if (cp >= 0x20 && (cp < 0x7F || !options_.ensure_ascii)) return Put(bytes);
  if (cp < 0x10000) {
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", cp);
  } else {
    const unsigned offset = cp - 0x10000;
    std::snprintf(buffer, sizeof(buffer), "\\u%04x\\u%04x", 0xD800 + (offset >> 10),
                  0xDC00 + (offset & 0x3FF));
  }
  Put(buffer);
}

void JsonWriter::WriteString(const Text& text) {
  const std::string_view s = text.view();
  ChargeSteps(s.size() / 8);
  Put("\"");
  size_t plain = 0;  // start of the bytes that need no escape
  for (size_t i = 0; i < s.size();) {
    const auto byte = static_cast<unsigned char>(s[i]);
    const bool special =
        byte < 0x20 || byte == '"' || byte == '\\' || (options_.ensure_ascii && byte >= 0x7F);
    if (!special) {
      ++i;
      continue;
    }
    Put(s.substr(plain, i - plain));
    const size_t n = CharSize(s, i);
    WriteEscaped(s.substr(i, n));
    i += n;
    plain = i;
  }
  Put(s.substr(plain));
  Put("\"");
}

void JsonWriter::WriteFloat(double value) {
  if (std::isnan(value)) return Put("NaN");
  if (std::isinf(value)) return Put(value < 0 ? "-Infinity" : "Infinity");
  Put(FormatFloat(value));
}

void JsonWriter::WriteKey(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      return WriteString(key.text());
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      Put("\"");
      Write(key);
      return Put("\"");
    default:
      Fail(std::string("tojson: keys must be strings or numbers, not '") + TypeName(key) + "'");
  }
}

void JsonWriter::WriteList(const std::vector<Value>& items) {
  if (items.empty()) return Put("[]");
  Put("[");
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) Put(options_.item_separator);
    NewLine();
    Write(items[i]);
  }
  --level_;
  NewLine();
  Put("]");
}

void JsonWriter::WriteDict(const DictItems& items) {
  if (items.empty()) return Put("{}");
  std::vector<const std::pair<Value, Value>*> order;
  for (const auto& item : items) order.push_back(&item);
  if (options_.sort_keys) {
    ChargeSteps(items.size());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return Less(a->first, b->first); });
  }
  Put("{");
  ++level_;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i != 0) Put(options_.item_separator);
    NewLine();
    WriteKey(order[i]->first);
    Put(options_.key_separator);
    Write(order[i]->second);
  }
  --level_;
  NewLine();
  Put("}");
}

void JsonWriter::Write(const Value& value) {
  ChargeSteps(1);
  switch (value.kind()) {
    case Kind::kNone:
      return Put("null");
    case Kind::kBool:
      return Put(value.bool_value() ? "true" : "false");
    case Kind::kInt:
      return Put(FormatInt(value.int_value()));
    case Kind::kFloat:
      return WriteFloat(value.float_value());
    case Kind::kString:
      return WriteString(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return WriteList(value.list().items);
    case Kind::kDict:
      return WriteDict(value.dict().items);
    default:
      Fail(std::string("tojson: object of type ") + TypeName(value) + " is not JSON serializable");
  }
}

}  // namespace

Text ToJson(const Value& value, const JsonOptions& options) {
  JsonWriter writer(options, AnyLiteral(value));
  writer.Write(value);
  return writer.Build();
}

}  // namespace pocketlm::chat
