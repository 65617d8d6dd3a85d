// PocketLM for C++: a thin RAII layer over pocketlm.h, header-only. Failures throw plm::Error; everything
// else (text, ownership, threads) is as in pocketlm.h.
#ifndef POCKETLM_POCKETLM_HPP_
#define POCKETLM_POCKETLM_HPP_

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pocketlm/convert.h"
#include "pocketlm/decide.h"
#include "pocketlm/measure.h"
#include "pocketlm/pocketlm.h"

namespace plm {

class Error : public std::runtime_error {
 public:
  Error(plm_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  plm_status status() const { return status_; }

 private:
  plm_status status_;
};

namespace internal {
inline void Check(plm_status status) {
  if (status != PLM_OK) throw Error(status, plm_last_error());
}
// Takes over a string that the C API allocated.
inline std::string TakeString(char* text) {
  std::unique_ptr<char, void (*)(char*)> owner(text, plm_string_free);
  return text != nullptr ? std::string(text) : std::string();
}
}  // namespace internal

// A tokenizer, owned (Load) or borrowed from a model (Model::tokenizer).
class Tokenizer {
 public:
  // From a GGUF file, a Hugging Face folder or a tokenizer.json.
  static Tokenizer Load(const std::string& path) {
    plm_tokenizer* handle = nullptr;
    internal::Check(plm_tokenizer_load(path.c_str(), &handle));
    return Tokenizer(std::shared_ptr<const plm_tokenizer>(
        handle, [](const plm_tokenizer* t) { plm_tokenizer_free(const_cast<plm_tokenizer*>(t)); }));
  }

  int32_t vocab_size() const { return plm_tokenizer_vocab_size(handle_.get()); }

  std::vector<int32_t> Encode(std::string_view text,
                              const plm_encode_options* options = nullptr) const {
    size_t count = 0;
    internal::Check(
        plm_tokenizer_encode(handle_.get(), text.data(), text.size(), options, nullptr, 0, &count));
    std::vector<int32_t> ids(count);
    internal::Check(plm_tokenizer_encode(handle_.get(), text.data(), text.size(), options,
                                         ids.data(), ids.size(), &count));
    return ids;
  }

  // The exact bytes of the ids.
  std::string Decode(const std::vector<int32_t>& ids) const {
    char* text = nullptr;
    size_t bytes = 0;
    internal::Check(plm_tokenizer_decode(handle_.get(), ids.data(), ids.size(), &text, &bytes));
    std::unique_ptr<char, void (*)(char*)> owner(text, plm_string_free);
    return std::string(text, bytes);
  }

  // Empty for an id outside the vocabulary.
  std::string_view Piece(int32_t id) const {
    size_t bytes = 0;
    const char* piece = plm_tokenizer_piece(handle_.get(), id, &bytes);
    return piece != nullptr ? std::string_view(piece, bytes) : std::string_view();
  }

 private:
  friend class Model;
  explicit Tokenizer(std::shared_ptr<const plm_tokenizer> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const plm_tokenizer> handle_;
};

// A loaded model; copies share it.
class Model {
 public:
  static Model Load(const std::string& path, const plm_model_options* options = nullptr) {
    plm_model* handle = nullptr;
    internal::Check(plm_model_load(path.c_str(), options, &handle));
    return Model(std::shared_ptr<plm_model>(handle, plm_model_free));
  }

  // Shares ownership of the model.
  Tokenizer tokenizer() const {
    return Tokenizer(
        std::shared_ptr<const plm_tokenizer>(handle_, plm_model_tokenizer(handle_.get())));
  }
  bool has_chat_template() const { return plm_model_has_chat_template(handle_.get()); }
  std::string Describe() const {
    char* json = nullptr;
    internal::Check(plm_model_describe(handle_.get(), &json));
    return internal::TakeString(json);
  }
  std::string RenderChat(const std::string& messages_json,
                         const plm_chat_options* options = nullptr) const {
    char* text = nullptr;
    size_t bytes = 0;
    internal::Check(
        plm_model_render_chat(handle_.get(), messages_json.c_str(), options, &text, &bytes));
    std::unique_ptr<char, void (*)(char*)> owner(text, plm_string_free);
    return std::string(text, bytes);
  }
  plm_model* get() const { return handle_.get(); }

