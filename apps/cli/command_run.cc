// pocketlm run: one prompt, one answer.
#include <algorithm>
#include <chrono>
#include <memory>

#include "cli_error.h"
#include "commands.h"
#include "generation_flags.h"
#include "model_files.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"
#include "progress.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

constexpr uint32_t kAnswerReserveTokens = 256;

struct RunFlags {
  std::string model;
  std::string text;
  std::string file;
  CLI::Option* text_option = nullptr;
  bool raw = false;
  bool truncate = false;
  bool json = false;
  SessionFlags session;
  GenerationFlags generation;
  PromptFlags prompt;
};

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double PerSecond(uint32_t tokens, double milliseconds) {
  return milliseconds > 0 && tokens > 0 ? tokens * 1e3 / milliseconds : 0;
}

double PrefillRate(const plm_generate_result& result) {
  return PerSecond(result.tokens_in - std::min(result.tokens_in, result.tokens_cached),
                   result.prefill_ms);
}

double DecodeRate(const plm_generate_result& result) {  // the first token is not in decode_ms
  return PerSecond(result.tokens_out > 0 ? result.tokens_out - 1 : 0, result.decode_ms);
}

const char* FinishName(plm_finish_reason reason) {
  switch (reason) {
    case PLM_FINISH_STOP:
      return "stop";
    case PLM_FINISH_LENGTH:
      return "length";
    case PLM_FINISH_CANCELLED:
      return "cancelled";
  }
  return "stop";
}

// Tokens that a shortened prompt leaves for the answer.
uint32_t Reserve(const RunFlags& flags, uint32_t context_length) {
  const int32_t wanted = flags.generation.max_tokens;
  const uint32_t reserve = wanted > 0 ? static_cast<uint32_t>(wanted) : kAnswerReserveTokens;
  return std::min(reserve, context_length / 2);
}

// Raw text that is too long keeps its end, and the BOS if there is one.
bool SetTextTruncated(const plm::Model& model, plm::Session& session, const std::string& text,
                      uint32_t reserve) {
  plm_encode_options options = plm_encode_options_default();
  const plm::Tokenizer tokenizer = model.tokenizer();
  const size_t plain_count = tokenizer.Encode(text, &options).size();
  options.add_bos = true;
  std::vector<int32_t> ids = tokenizer.Encode(text, &options);
  const size_t room = session.context_length() - std::min(reserve, session.context_length() - 1);
  if (ids.size() <= room) {
    session.SetTokens(ids);
    return false;
  }
  const size_t kept_front = std::min(ids.size() - plain_count, room);
  ids.erase(ids.begin() + static_cast<ptrdiff_t>(kept_front),
            ids.end() - static_cast<ptrdiff_t>(room - kept_front));
  session.SetTokens(ids);
  return true;
}

