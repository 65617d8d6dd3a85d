// A loaded model: configuration, weights, tokenizer, chat template, and the backend that computes.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "chat/chat_template.h"
#include "model/config.h"
#include "model/model_source.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {

// Immutable apart from the backend, which sessions use in turns under compute_mutex(). Thread-safe.
class Model {
 public:
  // options.num_threads 0: AvailableCpus(). Weights stay mapped from the file, which must not change meanwhile.
  static Result<std::shared_ptr<Model>> Load(const std::string& path, BackendOptions options);

  const ModelConfig& config() const { return source_.config; }
  // The files behind the model. Its tokenizer member is empty: tokenizer() took it over.
  const ModelSource& source() const { return source_; }
  const ModelWeights& weights() const { return weights_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Null if the model has none.
  const ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  // Whether the template reads a content given as an array of parts as it reads the same text as a string.
  bool chat_template_takes_parts() const { return chat_template_takes_parts_; }
  // Ids that end an answer: the union of all that the files declare and the template's own end marker. Sorted.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool IsEndToken(int32_t id) const;
  // Ids of the vocabulary that no token has; a model must not choose them.
  const std::vector<int32_t>& unused_ids() const { return unused_ids_; }

  Backend& backend() { return *backend_; }
  // As loaded, with the number of threads that 0 stands for.
  const BackendOptions& backend_options() const { return backend_options_; }
  std::mutex& compute_mutex() { return compute_mutex_; }

  // The template variables bos_token and eos_token; empty if the model has none.
  std::string bos_text() const;
  std::string eos_text() const;

 private:
  Model() = default;
  void ProbeChatTemplate();
  void AddTemplateEndToken(const std::string& after_answer);

  ModelSource source_;
  ModelWeights weights_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  bool chat_template_takes_parts_ = false;
  std::vector<int32_t> end_tokens_;
  std::vector<int32_t> unused_ids_;
  BackendOptions backend_options_;
  std::unique_ptr<Backend> backend_;
  std::mutex compute_mutex_;
};

}  // namespace pocketlm
