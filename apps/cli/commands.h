// The subcommands. Each function adds one to the program; when the command line chooses it, *action is set to its work,
// which returns an exit status and throws CliError or plm::Error.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace pocketlm::cli {

using Action = std::function<int()>;

void AddPullCommand(CLI::App& program, Action* action);
void AddRunCommand(CLI::App& program, Action* action);
void AddChatCommand(CLI::App& program, Action* action);
void AddTokenizeCommand(CLI::App& program, Action* action);
void AddPerplexityCommand(CLI::App& program, Action* action);
void AddDecideCommand(CLI::App& program, Action* action);
void AddDiffCommand(CLI::App& program, Action* action);
void AddBenchCommand(CLI::App& program, Action* action);
void AddInspectCommand(CLI::App& program, Action* action);
void AddConvertCommand(CLI::App& program, Action* action);
void AddNewCommand(CLI::App& program, Action* action);
void AddPruneVocabCommand(CLI::App& program, Action* action);

}  // namespace pocketlm::cli
