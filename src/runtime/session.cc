#include "runtime/session.h"

#include <algorithm>
#include <limits>

#include "base/log.h"

namespace pocketlm {

namespace {

Status ResolveKvType(const char* what, const ModelConfig& config, KvType* type) {
  if (KvTypeFits(*type, config.head_dim)) return OkStatus();
  if (*type == KvType::kI8) {
    *type = KvType::kF16;
    return OkStatus();
  }
  return Unsupported(std::string("session: ") + what + ": expected a type that holds heads of " +
                     std::to_string(config.head_dim) + " values, got " + KvTypeName(*type) +
                     "; use f16");
}

}  // namespace

const char* KvTypeName(KvType type) {
  switch (type) {
    case KvType::kF32:
      return "f32";
    case KvType::kF16:
      return "f16";
    case KvType::kI8:
      return "int8";
    case KvType::kI4:
      return "int4";
  }
  return "f16";
}

Result<SessionOptions> ResolveSessionOptions(const SessionOptions& options,
                                             const ModelConfig& config) {
  SessionOptions out = options;
  if (out.context_length == 0)
    out.context_length = std::min(config.max_position_embeddings, kDefaultContextLength);
  if (out.context_length > config.max_position_embeddings) {
    return InvalidArgument("session: context_length: expected at most " +
                           std::to_string(config.max_position_embeddings) +
                           " (the model's limit), got " + std::to_string(out.context_length));
  }
  if (out.prefill_chunk == 0 || out.prefill_chunk > kMaxPrefillChunk) {
    return InvalidArgument("session: prefill_chunk: expected 1 to " +
                           std::to_string(kMaxPrefillChunk) + ", got " +
                           std::to_string(out.prefill_chunk));
  }
  out.prefill_chunk = std::min(out.prefill_chunk, out.context_length);
  POCKETLM_RETURN_IF_ERROR(ResolveKvType("kv_k_type", config, &out.kv_k_type));
  POCKETLM_RETURN_IF_ERROR(ResolveKvType("kv_v_type", config, &out.kv_v_type));
  return out;
}

Session::Session(std::shared_ptr<Model> model, SessionOptions options, Decoder decoder,
                 KvCache cache)
    : model_(std::move(model)),
      options_(options),
      decoder_(std::move(decoder)),
      cache_(std::move(cache)) {}

Result<std::unique_ptr<Session>> Session::Create(std::shared_ptr<Model> model,
                                                 const SessionOptions& options) {
  const ModelConfig& config = model->config();
  POCKETLM_ASSIGN_OR_RETURN(const SessionOptions resolved, ResolveSessionOptions(options, config));
  if (resolved.kv_k_type == KvType::kI4) {
    Log(LogLevel::kWarning,
        "session: keys in int4: some models (the Qwen2 family above all) then answer badly, most "
        "of all on "
        "long prompts; int8 keys are safe, with int4 values if memory is short");
  }
  POCKETLM_ASSIGN_OR_RETURN(
      Decoder decoder,
      Decoder::Create(config, model->weights(), &model->backend(), resolved.prefill_chunk));
  POCKETLM_ASSIGN_OR_RETURN(KvCache cache, KvCache::Create(config, resolved.context_length,
                                                           resolved.kv_k_type, resolved.kv_v_type));
  return std::unique_ptr<Session>(
      new Session(std::move(model), resolved, std::move(decoder), std::move(cache)));
}

Result<Session::Lease> Session::Acquire() const {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    return Busy(
        "session: another call is running on this session; wait for it, or use a session of its "
        "own");
  }
  return Lease(&busy_);
}

Status Session::Reset() {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  Truncate(0);
  return OkStatus();
}

// Keeps the first `size` tokens.
void Session::Truncate(size_t size) {
  tokens_.resize(size);
  if (computed_ > size) {
    computed_ = size;
    logits_valid_ = false;
  }
}

