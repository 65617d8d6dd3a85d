#include "bench_parts.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "cli_error.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"

namespace pocketlm::cli {
namespace {

constexpr uint32_t kMemoryTokensIn = 1024;
constexpr uint32_t kMemoryTokensOut = 128;
constexpr uint32_t kStartupTokens = 16;

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

uint32_t ContextLimit(const plm::Model& model) {
  const Json description = Json::parse(model.Describe(), nullptr, false);
  return description.is_object() ? description.value("context_length", 0u) : 0;
}

// Ids spread over the vocabulary, the same every time.
std::vector<int32_t> SomeTokens(const plm::Model& model, uint32_t count) {
  const plm::Tokenizer tokenizer = model.tokenizer();
  const auto size = static_cast<uint32_t>(tokenizer.vocab_size());
  std::vector<int32_t> ids;
  uint32_t state = 1;
  for (uint32_t tries = 0; ids.size() < count && tries < 64 * (count + 64); ++tries) {
    state = state * 1664525u + 1013904223u;
    const auto id = static_cast<int32_t>((state >> 8) % std::max(size, 1u));
    if (!tokenizer.Piece(id).empty()) ids.push_back(id);
  }
  return ids;
}

// Takes the larger of each figure.
void Raise(plm_memory_usage* peak) {
  const plm_memory_usage now = plm::MeasureMemory();
  peak->peak_rss_bytes = std::max(peak->peak_rss_bytes, now.peak_rss_bytes);
  peak->anonymous_bytes = std::max(peak->anonymous_bytes, now.anonymous_bytes);
  peak->file_bytes = std::max(peak->file_bytes, now.file_bytes);
  peak->swap_bytes = std::max(peak->swap_bytes, now.swap_bytes);
}

Json MeasureMemoryPart(const std::string& path, SessionFlags flags) {
  const plm_model_options model_options = flags.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  // The limit of a small model is shared in the same proportion.
  const uint32_t context = std::min(ContextLimit(model), kMemoryTokensIn + kMemoryTokensOut);
  const uint32_t tokens_out = std::max(context / 9, 1u);
  flags.context_length = context;
  const plm_session_options session_options = flags.SessionOptions();
  plm::Session session(model, &session_options);
  session.SetTokens(SomeTokens(model, context - tokens_out));
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = static_cast<int32_t>(tokens_out);
  options.ignore_end_tokens = true;
  plm_memory_usage peak = {};
  const plm::Generation answer = session.Generate(&options, [&peak](std::string_view) {
    Raise(&peak);
    return true;
  });
  Raise(&peak);
  Json report = MemoryJson(peak);
  report["tokens_in"] = answer.result.tokens_in;
  report["tokens_out"] = answer.result.tokens_out;
  report.update(Json::parse(session.Describe(), nullptr, false));
  return report;
}

Json MeasureStartupPart(const std::string& path, SessionFlags flags) {
  const Clock::time_point start = Clock::now();
  const plm_model_options model_options = flags.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  const plm_session_options session_options = flags.SessionOptions();
  plm::Session session(model, &session_options);
  const double load_ms = MillisecondsSince(start);
  const uint32_t room = std::max(session.context_length(), 2u) - 1;
  const std::vector<int32_t> prompt = SomeTokens(model, std::min(kStartupTokens, room));
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = 1;
  double first_token_ms[2] = {};
  for (double& ms : first_token_ms) {
    session.Reset();
    session.SetTokens(prompt);
    ms = session.Generate(&options).result.first_token_ms;
  }
  return {{"load_ms", load_ms},
          {"first_token_ms", first_token_ms[0]},
          {"warm_first_token_ms", first_token_ms[1]},
          {"tokens_in", prompt.size()}};
}

}  // namespace

void RunBenchPart(const std::string& part, const std::string& path, SessionFlags flags) {
  plm_set_log_callback(nullptr, nullptr);  // the process that asked has warned
  if (part == "memory") {
    PrintJson(MeasureMemoryPart(path, std::move(flags)));
  } else if (part == "startup") {
    PrintJson(MeasureStartupPart(path, std::move(flags)));
  } else {
    const plm_read_bandwidth measured = plm::MeasureReadBandwidth(path, flags.threads);
    PrintJson(
        {{"file_bytes_s", measured.file_bytes_s}, {"buffer_bytes_s", measured.buffer_bytes_s}});
  }
}

Json MeasureBenchPart(const std::string& part, const std::string& path, const SessionFlags& flags) {
  std::vector<std::string> arguments = {
      "bench",  path,       "--part", part,       "--threads",     std::to_string(flags.threads),
      "--kv-k", flags.kv_k, "--kv-v", flags.kv_v, "--activations", flags.activations};
  if (flags.prefill_chunk != 0) {
    arguments.push_back("--chunk");
    arguments.push_back(std::to_string(flags.prefill_chunk));
  }
  const std::optional<std::string> output = RunSelf(arguments);
  const Json report = Json::parse(output.value_or(""), nullptr, false);
  if (!report.is_object()) {
    Fail("bench: " + part +
         ": expected a report from a process of its own, got none; try `pocketlm bench " + path +
         " --part " + part + "`");
  }
  return report;
}

}  // namespace pocketlm::cli
