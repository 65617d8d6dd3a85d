// A conversation with a model: its tokens, their keys and values, and what is computed from them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/model.h"
#include "runtime/benchmark.h"
#include "runtime/chat_prompt.h"
#include "runtime/sampler.h"

namespace pocketlm {

inline constexpr uint32_t kMaxPrefillChunk = 4096;
inline constexpr uint32_t kDefaultContextLength = 4096;

struct SessionOptions {
  uint32_t context_length = 0;   // tokens; 0: min(model's limit, kDefaultContextLength)
  uint32_t prefill_chunk = 128;  // tokens, 1 … kMaxPrefillChunk; never changes results
  KvType kv_k_type = KvType::kI8;
  KvType kv_v_type = KvType::kI8;
};

// "f32", "f16", "int8", "int4".
const char* KvTypeName(KvType type);

// Fills in defaults and checks against the model. kInvalidArgument names what is wrong; kUnsupported for int4 and a
// head size that it cannot hold. int8 becomes f16 where the head size is no multiple of 4.
Result<SessionOptions> ResolveSessionOptions(const SessionOptions& options,
                                             const ModelConfig& config);

enum class FinishReason { kStop, kLength, kCancelled };

struct GenerateOptions {
  SamplerOptions sampler;
  int32_t max_tokens = -1;        // −1: until an end token or a full context
  std::vector<std::string> stop;  // valid UTF-8; empty ones are ignored
  bool ignore_end_tokens = false;
};

struct GenerateResult {
  std::string text;  // the answer: valid UTF-8, without control tokens and stop text
  FinishReason finish_reason = FinishReason::kStop;
  uint32_t tokens_in = 0;
  uint32_t tokens_cached = 0;  // of tokens_in, computed before the call
  uint32_t tokens_out = 0;     // sampled, the end token included
  double prefill_ms = 0.0;
  double decode_ms = 0.0;  // without the first token
  double first_token_ms = 0.0;
};

// Receives whole characters; false cancels.
using TextSink = std::function<bool(const std::string& text)>;

struct PerplexityOptions {
  bool score_all = false;  // see Session::Perplexity
  size_t max_windows = 0;  // 0: all
};

struct PerplexityResult {
  uint64_t tokens = 0;  // scored
  uint64_t bytes = 0;   // that the scored tokens stand for
  double nll = 0.0;     // natural log, summed
  double perplexity() const;
  double bits_per_byte() const;
};

// Receives a fraction in [0, 1]; false cancels.
using ProgressSink = std::function<bool(double fraction)>;

// One call at a time: another one meanwhile gets kBusy. Cancel may come from any thread.
class Session {
 public:
  static Result<std::unique_ptr<Session>> Create(std::shared_ptr<Model> model,
                                                 const SessionOptions& options);

  size_t context_length() const { return cache_.capacity(); }
  // As resolved by ResolveSessionOptions.
  const SessionOptions& options() const { return options_; }
  const Model& model() const { return *model_; }

  // Makes the running call end soon. Async-signal-safe.
  void Cancel() { cancel_.store(true, std::memory_order_relaxed); }

  // Forgets all tokens.
  Status Reset();

  // Replace the tokens; what is computed of a common beginning stays. On failure nothing changes:
  // kContextFull for more tokens than the context holds, kInvalidArgument for ids outside the vocabulary.
  Status SetTokens(std::span<const int32_t> ids);
  Status SetText(std::string_view text, bool parse_special, bool add_bos);
  // Whether the conversation was truncated; see BuildChatPrompt.
  Result<bool> SetChat(const ChatRequest& request, size_t reserve_tokens);

  // A copy of prompt and answers so far.
  Result<std::vector<int32_t>> Tokens() const;

  // Copies the logits after the last token to logits[0, vocabulary of the tokenizer). kInvalidArgument for an
  // empty session or too small a buffer.
  Status CopyLogits(std::span<float> logits);

  // Log-probabilities (natural) of every token of every branch, each a way in which the session's text may go on: out[b][i] is that of
  // branches[b][i] after the text and branches[b][0, i). Tokens of the model's vocabulary without a text of their own have none, as in
  // CopyLogits. Branches that begin alike share that beginning, and all share the text: the cost is that of the distinct beginnings, in passes of
  // prefill_chunk tokens, and the result of a branch is bit for bit the one that it would have alone. The session's tokens stay.
  // kInvalidArgument: no text, an empty branch, an id outside the vocabulary; kContextFull: no room for the longest branch.
  Result<std::vector<std::vector<float>>> ScoreBranches(
      std::span<const std::vector<int32_t>> branches);

  // Answers the prompt; the answer's tokens join the session. On failure the tokens are those before the call.
  // kInvalidArgument: no prompt, options that make no sense; kContextFull: no room for an answer.
  Result<GenerateResult> Generate(const GenerateOptions& options, const TextSink& sink);

  // Windows of context_length() tokens. Not score_all: no overlap, the first half of each window unscored, BOS in
  // place of a window's first token if the model adds one, the last partial window dropped (as llama.cpp's
  // perplexity tool does). score_all: every token once, with at least half a window before it where the text has
  // it; the first token after BOS, else after the end-of-text token, else as likely as any token of the vocabulary.
  // Resets the session before and after.
  Result<PerplexityResult> Perplexity(std::string_view text, const PerplexityOptions& options,
                                      const ProgressSink& progress);

  // Times runs of random tokens. Forgets all tokens. kInvalidArgument; kContextFull if depth + tokens do not fit;
  // kCancelled by Cancel or by `progress`.
  Result<BenchmarkResult> Benchmark(const BenchmarkOptions& options, const ProgressSink& progress);

 private:
  // Marks the session as in use for one call.
  class Lease {
   public:
    explicit Lease(std::atomic<bool>* busy) : busy_(busy) {}
    Lease(Lease&& other) noexcept : busy_(std::exchange(other.busy_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (busy_ != nullptr) busy_->store(false, std::memory_order_release);
    }

   private:
    std::atomic<bool>* busy_;
  };

  friend class AnswerLoop;       // generate.cc
  friend class WindowPass;       // text_windows.cc
  friend class BenchmarkRunner;  // benchmark.cc
  friend class BranchPass;       // branches.cc

  Session(std::shared_ptr<Model> model, SessionOptions options, Decoder decoder, KvCache cache);

  Result<Lease> Acquire() const;
  Status ReplaceTokens(std::span<const int32_t> ids);
  void Truncate(size_t size);
  // Runs the tokens that are not computed yet; logits_ then follow the last one. On failure (kCancelled above
  // all) what was computed so far stays.
  Status ComputeLogits();
  // Runs one chunk of tokens at first_position …; with_logits: logits_ then follow its last token, those of ids
  // without a token being −infinity.
  Status ComputeRows(std::span<const int32_t> ids, size_t first_position, bool with_logits);

  std::shared_ptr<Model> model_;
  SessionOptions options_;
  Decoder decoder_;
  KvCache cache_;
  std::vector<int32_t> tokens_;
  size_t computed_ = 0;        // leading tokens whose keys and values are in cache_
  bool logits_valid_ = false;  // logits_ follow tokens_[0, computed_)
  std::vector<float> logits_;  // [vocab_size of the config]
  std::atomic<bool> cancel_{false};
  mutable std::atomic<bool> busy_{false};
};

}  // namespace pocketlm
