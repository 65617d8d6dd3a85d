// The chat options of the C API as the runtime takes them.
#pragma once

#include "capi/internal.h"
#include "runtime/chat_prompt.h"

namespace pocketlm::capi {

struct ChatArguments {
  ChatRequest request;
  size_t reserve_tokens = 0;
};

inline Result<ChatArguments> ReadChatArguments(const char* messages_json,
                                               const plm_chat_options* options) {
  POCKETLM_REQUIRE_ARGUMENT(messages_json);
  POCKETLM_ASSIGN_OR_RETURN(const plm_chat_options read,
                            ReadOptions(options, plm_chat_options_default()));
  ChatArguments out;
  out.request.messages_json = messages_json;
  if (read.tools_json != nullptr) out.request.tools_json = read.tools_json;
  if (read.extra_json != nullptr) out.request.extra_json = read.extra_json;
  out.request.add_generation_prompt = read.add_generation_prompt;
  out.request.truncate = read.truncate;
  out.reserve_tokens = read.reserve_tokens;
  return out;
}

}  // namespace pocketlm::capi
