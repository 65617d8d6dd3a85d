// plm_model_… and plm_inspect.
#include <nlohmann/json.hpp>

#include "capi/chat_options.h"
#include "capi/internal.h"
#include "capi/session_options.h"
#include "runtime/inspect.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

extern "C" {

plm_model_options plm_model_options_default(void) {
  return {sizeof(plm_model_options), 0, PLM_ACTIVATIONS_INT8};
}

plm_status plm_model_load(const char* path, const plm_model_options* options, plm_model** out) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    POCKETLM_REQUIRE_ARGUMENT(out);
    POCKETLM_ASSIGN_OR_RETURN(const plm_model_options read,
                              ReadOptions(options, plm_model_options_default()));
    auto handle = std::make_unique<plm_model>();
    if (read.activations != PLM_ACTIVATIONS_INT8 && read.activations != PLM_ACTIVATIONS_F32) {
      return InvalidArgument("load: activations: expected a value of plm_activations (0, 1), got " +
                             std::to_string(static_cast<int>(read.activations)));
    }
    POCKETLM_ASSIGN_OR_RETURN(
        handle->model,
        Model::Load(path, {.num_threads = read.num_threads,
                           .float_activations = read.activations == PLM_ACTIVATIONS_F32}));
    handle->tokenizer.tokenizer = &handle->model->tokenizer();
    *out = handle.release();
    return OkStatus();
  });
}

void plm_model_free(plm_model* model) { delete model; }

const plm_tokenizer* plm_model_tokenizer(const plm_model* model) {
  return model == nullptr ? nullptr : &model->tokenizer;
}

bool plm_model_has_chat_template(const plm_model* model) {
  return model != nullptr && model->model->chat_template() != nullptr;
}

plm_status plm_model_describe(const plm_model* model, char** json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(model);
    POCKETLM_REQUIRE_ARGUMENT(json);
    return CopyString(DescribeModel(*model->model).dump(), json);
  });
}

plm_status plm_inspect(const char* path, const plm_session_options* options, char** json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    POCKETLM_REQUIRE_ARGUMENT(json);
    POCKETLM_ASSIGN_OR_RETURN(const SessionOptions session, ReadSessionOptions(options));
    POCKETLM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report, InspectFile(path, session));
    return CopyString(report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                      json);
  });
}

plm_status plm_verify(const char* path) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    return VerifyModelFile(path);
  });
}

plm_chat_options plm_chat_options_default(void) {
  return {sizeof(plm_chat_options), nullptr, nullptr, true, false, 256};
}

plm_status plm_model_render_chat(const plm_model* model, const char* messages_json,
                                 const plm_chat_options* options, char** text, size_t* text_bytes) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(model);
    POCKETLM_REQUIRE_ARGUMENT(text);
    POCKETLM_ASSIGN_OR_RETURN(const ChatArguments chat, ReadChatArguments(messages_json, options));
    POCKETLM_ASSIGN_OR_RETURN(const RenderedPrompt prompt, RenderChat(*model->model, chat.request));
    POCKETLM_RETURN_IF_ERROR(CopyString(prompt.text, text));
    if (text_bytes != nullptr) *text_bytes = prompt.text.size();
    return OkStatus();
  });
}

}  // extern "C"
