// From a conversation to the token ids of a prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model.h"

namespace pocketlm {

struct ChatRequest {
  std::string messages_json;  // array of messages
  std::string tools_json;     // array of tool definitions, or empty
  std::string extra_json;     // object of further template variables, or empty
  bool add_generation_prompt = true;
  bool truncate = false;  // see BuildChatPrompt
};

// The text that the model's template makes. kUnsupported if it has none.
Result<RenderedPrompt> RenderChat(const Model& model, const ChatRequest& request);

struct ChatPrompt {
  std::vector<int32_t> ids;
  bool truncated = false;
};

// Renders and tokenizes; control tokens come from the template alone. The template writes BOS, if any: none is
// added. More than `max_tokens` ids is kContextFull, unless request.truncate: then the oldest turns are dropped
// (a system message at the front stays), and if the last message alone is still too long, the start of its text,
// until the prompt has at most max_tokens − reserve_tokens ids.
Result<ChatPrompt> BuildChatPrompt(const Model& model, const ChatRequest& request,
                                   size_t max_tokens, size_t reserve_tokens);

}  // namespace pocketlm
