#include "chat/message.h"

#include "base/utf8.h"
#include "chat/chat_template.h"

namespace pocketlm {
namespace {

using Json = nlohmann::ordered_json;

Status WrongType(const std::string& where, const char* expected, const Json& got) {
  return InvalidArgument(where + ": expected " + expected + ", got " + got.type_name());
}

// nlohmann's parser has no depth limit, so a string that nests too deeply is left alone.
bool NestsTooDeeply(const std::string& text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxValueDepth) return true;
  }
  return false;
}

void DecodeArguments(Json* holder) {
  const auto it = holder->find("arguments");
  if (it == holder->end() || !it->is_string()) return;
  const auto& text = it->get_ref<const std::string&>();
  if (NestsTooDeeply(text)) return;
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) *it = std::move(parsed);
}

Status NormalizeToolCalls(Json* calls, const std::string& where) {
  if (!calls->is_array()) return WrongType(where, "an array", *calls);
  for (size_t i = 0; i < calls->size(); ++i) {
    Json& call = (*calls)[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (!call.is_object()) return WrongType(place, "an object", call);
    const auto function = call.find("function");
    if (function != call.end()) {
      if (!function->is_object()) return WrongType(place + ".function", "an object", *function);
      DecodeArguments(&*function);
    }
    DecodeArguments(&call);
  }
  return OkStatus();
}

Status CheckParts(const Json& parts, const std::string& where) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string place = where + "[" + std::to_string(i) + "]";
    if (!parts[i].is_object()) return WrongType(place, "an object", parts[i]);
    const auto type = parts[i].find("type");
    if (type == parts[i].end()) return InvalidArgument(place + ".type: missing");
    if (!type->is_string()) return WrongType(place + ".type", "a string", *type);
    if (*type != "text") continue;
    const auto text = parts[i].find("text");
    if (text == parts[i].end()) return InvalidArgument(place + ".text: missing");
    if (!text->is_string()) return WrongType(place + ".text", "a string", *text);
  }
  return OkStatus();
}

Status NormalizeMessage(Json* message, const std::string& where) {
  if (!message->is_object()) return WrongType(where, "an object", *message);
  const auto role = message->find("role");
  if (role == message->end()) return InvalidArgument(where + ".role: missing");
  if (!role->is_string()) return WrongType(where + ".role", "a string", *role);
  if (role->get_ref<const std::string&>().empty()) return InvalidArgument(where + ".role: empty");
  Json out = Json::object();
  for (auto& [key, value] : message->items()) {
    if (!value.is_null()) {
      out[key] = std::move(value);
    } else if (key == "content") {
      out[key] = "";
    }
  }
  Json& content = out["content"];
  if (content.is_null()) content = "";
  if (content.is_array()) {
    POCKETLM_RETURN_IF_ERROR(CheckParts(content, where + ".content"));
  } else if (!content.is_string()) {
    return WrongType(where + ".content", "a string, an array of parts or null", content);
  }
  const auto calls = out.find("tool_calls");
  if (calls != out.end())
    POCKETLM_RETURN_IF_ERROR(NormalizeToolCalls(&*calls, where + ".tool_calls"));
  *message = std::move(out);
  return OkStatus();
}

}  // namespace

Result<Json> NormalizeMessages(Json messages) {
  if (!messages.is_array()) return WrongType("messages", "an array", messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    POCKETLM_RETURN_IF_ERROR(NormalizeMessage(&messages[i], "messages[" + std::to_string(i) + "]"));
  }
  return messages;
}

void FlattenText(Json* messages) {
  if (!messages->is_array()) return;
  for (Json& message : *messages) {
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (!message.is_object() || content == message.end() || !content->is_array()) continue;
    std::string joined;
    bool only_text = true;
    for (const Json& part : *content) {
      const auto text = part.is_object() ? part.find("text") : part.end();
      if (!part.is_object() || text == part.end() || !text->is_string()) {
        only_text = false;
        break;
      }
      if (!joined.empty()) joined += "\n";
      joined += text->get_ref<const std::string&>();
    }
    if (only_text) *content = joined;
  }
}

}  // namespace pocketlm