 private:
  friend class Session;
  explicit Model(std::shared_ptr<plm_model> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<plm_model> handle_;
};

// Return true to go on, false to cancel. Must not throw.
using TextCallback = std::function<bool(std::string_view text)>;
using ProgressCallback = std::function<bool(double fraction)>;

namespace internal {
inline bool CallProgress(double fraction, void* user) {
  return (*static_cast<const ProgressCallback*>(user))(fraction);
}
}  // namespace internal

struct Generation {
  std::string text;
  plm_generate_result result;
};

struct Benchmark {
  plm_benchmark_result result;
  std::string profile_json;
};

// One conversation. Keeps its model alive.
class Session {
 public:
  explicit Session(const Model& model, const plm_session_options* options = nullptr)
      : model_(model) {
    plm_session* handle = nullptr;
    internal::Check(plm_session_create(model.get(), options, &handle));
    handle_.reset(handle);
  }

  uint32_t context_length() const { return plm_session_context_length(handle_.get()); }
  void Reset() { internal::Check(plm_session_reset(handle_.get())); }
  void Cancel() { plm_session_cancel(handle_.get()); }

  void SetText(std::string_view text, const plm_encode_options* options = nullptr) {
    internal::Check(plm_session_set_text(handle_.get(), text.data(), text.size(), options));
  }
  // Returns whether the prompt was shortened.
  bool SetChat(const std::string& messages_json, const plm_chat_options* options = nullptr) {
    bool truncated = false;
    internal::Check(
        plm_session_set_chat(handle_.get(), messages_json.c_str(), options, &truncated));
    return truncated;
  }
  void SetTokens(const std::vector<int32_t>& ids) {
    internal::Check(plm_session_set_tokens(handle_.get(), ids.data(), ids.size()));
  }
  std::vector<int32_t> Tokens() const {
    size_t count = 0;
    internal::Check(plm_session_tokens(handle_.get(), nullptr, 0, &count));
    std::vector<int32_t> ids(count);
    internal::Check(plm_session_tokens(handle_.get(), ids.data(), ids.size(), &count));
    return ids;
  }
  std::vector<float> Logits() {
    std::vector<float> logits(static_cast<size_t>(model_.tokenizer().vocab_size()));
    internal::Check(plm_session_logits(handle_.get(), logits.data(), logits.size()));
    return logits;
  }

  Generation Generate(const plm_generate_options* options = nullptr,
                      const TextCallback& callback = {}) {
    Generation out;
    out.result.size_bytes = sizeof(out.result);
    char* text = nullptr;
    const plm_text_callback trampoline = [](const char* piece, size_t bytes, void* user) {
      return (*static_cast<const TextCallback*>(user))(std::string_view(piece, bytes));
    };
    internal::Check(plm_session_generate(handle_.get(), options, callback ? trampoline : nullptr,
                                         const_cast<TextCallback*>(&callback), &text, &out.result));
    std::unique_ptr<char, void (*)(char*)> owner(text, plm_string_free);
    out.text.assign(text, out.result.text_bytes);
    return out;
  }

  plm_perplexity_result Perplexity(std::string_view text,
                                   const plm_perplexity_options* options = nullptr,
                                   const ProgressCallback& progress = {}) {
    plm_perplexity_result result;
    result.size_bytes = sizeof(result);
    internal::Check(plm_session_perplexity(handle_.get(), text.data(), text.size(), options,
                                           progress ? internal::CallProgress : nullptr,
                                           const_cast<ProgressCallback*>(&progress), &result));
    return result;
  }

  // JSON; see plm_session_describe.
  std::string Describe() const {
    char* json = nullptr;
    internal::Check(plm_session_describe(handle_.get(), &json));
    return internal::TakeString(json);
  }

  Benchmark Time(const plm_benchmark_options* options = nullptr,
                 const ProgressCallback& progress = {}) {
    Benchmark out;
    out.result.size_bytes = sizeof(out.result);
    char* profile = nullptr;
    internal::Check(
        plm_session_benchmark(handle_.get(), options, progress ? internal::CallProgress : nullptr,
                              const_cast<ProgressCallback*>(&progress), &out.result, &profile));
    out.profile_json = internal::TakeString(profile);
    return out;
  }

  plm_session* get() const { return handle_.get(); }

 private:
  struct Free {
    void operator()(plm_session* session) const { plm_session_free(session); }
  };
  Model model_;
  std::unique_ptr<plm_session, Free> handle_;
};

// Two sessions, text by text; see plm_comparison. Both must outlive this object.
class Comparison {
 public:
  Comparison(Session* a, Session* b, const plm_perplexity_options* options = nullptr) {
    plm_comparison* handle = nullptr;
    internal::Check(plm_comparison_create(a->get(), b->get(), options, &handle));
    handle_.reset(handle);
  }

