// pocketlm perplexity: how well a model predicts a text.
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

struct PerplexityFlags {
  std::string model;
  std::string file;
  size_t max_windows = 0;
  bool all = false;
  bool json = false;
  SessionFlags session;
};

int Perplexity(PerplexityFlags& flags) {
  const std::string text = ReadWholeFile(flags.file);
  const std::string path = ResolveModel(flags.model);
  const plm_model_options model_options = flags.session.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  if (flags.session.context_length == 0) flags.session.context_length = kDefaultWindow;
  const plm_session_options session_options = flags.session.SessionOptions();
  plm::Session session(model, &session_options);
  plm_perplexity_options options = plm_perplexity_options_default();
  options.score_all = flags.all;
  options.max_windows = flags.max_windows;
  plm_perplexity_result result;
  {
    Progress progress("perplexity", Progress::Unit::kFraction);
    const plm::ProgressCallback show = [&progress](double fraction) {
      progress.Update(fraction, 1);
      return true;
    };
    result = session.Perplexity(text, &options, show);
  }
  if (flags.json) {
    PrintJson({{"tokens", result.tokens},
               {"bytes", result.bytes},
               {"nll", result.nll},
               {"perplexity", result.perplexity},
               {"bits_per_byte", result.bits_per_byte}});
  } else {
    WriteStdout(Printf("perplexity %.4f, %.4f bits per byte, over %s tokens (%s bytes)\n",
                       result.perplexity, result.bits_per_byte, Thousands(result.tokens).c_str(),
                       Thousands(result.bytes).c_str()));
  }
  return kExitOk;
}

}  // namespace

void AddPerplexityCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("perplexity", "Measure how well a model predicts a text");
  const auto flags = std::make_shared<PerplexityFlags>();
  command->add_option("MODEL", flags->model, "A model file, a folder, or a name that pull knows")
      ->required();
  command->add_option("FILE", flags->file, "The text; - is standard input")->required();
  flags->session.AddTo(*command, "Tokens of a window (default 512)");
  flags->session.AddActivationsTo(*command);
  command->add_flag("--all", flags->all, "Score every token of the text, in overlapping windows");
  command
      ->add_option("--max-windows", flags->max_windows,
                   "Stop after so many windows; 0 (default): all")
      ->check(NumberIn(0, 1e15));
  command->add_flag("--json", flags->json,
                    "Report as JSON: tokens, bytes, nll, perplexity, bits_per_byte");
  command->footer(
      "Windows do not overlap, the first half of each is not scored, the last partial one is "
      "dropped. --all is for\n"
      "bits per byte, which compares models with different vocabularies.\n\n"
      "Example:\n  pocketlm perplexity smollm2-135m book.txt --max-windows 20");
  command->callback([flags, action] { *action = [flags] { return Perplexity(*flags); }; });
}

}  // namespace pocketlm::cli
