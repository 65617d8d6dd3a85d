// pocketlm decide: choose among given answers.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli_error.h"
#include "commands.h"
#include "generation_flags.h"
#include "model_files.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"
#include "report.h"

namespace pocketlm::cli {
namespace {

struct DecideFlags {
  std::string model;
  std::string text, file, request, instruction, question, score;
  std::vector<std::string> choices, booleans;
  int64_t low = 1, high = 5;
  double abstain = 0.0;
  bool no_prior = false;
  bool raw = false;
  bool json = false;
  SessionFlags session;
};

// "LABEL" or "LABEL=TEXT".
Json ChoiceOf(const std::string& given) {
  const size_t sign = given.find('=');
  if (sign == std::string::npos) return given;
  return {{"label", given.substr(0, sign)}, {"text", given.substr(sign + 1)}};
}

std::string RequestOf(const DecideFlags& flags) {
  if (!flags.request.empty()) return ReadWholeFile(flags.request);
  Json questions = Json::array();
  if (!flags.choices.empty()) {
    Json choices = Json::array();
    for (const std::string& choice : flags.choices) choices.push_back(ChoiceOf(choice));
    questions.push_back({{"type", "choice"}, {"question", flags.question}, {"choices", choices}});
  }
  for (const std::string& question : flags.booleans)
    questions.push_back({{"type", "boolean"}, {"question", question}});
  if (!flags.score.empty())
    questions.push_back(
        {{"type", "score"}, {"question", flags.score}, {"min", flags.low}, {"max", flags.high}});
  if (questions.empty()) FailUsage("expected --choice, --boolean, --score or --request, got none");
  const std::string text = flags.file.empty() ? flags.text : ReadWholeFile(flags.file);
  const Json request = {{"text", text},
                        {"instruction", flags.instruction},
                        {"questions", questions},
                        {"abstain_below", flags.abstain},
                        {"correct_prior", !flags.no_prior},
                        {"raw", flags.raw}};
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string AnswerLines(const Json& answer) {
  std::vector<std::pair<double, std::string>> options;
  for (const auto& [label, probability] : answer["probabilities"].items())
    options.emplace_back(probability.get<double>(), label);
  std::stable_sort(options.begin(), options.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const std::string question = answer["question"];
  std::string out = (question.empty() ? "" : question + "\n") + answer["choice"].get<std::string>();
  if (answer.contains("score")) out += Printf(" (mean %.2f)", answer["score"].get<double>());
  if (answer["abstained"].get<bool>()) out += " (not sure enough)";
  out += "\n";
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(options.size(), kShown); ++i)
    out += Printf("  %6.2f %%  %s\n", 100.0 * options[i].first, options[i].second.c_str());
  return out;
}

std::string Answers(plm::Session* session, const std::string& request) {
  try {
    return plm::Decider(session).Decide(request);
  } catch (const plm::Error& error) {
    if (error.status() != PLM_INVALID_ARGUMENT) throw;
    FailUsage(error.what());
  }
}

int Decide(const DecideFlags& flags) {
  const std::string request = RequestOf(flags);
  const std::string path = ResolveModel(flags.model);
  const plm_model_options model_options = flags.session.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  const plm_session_options session_options = flags.session.SessionOptions();
  plm::Session session(model, &session_options);
  const std::string answers = Answers(&session, request);
  if (flags.json) {
    WriteStdout(answers + "\n");
    return kExitOk;
  }
  const Json report = Json::parse(answers);
  for (const Json& answer : report["answers"]) WriteStdout(AnswerLines(answer));
  return kExitOk;
}

}  // namespace

void AddDecideCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("decide", "Choose among given answers, with probabilities");
  const auto flags = std::make_shared<DecideFlags>();
  command->add_option("MODEL", flags->model, "A model file, a folder, or a name that pull knows")
      ->required();
  CLI::Option* text = command->add_option("--text", flags->text, "The text to decide about");
  CLI::Option* file =
      command->add_option("-f,--file", flags->file, "The same from a file; - is standard input");
  file->excludes(text);
  command->add_option("--choice", flags->choices,
                      "An option, LABEL or LABEL=TEXT with what the model would write for it; give "
                      "2 to 200");
  command->add_option("--question", flags->question,
                      "What the options answer; default: which category the text belongs to");
  command->add_option("--boolean", flags->booleans, "A question to answer with true or false");
  command->add_option("--score", flags->score, "A question to answer with a number of a scale …");
  command->add_option("--min", flags->low, "… that begins at (default 1) …");
  command->add_option("--max", flags->high, "… and ends at (default 5)");
  command->add_option("--instruction", flags->instruction, "What stands before the text");
  command->add_option("--abstain", flags->abstain, "Mark an answer that is less probable than this")
      ->check(NumberIn(0, 1));
  command->add_flag("--no-prior", flags->no_prior,
                    "Do not subtract what the options score without the text");
  command->add_flag("--raw", flags->raw, "Without the model's chat template");
  command
      ->add_option("--request", flags->request,
                   "A file with a whole request as JSON instead (see pocketlm/decide.h)")
      ->excludes(text)
      ->excludes(file);
  flags->session.AddTo(*command, "Tokens of text, question and answer (default 4096)");
  command->add_flag(
      "--json", flags->json,
      "Report as JSON: answers [question, choice, probabilities, mass, margin, abstained, score], "
      "tokens_in, time_ms");
  command->footer(
      "Example:\n  pocketlm decide gemma3-270m --text \"My parcel has not come.\" "
      "--choice refund --choice delivery --choice other");
  command->callback([flags, action] { *action = [flags] { return Decide(*flags); }; });
}

}  // namespace pocketlm::cli
