// plm_session_….
#include <algorithm>

#include "capi/chat_options.h"
#include "capi/internal.h"
#include "capi/session_options.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

namespace {

Result<GenerateOptions> ReadGenerateOptions(const plm_generate_options* options) {
  POCKETLM_ASSIGN_OR_RETURN(const plm_generate_options read,
                            ReadOptions(options, plm_generate_options_default()));
  GenerateOptions out;
  out.max_tokens = read.max_tokens;
  out.ignore_end_tokens = read.ignore_end_tokens;
  out.sampler.temperature = read.temperature;
  out.sampler.top_k = read.top_k;
  out.sampler.top_p = read.top_p;
  out.sampler.min_p = read.min_p;
  out.sampler.repetition_penalty = read.repetition_penalty;
  out.sampler.presence_penalty = read.presence_penalty;
  out.sampler.frequency_penalty = read.frequency_penalty;
  out.sampler.seed = read.seed;
  if (read.logit_bias_count > 0 && read.logit_bias == nullptr) return NullArgument("logit_bias");
  for (size_t i = 0; i < read.logit_bias_count; ++i) {
    out.sampler.logit_bias.emplace_back(read.logit_bias[i].token, read.logit_bias[i].bias);
  }
  if (read.stop_count > 0 && read.stop == nullptr) return NullArgument("stop");
  for (size_t i = 0; i < read.stop_count; ++i) {
    if (read.stop[i] == nullptr) return NullArgument("stop[i]");
    out.stop.emplace_back(read.stop[i]);
  }
  return out;
}

plm_finish_reason ToCFinishReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return PLM_FINISH_STOP;
    case FinishReason::kLength:
      return PLM_FINISH_LENGTH;
    case FinishReason::kCancelled:
      return PLM_FINISH_CANCELLED;
  }
  return PLM_FINISH_STOP;
}

plm_generate_result ToCResult(const GenerateResult& result) {
  return {sizeof(plm_generate_result),
          ToCFinishReason(result.finish_reason),
          result.tokens_in,
          result.tokens_cached,
          result.tokens_out,
          result.prefill_ms,
          result.decode_ms,
          result.first_token_ms,
          result.text.size()};
}

}  // namespace

extern "C" {

plm_session_options plm_session_options_default(void) {
  const SessionOptions defaults;
  return {sizeof(plm_session_options), defaults.context_length, defaults.prefill_chunk, PLM_KV_INT8,
          PLM_KV_INT8};
}

plm_status plm_session_create(plm_model* model, const plm_session_options* options,
                              plm_session** out) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(model);
    POCKETLM_REQUIRE_ARGUMENT(out);
    POCKETLM_ASSIGN_OR_RETURN(const SessionOptions read, ReadSessionOptions(options));
    auto handle = std::make_unique<plm_session>();
    POCKETLM_ASSIGN_OR_RETURN(handle->session, Session::Create(model->model, read));
    *out = handle.release();
    return OkStatus();
  });
}

void plm_session_free(plm_session* session) { delete session; }

uint32_t plm_session_context_length(const plm_session* session) {
  return session == nullptr ? 0 : static_cast<uint32_t>(session->session->context_length());
}

plm_status plm_session_reset(plm_session* session) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    return session->session->Reset();
  });
}

void plm_session_cancel(plm_session* session) {
  if (session != nullptr) session->session->Cancel();
}

plm_status plm_session_set_text(plm_session* session, const char* text, size_t text_bytes,
                                const plm_encode_options* options) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view input, TextArgument(text, text_bytes));
    plm_encode_options defaults = plm_encode_options_default();
    defaults.add_bos = true;
    POCKETLM_ASSIGN_OR_RETURN(const plm_encode_options read, ReadOptions(options, defaults));
    return session->session->SetText(input, read.parse_special, read.add_bos);
  });
}

plm_status plm_session_set_chat(plm_session* session, const char* messages_json,
                                const plm_chat_options* options, bool* truncated) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_ASSIGN_OR_RETURN(const ChatArguments chat, ReadChatArguments(messages_json, options));
    POCKETLM_ASSIGN_OR_RETURN(const bool shortened,
                              session->session->SetChat(chat.request, chat.reserve_tokens));
    if (truncated != nullptr) *truncated = shortened;
    return OkStatus();
  });
}

plm_status plm_session_set_tokens(plm_session* session, const int32_t* ids, size_t count) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    if (count > 0) POCKETLM_REQUIRE_ARGUMENT(ids);
    return session->session->SetTokens({ids, count});
  });
}

plm_status plm_session_tokens(const plm_session* session, int32_t* ids, size_t capacity,
                              size_t* count) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(count);
    if (capacity > 0) POCKETLM_REQUIRE_ARGUMENT(ids);
    POCKETLM_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, session->session->Tokens());
    std::copy_n(tokens.begin(), std::min(capacity, tokens.size()), ids);
    *count = tokens.size();
    return OkStatus();
  });
}

plm_status plm_session_logits(plm_session* session, float* logits, size_t capacity) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(logits);
    return session->session->CopyLogits({logits, capacity});
  });
}

plm_generate_options plm_generate_options_default(void) {
  plm_generate_options options = {};
  options.size_bytes = sizeof(options);
  options.max_tokens = -1;
  options.top_p = 1.0f;
  options.repetition_penalty = 1.0f;
  return options;
}

plm_status plm_session_generate(plm_session* session, const plm_generate_options* options,
                                plm_text_callback callback, void* user, char** text,
                                plm_generate_result* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_ASSIGN_OR_RETURN(const GenerateOptions read, ReadGenerateOptions(options));
    // Before the work: a wrong size_bytes must not cost an answer.
    POCKETLM_RETURN_IF_ERROR(WriteResult(plm_generate_result{}, result));
    TextSink sink;
    if (callback != nullptr) {
      sink = [callback, user](const std::string& piece) {
        return callback(piece.c_str(), piece.size(), user);
      };
    }
    POCKETLM_ASSIGN_OR_RETURN(const GenerateResult answer, session->session->Generate(read, sink));
    if (text != nullptr) POCKETLM_RETURN_IF_ERROR(CopyString(answer.text, text));
    return WriteResult(ToCResult(answer), result);
  });
}

plm_perplexity_options plm_perplexity_options_default(void) {
  return {sizeof(plm_perplexity_options), false, 0};
}

plm_status plm_session_perplexity(plm_session* session, const char* text, size_t text_bytes,
                                  const plm_perplexity_options* options,
                                  plm_progress_callback progress, void* user,
                                  plm_perplexity_result* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(result);
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view input, TextArgument(text, text_bytes));
    POCKETLM_ASSIGN_OR_RETURN(const plm_perplexity_options read,
                              ReadOptions(options, plm_perplexity_options_default()));
    POCKETLM_RETURN_IF_ERROR(WriteResult(plm_perplexity_result{}, result));
    ProgressSink sink;
    if (progress != nullptr)
      sink = [progress, user](double fraction) { return progress(fraction, user); };
    POCKETLM_ASSIGN_OR_RETURN(
        const PerplexityResult scored,
        session->session->Perplexity(input, {read.score_all, read.max_windows}, sink));
    return WriteResult(
        plm_perplexity_result{sizeof(plm_perplexity_result), scored.tokens, scored.bytes,
                              scored.nll, scored.perplexity(), scored.bits_per_byte()},
        result);
  });
}

}  // extern "C"
