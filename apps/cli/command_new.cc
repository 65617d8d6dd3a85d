// pocketlm new: a model with random weights.
#include <memory>

#include "commands.h"
#include "convert_report.h"

namespace pocketlm::cli {
namespace {

struct NewFlags {
  std::string config;
  std::string output;
  std::string tokenizer;
  uint64_t seed = 0;
  EncodingFlags encoding;
};

int New(NewFlags& flags) {
  const plm_convert_options encoding = flags.encoding.Options();
  plm_new_model_options options = plm_new_model_options_default();
  options.config = flags.config.c_str();
  options.tokenizer = flags.tokenizer.empty() ? nullptr : flags.tokenizer.c_str();
  options.seed = flags.seed;
  options.encoding = &encoding;
  return RunConversion("new", flags.encoding.json, [&](const plm::ProgressCallback& progress) {
    return plm::NewModel(flags.output, &options, progress);
  });
}

}  // namespace

void AddNewCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("new", "Write a model with random weights, for benchmarks");
  const auto flags = std::make_shared<NewFlags>();
  command
      ->add_option("--config", flags->config,
                   "The shape: pocket-0.3b, qwen3-0.6b, or a Hugging Face config.json")
      ->required();
  command
      ->add_option("-o,--output", flags->output,
                   "The new model: a .plm or .gguf file, or, ending in /, a Hugging Face folder")
      ->required();
  command->add_option("--tokenizer", flags->tokenizer,
                      "A model or tokenizer.json to take it from; default: a made-up vocabulary");
  command->add_option("--random-seed", flags->seed, "The same seed gives the same weights");
  flags->encoding.AddTo(*command, false);
  command->footer("Example:\n  pocketlm new --config pocket-0.3b --random-seed 0 -o pocket.plm");
  command->callback([flags, action] { *action = [flags] { return New(*flags); }; });
}

}  // namespace pocketlm::cli
