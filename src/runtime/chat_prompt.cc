#include "runtime/chat_prompt.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json.h"
#include "chat/message.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

// The request's JSON texts, parsed and checked once.
Result<RenderInput> ParseRequest(const Model& model, const ChatRequest& request) {
  if (model.chat_template() == nullptr) {
    return Unsupported("chat: the model has no chat template; give it raw text instead");
  }
  RenderInput input;
  POCKETLM_ASSIGN_OR_RETURN(ordered_json messages, ParseOrderedJson(request.messages_json));
  POCKETLM_ASSIGN_OR_RETURN(input.messages, NormalizeMessages(messages));
  if (!model.chat_template_takes_parts()) FlattenText(&input.messages);
  if (!request.tools_json.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(input.tools, ParseOrderedJson(request.tools_json));
    if (!input.tools.is_array()) return InvalidArgument("chat: tools: expected a JSON array");
  }
  if (!request.extra_json.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(input.extra, ParseOrderedJson(request.extra_json));
    if (!input.extra.is_object())
      return InvalidArgument("chat: template variables: expected a JSON object");
  }
  input.add_generation_prompt = request.add_generation_prompt;
  input.bos_token = model.bos_text();
  input.eos_token = model.eos_text();
  return input;
}

Result<std::vector<int32_t>> RenderIds(const Model& model, const RenderInput& input) {
  POCKETLM_ASSIGN_OR_RETURN(const RenderedPrompt prompt, model.chat_template()->Render(input));
  std::vector<Tokenizer::ByteRange> literal;
  literal.reserve(prompt.literal.size());
  for (const TextRange& range : prompt.literal) literal.push_back({range.begin, range.end});
  return model.tokenizer().EncodePrompt(prompt.text, literal);
}

// The largest start ≤ n at which a UTF-8 character begins.
size_t CharacterStart(std::string_view text, size_t n) {
  while (n < text.size() && n > 0 && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return n;
}

class Truncator {
 public:
  Truncator(const Model& model, RenderInput input, size_t max_tokens)
      : model_(model), input_(std::move(input)), max_tokens_(max_tokens) {}

  Result<std::vector<int32_t>> Run() {
    if (DropOldTurns()) return std::move(ids_);
    return ShortenLastMessage();
  }

 private:
  // Whether the prompt renders and fits; a template may refuse a conversation that begins in the middle.
  bool Fits() {
    auto ids = RenderIds(model_, input_);
    if (!ids.ok() || ids->size() > max_tokens_) return false;
    ids_ = std::move(ids).value();
    return true;
  }

  // Drops as few of the oldest turns as make the prompt fit; a turn begins with a user's message. If no turn can
  // stay whole, the last message is left, which need not fit.
  bool DropOldTurns() {
    const ordered_json all = input_.messages;
    const size_t first = !all.empty() && all[0]["role"] == "system" ? 1 : 0;
    std::vector<size_t> starts;  // where what is kept may begin
    for (size_t i = first + 1; i < all.size(); ++i) {
      if (all[i]["role"] == "user" || i + 1 == all.size()) starts.push_back(i);
    }
    const auto keep_from = [&](size_t start) {
      input_.messages = ordered_json::array();
      for (size_t i = 0; i < first; ++i) input_.messages.push_back(all[i]);
      for (size_t i = start; i < all.size(); ++i) input_.messages.push_back(all[i]);
      return Fits();
    };
    // Fewer messages have fewer tokens: bisection, since a long conversation has thousands of turns.
    size_t low = 0, high = starts.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (keep_from(starts[middle])) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (high < starts.size()) return keep_from(starts[high]);
    if (!starts.empty()) keep_from(starts.back());
    return false;
  }

  Result<std::vector<int32_t>> ShortenLastMessage() {
    const Status too_long =
        ContextFull("chat: even without its old turns the prompt needs more than " +
                    std::to_string(max_tokens_) + " tokens");
    if (input_.messages.empty()) return too_long;
    ordered_json& content = input_.messages.back()["content"];
    if (!content.is_string()) return too_long;
    const std::string text = content.get<std::string>();
    // The least number of bytes to cut from the front; more cut means fewer tokens, give or take one.
    size_t low = 0, high = text.size();
    content = "";
    if (!Fits()) return too_long;
    while (low < high) {
      const size_t middle = CharacterStart(text, low + (high - low) / 2);
      content = text.substr(middle);
      if (Fits()) {
        high = middle;
      } else {
        low = middle + 1;
        while (low < text.size() && (static_cast<unsigned char>(text[low]) & 0xC0) == 0x80) ++low;
      }
    }
    content = text.substr(high);
    if (!Fits()) return too_long;
    return std::move(ids_);
  }

  const Model& model_;
  RenderInput input_;
  size_t max_tokens_;
  std::vector<int32_t> ids_;
};

}  // namespace

Result<RenderedPrompt> RenderChat(const Model& model, const ChatRequest& request) {
  POCKETLM_ASSIGN_OR_RETURN(const RenderInput input, ParseRequest(model, request));
  return model.chat_template()->Render(input);
}

Result<ChatPrompt> BuildChatPrompt(const Model& model, const ChatRequest& request,
                                   size_t max_tokens, size_t reserve_tokens) {
  POCKETLM_ASSIGN_OR_RETURN(RenderInput input, ParseRequest(model, request));
  ChatPrompt prompt;
  POCKETLM_ASSIGN_OR_RETURN(prompt.ids, RenderIds(model, input));
  const size_t room = max_tokens > reserve_tokens ? max_tokens - reserve_tokens : 1;
  if (prompt.ids.size() <= (request.truncate ? room : max_tokens)) return prompt;
  if (!request.truncate) {
    return ContextFull("chat: the prompt has " + std::to_string(prompt.ids.size()) +
                       " tokens, the context holds " + std::to_string(max_tokens) +
                       "; shorten it, enlarge the context, or ask for truncation");
  }
  prompt.truncated = true;
  POCKETLM_ASSIGN_OR_RETURN(prompt.ids, Truncator(model, std::move(input), room).Run());
  return prompt;
}

}  // namespace pocketlm
