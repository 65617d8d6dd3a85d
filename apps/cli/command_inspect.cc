// pocketlm inspect: what a model file holds and how much memory it will take.
#include <map>
#include <memory>

#include "cli_error.h"
#include "commands.h"
#include "generation_flags.h"
#include "model_files.h"
#include "pocketlm/pocketlm.hpp"
#include "progress.h"
#include "report.h"
#include "tensor_lines.h"

namespace pocketlm::cli {
namespace {

constexpr size_t kMaxValueChars = 100;

struct InspectFlags {
  std::string file;
  bool json = false;
  bool verify = false;
  bool tensors = false;
  std::string against;
  SessionFlags session;
};

uint64_t Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<uint64_t>() : 0;
}

std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A value in one line, cut at a character border.
std::string Short(const Json& value) {
  if (value.is_array() && value.size() > 8) return Printf("[%zu values]", value.size());
  std::string text = OneLine(value.is_string() ? value.get<std::string>() : ToJsonText(value));
  if (text.size() <= kMaxValueChars) return text;
  size_t end = kMaxValueChars;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + Printf("… (%zu bytes)", text.size());
}

std::string MemoryLines(const Json& plan) {
  std::string lines = "memory plan\n";
  for (const auto& [key, label] : {std::pair{"weights_bytes", "weights"},
                                   {"kv_bytes", "keys and values"},
                                   {"arena_bytes", "work space"},
                                   {"total_bytes", "total"}}) {
    const uint64_t bytes = Number(plan, key);
    lines += Printf("  %-16s %16s bytes  (%s)\n", label, Thousands(bytes).c_str(),
                    HumanBytes(static_cast<double>(bytes)).c_str());
  }
  return lines;
}

std::string TextReport(const Json& report) {
  std::string text = "architecture  " + Text(report, "architecture") + "\n";
  text += "parameters    " + Thousands(Number(report, "parameters")) + "\n";
  if (const auto plan = report.find("memory_plan"); plan != report.end())
    text += MemoryLines(*plan);
  if (const auto metadata = report.find("metadata");
      metadata != report.end() && metadata->is_object()) {
    text += "metadata\n";
    for (const auto& [key, value] : metadata->items())
      text += "  " + OneLine(key) + " = " + Short(value) + "\n";
  }
  if (const auto tensors = report.find("tensors"); tensors != report.end() && tensors->is_array()) {
    text += TensorLines(*tensors);
  }
  return text;
}

// Adds the figures of plm_inspect_tensors to the tensors of `report`.
void AddTensorFigures(const InspectFlags& flags, const std::string& path, Json* report) {
  const std::string against = flags.against.empty() ? "" : ResolveModel(flags.against);
  Progress progress("inspect", Progress::Unit::kFraction);
  const Json figures = Json::parse(plm::InspectTensors(path, against, flags.session.threads,
                                                       [&progress](double fraction) {
                                                         progress.Update(fraction, 1);
                                                         return true;
                                                       }),
                                   nullptr, false);
  std::map<std::string, const Json*> by_name;
  for (const Json& tensor : figures.at("tensors")) by_name[Text(tensor, "name")] = &tensor;
  for (Json& tensor : report->at("tensors")) {
    const auto found = by_name.find(Text(tensor, "name"));
    if (found != by_name.end()) tensor.update(*found->second);
  }
}

int Inspect(const InspectFlags& flags) {
  const std::string path = ResolveModel(flags.file);
  const plm_session_options options = flags.session.SessionOptions();
  if (flags.verify) plm::internal::Check(plm_verify(path.c_str()));
  char* json = nullptr;
  plm::internal::Check(plm_inspect(path.c_str(), &options, &json));
  Json report = Json::parse(plm::internal::TakeString(json), nullptr, false);
  if (!report.is_object())
    Fail("inspect: " + path + ": expected a JSON object from the library, got none");
  if (flags.tensors || !flags.against.empty()) AddTensorFigures(flags, path, &report);
  if (flags.json) {
    PrintJson(report);
  } else {
    WriteStdout(TextReport(report));
  }
  return kExitOk;
}

}  // namespace

void AddInspectCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("inspect", "Show what a model file holds and the memory it takes");
  const auto flags = std::make_shared<InspectFlags>();
  command->add_option("FILE", flags->file, "A model file or name, or a folder")->required();
  flags->session.AddTo(
      *command, "Tokens of context to plan for; 0 (default): the model's limit, at most 4096");
  command->add_flag("--json", flags->json,
                    "Report as JSON: architecture, parameters, tensors, metadata, memory_plan");
  command->add_flag("--verify", flags->verify,
                    "First compare the weights of a .plm file with their checksums");
  command->add_flag("--tensors", flags->tensors,
                    "Read the weights, too: range, codes, scales, groups of zeros, values that are "
                    "not finite");
  command->add_option("--against", flags->against,
                      "The model that FILE was made from: adds each tensor's error; implies "
                      "--tensors");
  command->footer(
      "Example:\n  pocketlm inspect smollm2-135m --ctx 2048\n  pocketlm inspect smollm2.plm "
      "--against smollm2-135m");
  command->callback([flags, action] { *action = [flags] { return Inspect(*flags); }; });
}

}  // namespace pocketlm::cli