Status Session::ReplaceTokens(std::span<const int32_t> ids) {
  if (ids.size() > context_length()) {
    return ContextFull("session: the prompt has " + std::to_string(ids.size()) +
                       " tokens, the context holds " + std::to_string(context_length()) +
                       "; shorten it or enlarge the context");
  }
  for (int32_t id : ids) {
    if (!model_->tokenizer().IsValid(id)) {
      return InvalidArgument("session: expected token ids of the vocabulary (below " +
                             std::to_string(model_->tokenizer().vocab_size()) + "), got " +
                             std::to_string(id));
    }
  }
  const size_t common = static_cast<size_t>(
      std::mismatch(tokens_.begin(), tokens_.end(), ids.begin(), ids.end()).first -
      tokens_.begin());
  Truncate(common);
  tokens_.assign(ids.begin(), ids.end());
  return OkStatus();
}

Status Session::SetTokens(std::span<const int32_t> ids) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  return ReplaceTokens(ids);
}

Status Session::SetText(std::string_view text, bool parse_special, bool add_bos) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  const Tokenizer& tokenizer = model_->tokenizer();
  Tokenizer::EncodeOptions options;
  options.parse_special = parse_special;
  std::vector<int32_t> ids = tokenizer.Encode(text, options);
  // A text that already begins with BOS does not get a second one.
  if (add_bos && tokenizer.add_bos() && (ids.empty() || ids.front() != tokenizer.bos_id())) {
    ids.insert(ids.begin(), tokenizer.bos_id());
  }
  return ReplaceTokens(ids);
}

Result<bool> Session::SetChat(const ChatRequest& request, size_t reserve_tokens) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  POCKETLM_ASSIGN_OR_RETURN(const ChatPrompt prompt,
                            BuildChatPrompt(*model_, request, context_length(), reserve_tokens));
  POCKETLM_RETURN_IF_ERROR(ReplaceTokens(prompt.ids));
  return prompt.truncated;
}

Result<std::vector<int32_t>> Session::Tokens() const {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  return tokens_;
}

Status Session::ComputeLogits() {
  if (tokens_.empty()) return InvalidArgument("session: there is no prompt to compute");
  if (logits_valid_ && computed_ == tokens_.size()) return OkStatus();
  // The logits of a prompt that is computed whole come from running its last token again.
  if (computed_ == tokens_.size()) --computed_;
  logits_valid_ = false;
  while (computed_ < tokens_.size()) {
    const size_t rows = std::min(tokens_.size() - computed_, decoder_.max_rows());
    const bool last = computed_ + rows == tokens_.size();
    POCKETLM_RETURN_IF_ERROR(
        ComputeRows(std::span(tokens_).subspan(computed_, rows), computed_, last));
    computed_ += rows;
  }
  logits_valid_ = true;
  return OkStatus();
}

Status Session::ComputeRows(std::span<const int32_t> ids, size_t first_position, bool with_logits) {
  {
    std::lock_guard<std::mutex> lock(model_->compute_mutex());
    POCKETLM_RETURN_IF_ERROR(decoder_.Forward(ids, first_position, &cache_, &cancel_));
    if (!with_logits) return OkStatus();
    logits_.resize(model_->config().vocab_size);
    decoder_.Logits(ids.size() - 1, 1, logits_.data());
  }
  for (int32_t id : model_->unused_ids()) {
    logits_[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
  }
  return OkStatus();
}

Status Session::CopyLogits(std::span<float> logits) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  cancel_.store(false, std::memory_order_relaxed);
  const size_t size = static_cast<size_t>(model_->tokenizer().vocab_size());
  if (logits.size() < size) {
    return InvalidArgument("session: logits: expected room for " + std::to_string(size) +
                           " values, got " + std::to_string(logits.size()));
  }
  POCKETLM_RETURN_IF_ERROR(ComputeLogits());
  std::copy_n(logits_.begin(), size, logits.begin());
  return OkStatus();
}

}  // namespace pocketlm
