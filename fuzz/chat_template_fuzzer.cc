// Templates from outside: Parse and Render must return, whatever the bytes are.
//
// Input: the template, then optionally a 0 byte and the JSON text of the messages.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "chat/chat_template.h"
#include "chat/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  auto parsed = pocketlm::ChatTemplate::Parse(input.substr(0, split));
  if (!parsed.ok()) return 0;
  pocketlm::RenderInput request;
  request.messages = {
      {{"role", "system"}, {"content", "be kind"}},
      {{"role", "user"}, {"content", "h\xc3\xa9 <|im_end|> a,b"}},
      {{"role", "assistant"},
       {"content", ""},
       {"tool_calls", {{{"name", "f"}, {"arguments", {{"x", 1.5}, {"y", nullptr}}}}}}}};
  if (split != std::string::npos) {
    auto json = nlohmann::ordered_json::parse(input.substr(split + 1), nullptr, false);
    if (json.is_discarded()) return 0;
    auto normalized = pocketlm::NormalizeMessages(std::move(json));
    if (!normalized.ok()) return 0;
    request.messages = *std::move(normalized);
  }
  request.tools = nlohmann::ordered_json::array(
      {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"a", {1, 2}}}}}}}});
  request.extra = {{"n", 3}, {"s", " Text "}, {"l", {3, "a", true}}};
  request.bos_token = "<s>";
  request.now = 0;
  request.limits.max_steps = 20'000;
  request.limits.max_live_bytes = size_t{4} << 20;
  request.limits.max_output_bytes = size_t{1} << 20;
  const auto prompt = parsed->Render(request);
  if (!prompt.ok()) return 0;
  // The ranges are sorted, disjoint and inside the text.
  size_t last = 0;
  for (const auto& range : prompt->literal) {
    if (range.begin < last || range.begin >= range.end || range.end > prompt->text.size()) abort();
    last = range.end;
  }
  return 0;
}