  plm_comparison_result Add(std::string_view text, const ProgressCallback& progress = {}) {
    plm_comparison_result result;
    result.size_bytes = sizeof(result);
    internal::Check(plm_comparison_add(handle_.get(), text.data(), text.size(),
                                       progress ? internal::CallProgress : nullptr,
                                       const_cast<ProgressCallback*>(&progress), &result));
    return result;
  }

  plm_comparison_result Total() const {
    plm_comparison_result result;
    result.size_bytes = sizeof(result);
    internal::Check(plm_comparison_total(handle_.get(), &result));
    return result;
  }

 private:
  struct Free {
    void operator()(plm_comparison* comparison) const { plm_comparison_free(comparison); }
  };
  std::unique_ptr<plm_comparison, Free> handle_;
};

// Decisions with a session, which must outlive this object.
class Decider {
 public:
  explicit Decider(Session* session) {
    plm_decider* handle = nullptr;
    internal::Check(plm_decider_create(session->get(), &handle));
    handle_.reset(handle);
  }

  // JSON in and out; see plm_decider_decide.
  std::string Decide(const std::string& request_json) {
    char* json = nullptr;
    internal::Check(plm_decider_decide(handle_.get(), request_json.c_str(), &json));
    return internal::TakeString(json);
  }

 private:
  struct Free {
    void operator()(plm_decider* decider) const { plm_decider_free(decider); }
  };
  std::unique_ptr<plm_decider, Free> handle_;
};

// JSON; see plm_inspect_tensors. `against` may be empty: nothing.
inline std::string InspectTensors(const std::string& path, const std::string& against = "",
                                  int32_t num_threads = 0, const ProgressCallback& progress = {}) {
  char* json = nullptr;
  internal::Check(plm_inspect_tensors(path.c_str(), against.empty() ? nullptr : against.c_str(),
                                      num_threads, progress ? internal::CallProgress : nullptr,
                                      const_cast<ProgressCallback*>(&progress), &json));
  return internal::TakeString(json);
}

// Memory of this process; see plm_measure_memory.
inline plm_memory_usage MeasureMemory() {
  plm_memory_usage result;
  result.size_bytes = sizeof(result);
  internal::Check(plm_measure_memory(&result));
  return result;
}

// `path` may be empty: no file.
inline plm_read_bandwidth MeasureReadBandwidth(const std::string& path, int32_t num_threads) {
  plm_read_bandwidth result;
  result.size_bytes = sizeof(result);
  internal::Check(
      plm_measure_read_bandwidth(path.empty() ? nullptr : path.c_str(), num_threads, &result));
  return result;
}

inline std::string DescribeMachine() {
  char* json = nullptr;
  internal::Check(plm_describe_machine(&json));
  return internal::TakeString(json);
}

inline plm_model_identity IdentifyModel(const std::string& path) {
  plm_model_identity result;
  result.size_bytes = sizeof(result);
  internal::Check(plm_identify_model(path.c_str(), &result));
  return result;
}

// The report as JSON; see plm_convert.
inline std::string Convert(const std::string& input, const std::string& output,
                           const plm_convert_options* options = nullptr,
                           const ProgressCallback& progress = {}) {
  char* json = nullptr;
  internal::Check(plm_convert(input.c_str(), output.c_str(), options,
                              progress ? internal::CallProgress : nullptr,
                              const_cast<ProgressCallback*>(&progress), &json));
  return internal::TakeString(json);
}

// The report as JSON; see plm_new_model.
inline std::string NewModel(const std::string& output,
                            const plm_new_model_options* options = nullptr,
                            const ProgressCallback& progress = {}) {
  char* json = nullptr;
  internal::Check(plm_new_model(output.c_str(), options,
                                progress ? internal::CallProgress : nullptr,
                                const_cast<ProgressCallback*>(&progress), &json));
  return internal::TakeString(json);
}

// The report as JSON; see plm_prune_vocab.
inline std::string PruneVocab(const std::string& input, const std::string& output,
                              const plm_prune_vocab_options& options,
                              const ProgressCallback& progress = {}) {
  char* json = nullptr;
  internal::Check(plm_prune_vocab(input.c_str(), output.c_str(), &options,
                                  progress ? internal::CallProgress : nullptr,
                                  const_cast<ProgressCallback*>(&progress), &json));
  return internal::TakeString(json);
}

}  // namespace plm

#endif  // POCKETLM_POCKETLM_HPP_
