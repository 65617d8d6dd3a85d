// pocketlm convert: a model file in another type or format.
#include <memory>

#include "commands.h"
#include "convert_report.h"
#include "model_files.h"

namespace pocketlm::cli {
namespace {

struct ConvertFlags {
  std::string input;
  std::string output;
  EncodingFlags encoding;
};

int Convert(ConvertFlags& flags) {
  const std::string input = ResolveModel(flags.input);
  const plm_convert_options options = flags.encoding.Options();
  return RunConversion("convert", flags.encoding.json, [&](const plm::ProgressCallback& progress) {
    return plm::Convert(input, flags.output, &options, progress);
  });
}

}  // namespace

void AddConvertCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("convert", "Write a model in another type or file format");
  const auto flags = std::make_shared<ConvertFlags>();
  command->add_option("IN", flags->input, "A .plm or GGUF file, a Hugging Face folder, or a name")
      ->required();
  command
      ->add_option("-o,--output", flags->output,
                   "The new model: a .plm or .gguf file, or, ending in /, a Hugging Face folder")
      ->required();
  flags->encoding.AddTo(*command, true);
  command->footer(
      "Codes that the type holds exactly are kept bit for bit; all else is rounded, with the error "
      "reported. The\noutput is checked against what was meant before it gets its name.\n\n"
      "Example:\n  pocketlm convert smollm2-135m -o smollm2.plm");
  command->callback([flags, action] { *action = [flags] { return Convert(*flags); }; });
}

}  // namespace pocketlm::cli
