// The flags that run and chat (and, in part, perplexity, diff, inspect and bench) share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "pocketlm/pocketlm.hpp"

namespace pocketlm::cli {

// Tokens of a window of perplexity and diff, unless --ctx says otherwise.
inline constexpr uint32_t kDefaultWindow = 512;

// --threads, --ctx, --chunk, --kv-k, --kv-v, --activations
struct SessionFlags {
  int32_t threads = 0;
  uint32_t context_length = 0;
  uint32_t prefill_chunk = 0;
  std::string kv_k = "int8";
  std::string kv_v = "int8";
  std::string activations = "int8";

  void AddTo(CLI::App& command, const std::string& context_help);
  // --chunk, --kv-k, --kv-v
  void AddCacheFlagsTo(CLI::App& command);
  void AddActivationsTo(CLI::App& command);
  plm_model_options ModelOptions() const;
  plm_session_options SessionOptions() const;
};

// -n, the sampler's flags, --stop, --ignore-eos
struct GenerationFlags {
  int32_t max_tokens = -1;
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint64_t seed = 0;
  std::vector<std::string> logit_bias_texts;  // "ID=BIAS"
  std::vector<std::string> stop;
  bool ignore_end_tokens = false;

  void AddTo(CLI::App& command);

  // Valid while this object lives and is not changed. Throws CliError (usage) for a malformed --logit-bias.
  plm_generate_options Options();

 private:
  std::vector<plm_logit_bias> logit_bias_;
  std::vector<const char*> stop_pointers_;
};

// --system, --tools, --template-vars
struct PromptFlags {
  std::string system;
  std::string tools_file;
  std::string template_variables;

  void AddTo(CLI::App& command);

  // Reads and checks the JSON that the options point to; valid while this object lives and is not changed.
  // Throws CliError.
  plm_chat_options Options();

  // Whether one is given that only a chat template can use.
  bool NeedsTemplate() const {
    return !system.empty() || !tools_file.empty() || !template_variables.empty();
  }

 private:
  std::string tools_json_;
};

// Accepts finite numbers in [low, high].
CLI::Validator NumberIn(double low, double high);

}  // namespace pocketlm::cli
