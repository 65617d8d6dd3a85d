#include "generation_flags.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli_error.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

constexpr double kFloatMax = 1e30;
constexpr size_t kShownBytes = 200;  // of a wrong value in a message

plm_kv_type KvType(const std::string& name) {
  if (name == "f32") return PLM_KV_F32;
  if (name == "int8") return PLM_KV_INT8;
  return name == "int4" ? PLM_KV_INT4 : PLM_KV_F16;
}

plm_logit_bias ParseLogitBias(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string id = text.substr(0, equals);
  const std::string bias = equals == std::string::npos ? "" : text.substr(equals + 1);
  const bool digits =
      !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
  char* end = nullptr;
  const float value = std::strtof(bias.c_str(), &end);
  const bool number = !bias.empty() && *end == '\0' && !std::isnan(value) && value < HUGE_VALF;
  if (!digits || !number) {
    FailUsage("--logit-bias: expected ID=BIAS as in 42=-5 or 42=-inf, got \"" + text + "\"");
  }
  return {static_cast<int32_t>(std::strtol(id.c_str(), nullptr, 10)), value};
}

// Digits only: the parser itself would take -1 for 2^64 - 1.
CLI::Validator WholeNumber() {
  return CLI::Validator(
      [](std::string& text) {
        errno = 0;
        std::strtoull(text.c_str(), nullptr, 10);
        const bool good = !text.empty() && errno == 0 &&
                          text.find_first_not_of("0123456789") == std::string::npos;
        return good ? std::string()
                    : "expected a whole number of at most 64 bits, got \"" + text + "\"";
      },
      "");
}

}  // namespace

CLI::Validator NumberIn(double low, double high) {
  const std::string range = Printf("%.15g to %.15g", low, high);
  return CLI::Validator(
      [low, high, range](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good =
            !text.empty() && *end == '\0' && value >= low && value <= high;  // not for NaN
        return good ? std::string() : "expected a number from " + range + ", got \"" + text + "\"";
      },
      "");
}

void SessionFlags::AddTo(CLI::App& command, const std::string& context_help) {
  command.add_option("--threads", threads, "Threads; 0 (default): what this machine grants")
      ->check(NumberIn(0, 1024));
  command.add_option("--ctx", context_length, context_help)->check(NumberIn(0, 1 << 24));
  AddCacheFlagsTo(command);
}

void SessionFlags::AddCacheFlagsTo(CLI::App& command) {
  command
      .add_option("--chunk", prefill_chunk,
                  "Prompt tokens computed at once, 1 to 4096 (default 128)")
      ->check(NumberIn(1, 4096));
  const CLI::IsMember types({"f32", "f16", "int8", "int4"});
  command
      .add_option("--kv-k", kv_k,
                  "Type of the cached keys: f32, f16, int8 (default), or int4, which some models "
                  "bear badly")
      ->check(types);
  command.add_option("--kv-v", kv_v, "Type of the cached values: f32, f16, int8 (default) or int4")
      ->check(types);
}

void SessionFlags::AddActivationsTo(CLI::App& command) {
  command
      .add_option("--activations", activations,
                  "How activations meet quantized weights: int8 (default), or f32, slow, for "
                  "accuracy studies")
      ->check(CLI::IsMember({"int8", "f32"}));
}

plm_model_options SessionFlags::ModelOptions() const {
  plm_model_options options = plm_model_options_default();
  options.num_threads = threads;
  options.activations = activations == "f32" ? PLM_ACTIVATIONS_F32 : PLM_ACTIVATIONS_INT8;
  return options;
}

plm_session_options SessionFlags::SessionOptions() const {
  plm_session_options options = plm_session_options_default();
  if (context_length != 0) options.context_length = context_length;
  if (prefill_chunk != 0) options.prefill_chunk = prefill_chunk;
  options.kv_k_type = KvType(kv_k);
  options.kv_v_type = KvType(kv_v);
  return options;
}

