// pocketlm diff: how much a model differs from another one on texts.
#include <memory>
#include <vector>

#include "cli_error.h"
#include "commands.h"
#include "generation_flags.h"
#include "model_files.h"
#include "pocketlm/pocketlm.hpp"
#include "progress.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

struct DiffFlags {
  std::string a, b;
  std::vector<std::string> files;
  size_t max_windows = 0;
  bool all = false;
  bool json = false;
  SessionFlags session;
  std::string kv_k_b, kv_v_b, activations_b;  // "": as session's
};

// A model and a session on it.
struct Side {
  Side(const std::string& path, const SessionFlags& flags)
      : Side(path, flags.ModelOptions(), flags.SessionOptions()) {}

  plm::Model model;
  plm::Session session;

 private:
  Side(const std::string& path, const plm_model_options& model_options,
       const plm_session_options& session_options)
      : model(plm::Model::Load(path, &model_options)), session(model, &session_options) {}
};

// The flags of B's session.
SessionFlags FlagsOfB(const DiffFlags& flags) {
  SessionFlags out = flags.session;
  if (!flags.kv_k_b.empty()) out.kv_k = flags.kv_k_b;
  if (!flags.kv_v_b.empty()) out.kv_v = flags.kv_v_b;
  if (!flags.activations_b.empty()) out.activations = flags.activations_b;
  return out;
}

Json Figures(const plm_comparison_result& result) {
  return {{"tokens", result.tokens},
          {"bytes", result.bytes},
          {"positions", result.positions},
          {"kl_mean", result.kl_mean},
          {"kl_p99", result.kl_p99},
          {"kl_max", result.kl_max},
          {"top1_agreement", result.top1_agreement},
          {"a",
           {{"nll", result.nll_a},
            {"perplexity", result.perplexity_a},
            {"bits_per_byte", result.bits_per_byte_a}}},
          {"b",
           {{"nll", result.nll_b},
            {"perplexity", result.perplexity_b},
            {"bits_per_byte", result.bits_per_byte_b}}}};
}

std::string Line(const plm_comparison_result& result, const std::string& text) {
  return Printf("%10s %10.6f %10.6f %10.4f %8.2f%% %10.4f %10.4f %11.4f %11.4f  %s\n",
                Thousands(result.tokens).c_str(), result.kl_mean, result.kl_p99, result.kl_max,
                100 * result.top1_agreement, result.perplexity_a, result.perplexity_b,
                result.bits_per_byte_a, result.bits_per_byte_b, OneLine(text).c_str());
}

plm_comparison_result Compare(plm::Comparison* comparison, const std::string& file,
                              const std::string& text) {
  Progress progress("diff " + OneLine(file), Progress::Unit::kFraction);
  try {
    return comparison->Add(text, [&progress](double fraction) {
      progress.Update(fraction, 1);
      return true;
    });
  } catch (const plm::Error& error) {
    Fail(OneLine(file) + ": " + error.what());
  }
}

int Diff(DiffFlags& flags) {
  std::vector<std::string> texts;
  for (const std::string& file : flags.files) texts.push_back(ReadWholeFile(file));
  const std::string path_a = ResolveModel(flags.a), path_b = ResolveModel(flags.b);
  if (flags.session.context_length == 0) flags.session.context_length = kDefaultWindow;
  Side a(path_a, flags.session), b(path_b, FlagsOfB(flags));
  plm_perplexity_options options = plm_perplexity_options_default();
  options.score_all = flags.all;
  options.max_windows = flags.max_windows;
  plm::Comparison comparison(&a.session, &b.session, &options);

  Json report = {{"a", path_a}, {"b", path_b}, {"texts", Json::array()}};
  std::string lines =
      "A  " + OneLine(path_a) + "\nB  " + OneLine(path_b) + "\n" +
      Printf("%10s %10s %10s %10s %9s %10s %10s %11s %11s  %s\n", "tokens", "KL mean", "KL 99%",
             "KL max", "top-1", "ppl A", "ppl B", "bits/byte A", "bits/byte B", "text");
  for (size_t i = 0; i < texts.size(); ++i) {
    const plm_comparison_result result = Compare(&comparison, flags.files[i], texts[i]);
    Json entry = {{"text", flags.files[i]}};
    entry.update(Figures(result));
    report["texts"].push_back(std::move(entry));
    lines += Line(result, flags.files[i]);
  }
  report["overall"] = Figures(comparison.Total());
  if (texts.size() > 1) lines += Line(comparison.Total(), "all texts");
  if (flags.json) {
    PrintJson(report);
  } else {
    WriteStdout(lines);
  }
  return kExitOk;
}

}  // namespace

void AddDiffCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("diff", "Measure how much a model differs from another one");
  const auto flags = std::make_shared<DiffFlags>();
  command->add_option("A", flags->a, "The reference: a file, a folder, or a name that pull knows")
      ->required();
  command->add_option("B", flags->b, "The model to judge, with the same tokens")->required();
  command->add_option("TEXT", flags->files, "Text files; - is standard input")->required();
  flags->session.AddTo(*command, "Tokens of a window (default 512)");
  flags->session.AddActivationsTo(*command);
  const CLI::IsMember kv_types({"f32", "f16", "int8", "int4"});
  command->add_option("--kv-k-b", flags->kv_k_b, "The same for B alone; default: as --kv-k")
      ->check(kv_types);
  command->add_option("--kv-v-b", flags->kv_v_b, "The same for B alone; default: as --kv-v")
      ->check(kv_types);
  command
      ->add_option("--activations-b", flags->activations_b,
                   "The same for B alone; default: as --activations")
      ->check(CLI::IsMember({"int8", "f32"}));
  command->add_flag("--all", flags->all, "Score every token of a text, in overlapping windows");
  command
      ->add_option("--max-windows", flags->max_windows,
                   "Stop after so many windows of a text; 0 (default): all")
      ->check(NumberIn(0, 1e15));
  command->add_flag("--json", flags->json,
                    "Report as JSON: a, b, texts and overall, each with kl_mean, kl_p99, kl_max, "
                    "top1_agreement, and perplexity and bits_per_byte of a and b");
  command->footer(
      "KL is the Kullback-Leibler divergence of B's next-token distribution from A's, in nats; "
      "top-1 the share of\nplaces where both find the same token likeliest. Windows are those of "
      "`pocketlm perplexity`.\n\n"
      "Example:\n  pocketlm diff smollm2-135m smollm2.plm book.txt --max-windows 20");
  command->callback([flags, action] { *action = [flags] { return Diff(*flags); }; });
}

}  // namespace pocketlm::cli
