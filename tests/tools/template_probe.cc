// Renders templates for the differential tests: one JSON request per line in, one JSON answer per line out.
//
// Request: {"template": str, "messages": [...], "tools": [...] or null, "add_generation_prompt": bool,
//           "extra": {...}, "bos_token": str, "eos_token": str, "now": int}; all but "template" optional.
// Answer:  {"text": str, "literal": [[begin, end], ...]} or {"error": str, "code": str, "stage": "parse"|"render"}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "chat/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

Json Failure(const pocketlm::Status& status, const char* stage) {
  return {{"error", status.message()},
          {"code", pocketlm::StatusCodeName(status.code())},
          {"stage", stage}};
}

Json Answer(const Json& request) {
  auto parsed = pocketlm::ChatTemplate::Parse(request.value("template", ""));
  if (!parsed.ok()) return Failure(parsed.status(), "parse");
  pocketlm::RenderInput input;
  input.messages = request.value("messages", Json::array());
  input.tools = request.value("tools", Json());
  input.add_generation_prompt = request.value("add_generation_prompt", false);
  input.extra = request.value("extra", Json::object());
  input.bos_token = request.value("bos_token", "");
  input.eos_token = request.value("eos_token", "");
  if (request.contains("now")) input.now = request["now"].get<int64_t>();
  auto prompt = parsed->Render(input);
  if (!prompt.ok()) return Failure(prompt.status(), "render");
  Json literal = Json::array();
  for (const auto& range : prompt->literal) literal.push_back({range.begin, range.end});
  return {{"text", prompt->text}, {"literal", literal}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line.empty()) continue;
    std::cout << Answer(Json::parse(line)).dump(-1, ' ', false, Json::error_handler_t::replace)
              << std::endl;
  }
  return 0;
}
