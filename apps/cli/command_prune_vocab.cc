// pocketlm prune-vocab: a model with the tokens that a corpus needs.
#include <algorithm>
#include <memory>
#include <optional>

#include "cli_error.h"
#include "commands.h"
#include "convert_report.h"
#include "generation_flags.h"
#include "html_page.h"
#include "model_files.h"
#include "report.h"
#include "text_files.h"

namespace pocketlm::cli {
namespace {

struct PruneFlags {
  std::string input;
  std::string output;
  std::vector<std::string> corpus, evaluation;
  uint64_t size = 65536;
  size_t bits_bytes = 0;
  std::string html;
  EncodingFlags encoding;
};

void AddStrings(const nlohmann::json& value, size_t limit, std::string* out) {
  if (value.is_string()) {
    if (out->size() < limit) *out += value.get<std::string>() + "\n";
  } else if (value.is_structured()) {
    for (const auto& [key, item] : value.items()) {
      if (key != "id") AddStrings(item, limit, out);
    }
  }
}

// About the first `limit` bytes of a set's texts, whole lines; of JSON lines their strings.
std::string BeginningOf(const std::vector<TextFile>& files, const std::string& set, size_t limit) {
  std::string out;
  for (const TextFile& file : files) {
    if (file.set != set) continue;
    for (size_t begin = 0; begin < file.content.size() && out.size() < limit;) {
      const size_t end = std::min(file.content.find('\n', begin), file.content.size() - 1) + 1;
      const std::string line = file.content.substr(begin, end - begin);
      begin = end;
      if (file.path.ends_with(".jsonl")) {
        AddStrings(nlohmann::json::parse(line, nullptr, false), limit, &out);
      } else {
        out += line;
      }
    }
  }
  return out;
}

// Adds bits_per_byte_before or _after to the sets of the report.
void AddBitsPerByte(const std::string& path, const char* key, const PruneFlags& flags,
                    const std::vector<TextFile>& judged, Json* report) {
  plm_model_options model_options = plm_model_options_default();
  model_options.num_threads = flags.encoding.num_threads;
  const plm::Model model = plm::Model::Load(path, &model_options);
  plm_session_options session_options = plm_session_options_default();
  session_options.context_length = kDefaultWindow;
  plm::Session session(model, &session_options);
  plm_perplexity_options options = plm_perplexity_options_default();
  options.score_all = true;
  for (Json& set : (*report)["sets"]) {
    const std::string text = BeginningOf(judged, set["set"].get<std::string>(), flags.bits_bytes);
    if (text.size() > 1) set[key] = session.Perplexity(text, &options).bits_per_byte;
  }
}

std::string Percent(double fraction) { return Printf("%+.2f %%", 100 * fraction); }

std::vector<std::string> Columns(const Json& entry, const char* name) {
  std::vector<std::string> out = {entry.value(name, ""),
                                  Thousands(entry.value("tokens_before", uint64_t{0})),
                                  Thousands(entry.value("tokens_after", uint64_t{0})),
                                  Percent(entry.value("increase", 0.0)),
                                  Printf("%.4f", entry.value("tokens_per_character_before", 0.0)),
                                  Printf("%.4f", entry.value("tokens_per_character_after", 0.0)),
                                  Printf("%.1f %%", 100 * entry.value("unchanged", 0.0))};
  if (entry.contains("bits_per_byte_before") && entry.contains("bits_per_byte_after")) {
    out.push_back(Printf("%.4f", entry.value("bits_per_byte_before", 0.0)));
    out.push_back(Printf("%.4f", entry.value("bits_per_byte_after", 0.0)));
  }
  return out;
}

std::vector<std::string> Head(const PruneFlags& flags, const char* first) {
  std::vector<std::string> head = {first,   "tokens before",  "after", "change", "per char before",
                                   "after", "lines unchanged"};
  if (flags.bits_bytes > 0) head.insert(head.end(), {"bits/byte before", "after"});
  return head;
}

std::vector<std::vector<std::string>> Rows(const Json& entries, const char* name) {
  std::vector<std::vector<std::string>> out;
  for (const Json& entry : entries) out.push_back(Columns(entry, name));
  return out;
}

std::string TextTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> lines = {head};
  lines.insert(lines.end(), rows.begin(), rows.end());
  std::vector<size_t> widths(head.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string out;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string cell = OneLine(line[i]);
      const std::string padding(widths[i] - std::min(widths[i], cell.size()), ' ');
      out += (i == 0 ? "  " + cell + padding : "  " + padding + cell);
    }
    out += "\n";
  }
  return out;
}

std::string Summary(const Json& report) {
  const Json& tokens = report["tokens"];
  return Printf("%s of %s tokens, %s of them whatever the corpus; judged on the %s\n",
                Thousands(tokens.value("after", uint64_t{0})).c_str(),
                Thousands(tokens.value("before", uint64_t{0})).c_str(),
                Thousands(tokens.value("forced", uint64_t{0})).c_str(),
                report.value("judged_on", "").c_str());
}

