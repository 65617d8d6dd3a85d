#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/cpu_info.h"
#include "base/log.h"

namespace pocketlm {

Result<std::shared_ptr<Model>> Model::Load(const std::string& path, BackendOptions options) {
  if (options.num_threads < 0 || options.num_threads > 1024) {
    return InvalidArgument("load: num_threads: expected 0 to 1024, got " +
                           std::to_string(options.num_threads));
  }
  if (options.num_threads == 0) options.num_threads = AvailableCpus();
  std::shared_ptr<Model> model(new Model());
  model->backend_options_ = options;
  POCKETLM_ASSIGN_OR_RETURN(model->source_, OpenModelSource(path));
  const ModelSource& source = model->source_;
  source.PrefetchWeights();
  auto weights = CollectWeights(
      source.config, [&source](const std::string& hf_name, const std::string& gguf_name) {
        return source.Find(hf_name, gguf_name);
      });
  if (!weights.ok()) return weights.status().WithContext(path);
  model->weights_ = std::move(weights).value();

  auto tokenizer = Tokenizer::Create(std::move(model->source_.tokenizer));
  if (!tokenizer.ok()) return tokenizer.status().WithContext(path);
  model->tokenizer_ = std::move(tokenizer).value();
  // More tokens than rows would let a text index past the table; more rows than tokens are padding.
  if (static_cast<uint32_t>(model->tokenizer_->vocab_size()) > source.config.vocab_size) {
    return DataError(
        path + ": expected a tokenizer of at most " + std::to_string(source.config.vocab_size) +
        " tokens (rows of embed_tokens), got " + std::to_string(model->tokenizer_->vocab_size()));
  }
  if (source.chat_template) {
    auto parsed = ChatTemplate::Parse(*source.chat_template);
    if (!parsed.ok()) return parsed.status().WithContext(path);
    model->chat_template_ = std::move(parsed).value();
  }
  for (int32_t id : source.end_tokens) {
    // A config may name ids of another vocabulary; such a token can never be sampled.
    if (id >= 0 && id < model->tokenizer_->vocab_size()) model->end_tokens_.push_back(id);
  }
  if (model->chat_template_) model->ProbeChatTemplate();
  for (int32_t id = 0; id < model->tokenizer_->vocab_size(); ++id) {
    if (!model->tokenizer_->IsValid(id)) model->unused_ids_.push_back(id);
  }
  POCKETLM_ASSIGN_OR_RETURN(model->backend_, CreateCpuBackend(options));
  return model;
}

// Learns from test conversations what a template does not declare.
void Model::ProbeChatTemplate() {
  const std::string probe = "pocketlm probe";
  const auto render = [&](const nlohmann::ordered_json& first_content) {
    RenderInput input;
    input.messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", first_content}},
                                                    {{"role", "assistant"}, {"content", probe}},
                                                    {{"role", "user"}, {"content", "x"}}});
    input.add_generation_prompt = false;
    input.bos_token = bos_text();
    input.eos_token = eos_text();
    return chat_template_->Render(input);
  };
  const auto rendered = render("x");
  if (!rendered.ok()) {
    Log(LogLevel::kInfo,
        "load: no end marker taken from the chat template: " + rendered.status().message());
    return;
  }
  const auto as_parts = render(nlohmann::ordered_json::array({{{"type", "text"}, {"text", "x"}}}));
  chat_template_takes_parts_ = as_parts.ok() && as_parts->text == rendered->text;
  const size_t answer = rendered->text.find(probe);
  if (answer != std::string::npos)
    AddTemplateEndToken(rendered->text.substr(answer + probe.size()));
}

// The control token that the template writes right after an assistant's message ends an answer, whether or not
// the file says so.
void Model::AddTemplateEndToken(const std::string& after_answer) {
  Tokenizer::EncodeOptions options;
  options.parse_special = true;
  for (int32_t id : tokenizer_->Encode(after_answer, options)) {
    if (!tokenizer_->IsControl(id)) {
      // White space may stand between answer and marker; any other text means that there is no marker.
      const std::string_view bytes = tokenizer_->TokenBytes(id);
      if (bytes.find_first_not_of(" \n\r\t") == std::string_view::npos) continue;
      return;
    }
    // What opens the next turn of a template without markers is not an end.
    if (id == tokenizer_->bos_id() && id != tokenizer_->eos_id()) return;
    if (!IsEndToken(id)) {
      end_tokens_.push_back(id);
      std::sort(end_tokens_.begin(), end_tokens_.end());
    }
    return;
  }
}

bool Model::IsEndToken(int32_t id) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), id);
}

std::string Model::bos_text() const {
  return tokenizer_->bos_id() < 0 ? "" : std::string(tokenizer_->TokenBytes(tokenizer_->bos_id()));
}

std::string Model::eos_text() const {
  return tokenizer_->eos_id() < 0 ? "" : std::string(tokenizer_->TokenBytes(tokenizer_->eos_id()));
}

}  // namespace pocketlm
