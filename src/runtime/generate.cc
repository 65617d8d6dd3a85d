// Session::Generate: the loop from logits to text.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/utf8.h"
#include "runtime/session.h"
#include "runtime/stop_matcher.h"
#include "tokenizer/detokenizer.h"

namespace pocketlm {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

// One answer: samples, turns tokens into text, looks for the end.
class AnswerLoop {
 public:
  AnswerLoop(Session* session, const GenerateOptions& options, const TextSink& sink)
      : session_(*session),
        options_(options),
        sink_(sink),
        sampler_(options.sampler, session->model_->tokenizer().vocab_size()),
        detokenizer_(&session->model_->tokenizer()),
        stop_matcher_(options.stop) {}

  // On failure the session's tokens are the caller's to restore.
  Result<GenerateResult> Run() {
    const Clock::time_point start = Clock::now();
    result_.tokens_in = static_cast<uint32_t>(session_.tokens_.size());
    result_.tokens_cached = static_cast<uint32_t>(session_.computed_);
    sampler_.ObservePrompt(session_.tokens_);
    Status computed = session_.ComputeLogits();
    result_.prefill_ms = Milliseconds(start, Clock::now());
    Clock::time_point first_token;
    while (Continue(computed)) {
      POCKETLM_RETURN_IF_ERROR(Step());
      if (result_.tokens_out == 1) {
        first_token = Clock::now();
        result_.first_token_ms = Milliseconds(start, first_token);
      }
      if (!done_) computed = session_.ComputeLogits();
    }
    if (!computed.ok() && computed.code() != StatusCode::kCancelled) return computed;
    if (result_.tokens_out > 0) result_.decode_ms = Milliseconds(first_token, Clock::now());
    // The rest of an unfinished character, then what the matcher held back.
    Emit(stop_matcher_.Push(detokenizer_.Flush()));
    Emit(stop_matcher_.Flush());
    return std::move(result_);
  }

 private:
  void Finish(FinishReason reason) {
    done_ = true;
    result_.finish_reason = reason;
  }

  // Whether another token is to be sampled.
  bool Continue(const Status& computed) {
    if (done_) return false;
    if (computed.code() == StatusCode::kCancelled) {
      Finish(FinishReason::kCancelled);
    } else if (ReachedLimit()) {
      Finish(FinishReason::kLength);
    }
    return !done_ && computed.ok();
  }

  bool ReachedLimit() const {
    return options_.max_tokens >= 0 &&
           result_.tokens_out >= static_cast<uint32_t>(options_.max_tokens);
  }

  // Samples one token and takes it into the session.
  Status Step() {
    POCKETLM_ASSIGN_OR_RETURN(const int32_t id, sampler_.Sample(session_.logits_));
    ++result_.tokens_out;
    session_.tokens_.push_back(id);
    if (!options_.ignore_end_tokens && session_.model_->IsEndToken(id)) {
      Finish(FinishReason::kStop);
      return OkStatus();
    }
    if (!session_.model_->tokenizer().IsControl(id))
      Emit(stop_matcher_.Push(detokenizer_.Push(id)));
    if (stop_matcher_.matched()) {
      Finish(FinishReason::kStop);
    } else if (!done_ && (ReachedLimit() || session_.tokens_.size() == session_.context_length())) {
      Finish(FinishReason::kLength);
    }
    return OkStatus();
  }

  void Emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    // After a cancel nothing more is sent; the text itself stays complete.
    if (cancelled_by_sink_ || !sink_) return;
    if (!sink_(text)) {
      cancelled_by_sink_ = true;
      Finish(FinishReason::kCancelled);
    }
  }

  Session& session_;
  const GenerateOptions& options_;
  const TextSink& sink_;
  Sampler sampler_;
  IncrementalDetokenizer detokenizer_;
  StopMatcher stop_matcher_;
  GenerateResult result_;
  bool done_ = false;
  bool cancelled_by_sink_ = false;
};

Result<GenerateResult> Session::Generate(const GenerateOptions& options, const TextSink& sink) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  cancel_.store(false, std::memory_order_relaxed);
  POCKETLM_RETURN_IF_ERROR(
      ValidateSamplerOptions(options.sampler, model_->tokenizer().vocab_size()));
  if (options.max_tokens < -1) {
    return InvalidArgument("generate: max_tokens: expected -1 or more, got " +
                           std::to_string(options.max_tokens));
  }
  for (const std::string& stop : options.stop) {
    if (!IsValidUtf8(stop)) return InvalidArgument("generate: stop: expected valid UTF-8");
  }
  if (tokens_.empty()) return InvalidArgument("generate: the session has no prompt");
  if (tokens_.size() == context_length() && options.max_tokens != 0) {
    return ContextFull("generate: the prompt has " + std::to_string(tokens_.size()) +
                       " tokens, the context holds " + std::to_string(context_length()) +
                       ": no room for an answer");
  }
  const size_t prompt_tokens = tokens_.size();
  auto result = AnswerLoop(this, options, sink).Run();
  if (!result.ok()) Truncate(prompt_tokens);
  return result;
}

}  // namespace pocketlm
