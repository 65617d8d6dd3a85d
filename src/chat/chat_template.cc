#include "chat/chat_template.h"

#include <new>

#include "base/utf8.h"
#include "chat/interpreter.h"
#include "chat/parser.h"

namespace pocketlm {

struct ChatTemplate::Parsed {
  std::string source;
  chat::TemplateTree tree;
};

namespace {

Status ToStatus(const chat::TemplateError& error, int line) {
  if (error.line > 0) line = error.line;
  std::string prefix = "chat template";
  if (line > 0) prefix += ", line " + std::to_string(line);
  return Status(error.code, prefix + ": " + error.message);
}

Status CheckInput(const RenderInput& input) {
  if (!input.messages.is_array())
    return InvalidArgument("chat template: messages: expected an array");
  for (size_t i = 0; i < input.messages.size(); ++i) {
    if (!input.messages[i].is_object()) {
      return InvalidArgument("chat template: messages[" + std::to_string(i) +
                             "]: expected an object");
    }
  }
  if (!input.tools.is_null() && !input.tools.is_array())
    return InvalidArgument("chat template: tools: expected an array or null");
  if (!input.extra.is_null() && !input.extra.is_object())
    return InvalidArgument("chat template: extra: expected an object or null");
  if (input.extra.is_object()) {
    for (const char* reserved : {"messages", "tools", "add_generation_prompt"}) {
      if (input.extra.contains(reserved)) {
        return InvalidArgument(std::string("chat template: extra: '") + reserved +
                               "' has a field of its own");
      }
    }
  }
  return OkStatus();
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::ChatTemplate(const ChatTemplate&) = default;
ChatTemplate& ChatTemplate::operator=(const ChatTemplate&) = default;
ChatTemplate::~ChatTemplate() = default;

const std::string& ChatTemplate::source() const { return parsed_->source; }

Result<ChatTemplate> ChatTemplate::Parse(std::string source) {
  if (source.size() > kMaxTemplateBytes) return Unsupported("chat template: larger than 4 MiB");
  if (!IsValidUtf8(source)) return DataError("chat template: not valid UTF-8");
  // Constants outlive every rendering, so they belong to none.
  const chat::Meter::Use no_meter(nullptr);
  try {
    auto parsed = std::make_shared<Parsed>();
    parsed->tree = chat::ParseTemplate(source);
    parsed->source = std::move(source);
    return ChatTemplate(std::move(parsed));
  } catch (const chat::TemplateError& error) {
    return ToStatus(error, 0);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("chat template: parse: out of memory");
  }
}

Result<RenderedPrompt> ChatTemplate::Render(const RenderInput& input) const {
  POCKETLM_RETURN_IF_ERROR(CheckInput(input));
  chat::Meter meter(input.limits);
  const chat::Meter::Use use(&meter);
  std::optional<chat::Interpreter> interpreter;
  try {
    interpreter.emplace(input, &meter);
    return interpreter->Run(parsed_->tree);
  } catch (const chat::TemplateError& error) {
    return ToStatus(error, interpreter ? interpreter->line() : 0);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("chat template: render: out of memory");
  }
}

}  // namespace pocketlm