void GenerationFlags::AddTo(CLI::App& command) {
  command
      .add_option(
          "-n", max_tokens,
          "Tokens of the answer at most; -1 (default): until it ends or the context is full")
      ->check(NumberIn(-1, 1 << 30));
  command.add_option("--temp", temperature, "Temperature; 0 (default): always the likeliest token")
      ->check(NumberIn(0, 100));
  command.add_option("--top-k", top_k, "Sample among the K likeliest tokens; 0 (default): all")
      ->check(NumberIn(0, 1 << 30));
  command
      .add_option("--top-p", top_p,
                  "Sample among the likeliest tokens that sum up to P; 1 (default): all")
      ->check(NumberIn(0, 1));
  command
      .add_option("--min-p", min_p, "Drop tokens below P times the likeliest; 0 (default): none")
      ->check(NumberIn(0, 1));
  command
      .add_option("--repeat-penalty", repetition_penalty,
                  "Divide the logits of tokens seen; 1 (default): off")
      ->check(NumberIn(1e-6, kFloatMax));
  command
      .add_option("--presence-penalty", presence_penalty,
                  "Subtract once per token of the answer; 0 (default)")
      ->check(NumberIn(-kFloatMax, kFloatMax));
  command
      .add_option("--frequency-penalty", frequency_penalty,
                  "Subtract per occurrence in the answer; 0 (default)")
      ->check(NumberIn(-kFloatMax, kFloatMax));
  command
      .add_option("--logit-bias", logit_bias_texts,
                  "ID=BIAS: add to a token's logit, -inf bans it (repeatable)")
      ->allow_extra_args(false);
  command.add_option("--seed", seed, "Seed of the sampler (default 0)")->check(WholeNumber());
  command.add_option("--stop", stop, "Text that ends the answer (repeatable)")
      ->allow_extra_args(false);
  command.add_flag("--ignore-eos", ignore_end_tokens, "Go on after an end token");
}

plm_generate_options GenerationFlags::Options() {
  logit_bias_.clear();
  for (const std::string& text : logit_bias_texts) logit_bias_.push_back(ParseLogitBias(text));
  stop_pointers_.clear();
  for (const std::string& text : stop) stop_pointers_.push_back(text.c_str());
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = max_tokens;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  options.min_p = min_p;
  options.repetition_penalty = repetition_penalty;
  options.presence_penalty = presence_penalty;
  options.frequency_penalty = frequency_penalty;
  options.seed = seed;
  options.logit_bias = logit_bias_.data();
  options.logit_bias_count = logit_bias_.size();
  options.stop = stop_pointers_.data();
  options.stop_count = stop_pointers_.size();
  options.ignore_end_tokens = ignore_end_tokens;
  return options;
}

void PromptFlags::AddTo(CLI::App& command) {
  command.add_option("--system", system, "System message");
  command.add_option("--tools", tools_file,
                     "FILE with a JSON array of tool definitions, for the chat template");
  command.add_option(
      "--template-vars", template_variables,
      "JSON object of further template variables, as in {\"enable_thinking\": false}");
}

plm_chat_options PromptFlags::Options() {
  plm_chat_options options = plm_chat_options_default();
  if (!tools_file.empty()) {
    tools_json_ = ReadWholeFile(tools_file);
    if (!nlohmann::json::parse(tools_json_, nullptr, false).is_array()) {
      Fail("--tools: " + tools_file +
           ": expected a JSON array of tools, got something else; check the file");
    }
    options.tools_json = tools_json_.c_str();
  }
  if (!template_variables.empty()) {
    if (!nlohmann::json::parse(template_variables, nullptr, false).is_object()) {
      FailUsage("--template-vars: expected a JSON object, got \"" +
                template_variables.substr(0, kShownBytes) + "\"");
    }
    options.extra_json = template_variables.c_str();
  }
  return options;
}

}  // namespace pocketlm::cli