// Puts the prompt into the session; returns whether it was shortened.
bool SetPrompt(RunFlags& flags, const plm::Model& model, plm::Session& session,
               const std::string& text) {
  const uint32_t reserve = Reserve(flags, session.context_length());
  const bool raw = flags.raw || !model.has_chat_template();
  if (raw) {
    if (flags.prompt.NeedsTemplate()) {
      Fail("run: " + flags.model +
           ": expected a chat template for --system, --tools or --template-vars, got none; leave "
           "them out");
    }
    if (!flags.raw) {
      PrintNote("run: " + flags.model +
                " has no chat template: it continues the text as it is (as with --raw)");
    }
    if (flags.truncate) return SetTextTruncated(model, session, text, reserve);
    session.SetText(text);
    return false;
  }
  Json messages = Json::array();
  if (!flags.prompt.system.empty())
    messages.push_back({{"role", "system"}, {"content", flags.prompt.system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  plm_chat_options options = flags.prompt.Options();
  options.truncate = flags.truncate;
  options.reserve_tokens = reserve;
  return session.SetChat(ToJsonText(messages), &options);
}

void PrintReport(const plm::Generation& answer, double load_ms, bool truncated) {
  const plm_generate_result& result = answer.result;
  const Json timings = {{"load_ms", load_ms},
                        {"prefill_ms", result.prefill_ms},
                        {"decode_ms", result.decode_ms},
                        {"first_token_ms", result.first_token_ms},
                        {"prefill_tok_s", PrefillRate(result)},
                        {"decode_tok_s", DecodeRate(result)}};
  PrintJson({{"text", answer.text},
             {"finish_reason", FinishName(result.finish_reason)},
             {"tokens_in", result.tokens_in},
             {"tokens_out", result.tokens_out},
             {"truncated", truncated},
             {"timings", timings},
             {"memory", MemoryJson(plm::MeasureMemory())}});
}

void PrintFigures(const plm_generate_result& result, double load_ms) {
  const double peak = static_cast<double>(plm::MeasureMemory().peak_rss_bytes);
  PrintNote(Printf(
      "%u tokens in (%.1f tok/s), %u out (%.1f tok/s), first token %.0f ms, load %.0f ms, "
      "peak memory %s, ended by %s",
      result.tokens_in, PrefillRate(result), result.tokens_out, DecodeRate(result),
      result.first_token_ms, load_ms, HumanBytes(peak).c_str(), FinishName(result.finish_reason)));
}

plm::Generation Answer(RunFlags& flags, plm::Session& session) {
  const plm_generate_options options = flags.generation.Options();
  const InterruptScope interrupt(
      [](void* target) { plm_session_cancel(static_cast<plm_session*>(target)); }, session.get(),
      true);
  bool write_failed = false;
  plm::TextCallback callback = [&](std::string_view piece) {
    if (!flags.json) write_failed = write_failed || !TryWriteStdout(piece);
    return !write_failed && !interrupt.interrupted();
  };
  plm::Generation answer = session.Generate(&options, callback);
  if (write_failed)
    Fail("run: standard output: expected to be written, got an error; check the disk");
  if (!flags.json) WriteStdout("\n");
  return answer;
}

int Run(RunFlags& flags) {
  if (flags.raw && flags.prompt.NeedsTemplate()) {
    FailUsage(
        "run: --raw: expected no --system, --tools or --template-vars with it, since it uses no "
        "template");
  }
  flags.generation.Options();  // usage errors before the model is loaded
  flags.prompt.Options();
  const std::string text = TextArgument(flags.text_option->count() > 0, flags.text, flags.file);
  const std::string path = ResolveModel(flags.model);
  const auto start = std::chrono::steady_clock::now();
  const plm_model_options model_options = flags.session.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  const plm_session_options session_options = flags.session.SessionOptions();
  plm::Session session(model, &session_options);
  const double load_ms = MillisecondsSince(start);
  const bool truncated = SetPrompt(flags, model, session, text);
  if (truncated)
    PrintNote("run: the prompt was longer than the context and has been shortened (--truncate)");
  const plm::Generation answer = Answer(flags, session);
  if (flags.json) {
    PrintReport(answer, load_ms, truncated);
  } else {
    PrintFigures(answer.result, load_ms);
  }
  return answer.result.finish_reason == PLM_FINISH_CANCELLED ? kExitFailed : kExitOk;
}

}  // namespace

void AddRunCommand(CLI::App& program, Action* action) {
  CLI::App* command = program.add_subcommand("run", "Answer one prompt");
  const auto flags = std::make_shared<RunFlags>();
  command->add_option("MODEL", flags->model, "A model file, a folder, or a name that pull knows")
      ->required();
  flags->text_option = command->add_option("-p,--prompt", flags->text, "The prompt");
  command->add_option("-f,--file", flags->file, "Read the prompt from FILE; - is standard input");
  flags->prompt.AddTo(*command);
  command->add_flag("--raw", flags->raw, "Use no chat template: continue the text");
  flags->generation.AddTo(*command);
  flags->session.AddTo(
      *command, "Tokens that the context holds; 0 (default): the model's limit, at most 4096");
  flags->session.AddActivationsTo(*command);
  command->add_flag("--truncate", flags->truncate,
                    "Shorten a prompt that does not fit, in place of an error");
  command->add_flag("--json", flags->json, "Report as one JSON object");
  command->footer(
      "The answer streams to standard output, a line of figures to standard error. Ctrl-C ends the "
      "answer (exit\n"
      "status 1). A model without a chat template continues the text, as with --raw.\n\n"
      "Example:\n  pocketlm run smollm2-135m -p \"What is gravity?\" -n 100");
  command->callback([flags, action] { *action = [flags] { return Run(*flags); }; });
}

}  // namespace pocketlm::cli
