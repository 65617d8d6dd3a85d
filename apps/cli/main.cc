// The pocketlm program: parses the command line, runs one subcommand, turns failures into a line and a status.
#include <CLI/CLI.hpp>
#include <clocale>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "cli_error.h"
#include "commands.h"
#include "pocketlm/pocketlm.hpp"
#include "report.h"

namespace pocketlm::cli {
namespace {

// Terminal editing needs the user's character set; numbers stay in the C locale.
void SetCharacterSet() {
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || std::strcmp(locale, "C") == 0 || std::strcmp(locale, "POSIX") == 0) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
}

void AddCommands(CLI::App& program, Action* action) {
  program.require_subcommand(1);
  program.get_formatter()->column_width(34);
  program.set_version_flag("--version", std::string("pocketlm ") + plm_version());
  program.footer(
      "Every command has --help. Exit status: 0 done, 1 failed or cancelled, 2 wrong usage.\n\n"
      "Example:\n  pocketlm pull smollm2-135m && pocketlm run smollm2-135m -p \"What is "
      "gravity?\"");
  AddPullCommand(program, action);
  AddRunCommand(program, action);
  AddChatCommand(program, action);
  AddTokenizeCommand(program, action);
  AddDecideCommand(program, action);
  AddPerplexityCommand(program, action);
  AddDiffCommand(program, action);
  AddBenchCommand(program, action);
  AddInspectCommand(program, action);
  AddConvertCommand(program, action);
  AddNewCommand(program, action);
  AddPruneVocabCommand(program, action);
}

// Names the word that stands where a command should; CLI11 would only say that one is missing.
void CheckCommandWord(const CLI::App& program, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string names;
  for (const CLI::App* sub : program.get_subcommands(nullptr)) {
    if (sub->get_name() == argv[1]) return;
    names += (names.empty() ? "" : ", ") + sub->get_name();
  }
  FailUsage("command: expected one of " + names + ", got \"" + argv[1] +
            "\"; see `pocketlm --help`");
}

// "run: --temp: …; see `pocketlm run --help`"
int ReportUsage(const CLI::App& program, const CLI::ParseError& error) {
  std::string command;
  for (const CLI::App* sub : program.get_subcommands()) command = sub->get_name();
  const std::string where = command.empty() ? "" : command + ": ";
  const std::string help = "`pocketlm " + (command.empty() ? "" : command + " ") + "--help`";
  PrintError(where + error.what() + "; see " + help);
  return kExitUsage;
}

// What the library warns of goes to standard error, a line that repeats only once.
void ShowWarning(plm_log_level level, const char* message, void* user) {
  auto* last = static_cast<std::string*>(user);
  if (level != PLM_LOG_WARNING || *last == message) return;
  *last = message;
  PrintNote(message);
}

int RunAction(const Action& action) {
  try {
    return action();
  } catch (const CliError& error) {
    PrintError(error.what());
    return error.exit_status();
  } catch (const plm::Error& error) {
    PrintError(error.what());
  } catch (const std::bad_alloc&) {
    PrintError("memory: expected enough of it, got none; use a smaller --ctx or model");
  } catch (const std::exception& error) {
    PrintError(std::string("internal: ") + error.what());
  }
  return kExitFailed;
}

int Main(int argc, char** argv) {
  SetCharacterSet();
  static std::string last_warning;
  plm_set_log_callback(ShowWarning, &last_warning);
  CLI::App program("PocketLM: small Chinese/English language models, on this machine", "pocketlm");
  Action action;
  AddCommands(program, &action);
  try {
    CheckCommandWord(program, argc, argv);
    program.parse(argc, argv);
  } catch (const CliError& error) {
    PrintError(error.what());
    return error.exit_status();
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    return asked ? program.exit(error) : ReportUsage(program, error);
  }
  return RunAction(action);
}

}  // namespace
}  // namespace pocketlm::cli

int main(int argc, char** argv) { return pocketlm::cli::Main(argc, argv); }