std::string Page(const Json& report, const PruneFlags& flags) {
  std::vector<Bar> increase, unchanged;
  for (const Json& set : report["sets"]) {
    const std::string name = set.value("set", "");
    increase.push_back({name, set.value("increase", 0.0), Percent(set.value("increase", 0.0))});
    unchanged.push_back(
        {name, set.value("unchanged", 0.0), Printf("%.1f %%", 100 * set.value("unchanged", 0.0))});
  }
  return HtmlPage("Vocabulary of " + report.value("output", ""),
                  "<p>From " + HtmlText(report.value("input", "")) + ": " +
                      HtmlText(Summary(report)) + "</p>" +
                      HtmlTable(Head(flags, "language"), Rows(report["languages"], "language")) +
                      HtmlBars("More tokens, by set", increase) +
                      HtmlBars("Lines with unchanged tokens, by set", unchanged) +
                      HtmlTable(Head(flags, "set"), Rows(report["sets"], "set")));
}

int PruneVocab(PruneFlags& flags) {
  if (flags.bits_bytes > 0 && flags.output.ends_with(".json"))
    FailUsage("--bits-per-byte: expected a model as output, got a tokenizer");
  const std::string input = ResolveModel(flags.input);
  const std::vector<TextFile> corpus = ReadTextFiles(flags.corpus);
  const std::vector<TextFile> evaluation = ReadTextFiles(flags.evaluation);
  const std::vector<plm_text> corpus_views = TextViews(corpus),
                              evaluation_views = TextViews(evaluation);
  const plm_convert_options encoding = flags.encoding.Options();
  plm_prune_vocab_options options = plm_prune_vocab_options_default();
  options.vocab_size = flags.size;
  options.corpus = corpus_views.data();
  options.corpus_count = corpus_views.size();
  options.evaluation = evaluation_views.data();
  options.evaluation_count = evaluation_views.size();
  options.encoding = &encoding;
  Json report = CallConversion("prune-vocab", [&](const plm::ProgressCallback& progress) {
    return plm::PruneVocab(input, flags.output, options, progress);
  });
  if (flags.bits_bytes > 0) {
    const std::vector<TextFile>& judged = evaluation.empty() ? corpus : evaluation;
    AddBitsPerByte(input, "bits_per_byte_before", flags, judged, &report);
    AddBitsPerByte(flags.output, "bits_per_byte_after", flags, judged, &report);
  }
  if (!flags.html.empty()) WriteHtmlFile(flags.html, Page(report, flags));
  if (flags.encoding.json) {
    PrintJson(report);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows = Rows(report["languages"], "language");
  for (std::vector<std::string>& row : Rows(report["sets"], "set")) rows.push_back(row);
  WriteStdout(Summary(report) + TextTable(Head(flags, "text"), rows) + ConversionText(report));
  return kExitOk;
}

}  // namespace

void AddPruneVocabCommand(CLI::App& program, Action* action) {
  CLI::App* command = program.add_subcommand(
      "prune-vocab", "Cut a model's vocabulary to the tokens that a corpus needs");
  const auto flags = std::make_shared<PruneFlags>();
  command
      ->add_option("IN", flags->input,
                   "A model: a file, a folder, or a name; or a tokenizer.json, for OUT.json")
      ->required();
  command
      ->add_option("--corpus", flags->corpus,
                   "Texts like those that the model will read: files and folders with .txt and "
                   ".jsonl, also .gz")
      ->required();
  command->add_option("--eval", flags->evaluation,
                      "Texts to judge the new vocabulary on; default: the corpus");
  command
      ->add_option("--size", flags->size,
                   "Tokens to keep; default 65536. Tables are padded to a multiple of 64 rows")
      ->check(NumberIn(1, 1e9));
  command
      ->add_option("-o,--output", flags->output,
                   "The new model: .plm, .gguf, or, ending in /, a Hugging Face folder; or .json "
                   "for the tokenizer alone")
      ->required();
  command
      ->add_option("--bits-per-byte", flags->bits_bytes,
                   "Score about so many bytes of each set with both models; --type f16 leaves the "
                   "weights as they are")
      ->check(NumberIn(0, 1e12));
  command->add_option("--html", flags->html, "Also write the report as a web page with plots");
  flags->encoding.AddTo(*command, true);
  command->footer(
      "Tokens that kept ones are merged from stay, so every text comes back as it was, and one of "
      "kept tokens keeps\nthem. In .jsonl files every string counts but those called \"id\".\n\n"
      "Example:\n  pocketlm prune-vocab gemma3-270m --corpus texts/ --size 65536 -o gemma64k.plm");
  command->callback([flags, action] { *action = [flags] { return PruneVocab(*flags); }; });
}

}  // namespace pocketlm::cli
