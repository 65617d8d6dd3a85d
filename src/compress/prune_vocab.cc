#include "compress/prune_vocab.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/cpu_info.h"
#include "base/file_writer.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "chat/chat_template.h"
#include "compress/token_use.h"
#include "tokenizer/tokenizer_writer.h"
#include "tokenizer/vocabulary_cut.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

constexpr size_t kRowMultiple = 64;
constexpr size_t kPassageChunk = 64;
// Shares of the work, for the progress bar.
constexpr double kCountShare = 0.4;
constexpr double kJudgeShare = 0.2;

// What tokenizers make of passages.
struct Fertility {
  uint64_t passages = 0, unchanged = 0, characters = 0, bytes = 0, before = 0, after = 0;

  void Add(const Fertility& other) {
    passages += other.passages;
    unchanged += other.unchanged;
    characters += other.characters;
    bytes += other.bytes;
    before += other.before;
    after += other.after;
  }
  void AppendTo(ordered_json* out) const {
    const auto per = [](uint64_t a, uint64_t b) {
      return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
    };
    out->update({{"passages", passages},
                 {"unchanged", per(unchanged, passages)},
                 {"characters", characters},
                 {"bytes", bytes},
                 {"tokens_before", before},
                 {"tokens_after", after},
                 {"increase", before == 0 ? 0.0 : per(after, before) - 1.0},
                 {"tokens_per_character_before", per(before, characters)},
                 {"tokens_per_character_after", per(after, characters)}});
  }
};

using LanguageFertility = std::array<Fertility, kPassageLanguages>;

size_t CharactersOf(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

class VocabularyPruner {
 public:
  VocabularyPruner(const PruneVocabOptions& options, const ConversionProgress& progress)
      : options_(options),
        progress_(progress),
        pool_(options.encoding.num_threads > 0 ? options.encoding.num_threads : AvailableCpus()) {}

  // The cut of a tokenizer, judged; its report.
  Status Cut(const TokenizerSpec& spec, const std::vector<int32_t>& keep);
  const VocabularyCut& cut() const { return cut_; }
  const ordered_json& report() const { return report_; }

  // The cut applied to a model.
  Status Apply(ModelContent* content) const;

 private:
  bool Proceed(double fraction) { return !progress_ || progress_(std::min(fraction, 1.0)); }
  Status Judge(const Tokenizer& before, const Tokenizer& after);
  Status JudgeText(const Tokenizer& before, const Tokenizer& after, const CorpusText& text,
                   LanguageFertility* out);

  const PruneVocabOptions& options_;
  const ConversionProgress& progress_;
  ThreadPool pool_;
  VocabularyCut cut_;
  ordered_json report_;
};

size_t BytesOf(const std::vector<CorpusText>& texts) {
  size_t bytes = 0;
  for (const CorpusText& text : texts) bytes += text.data.size();
  return std::max<size_t>(bytes, 1);
}

Status VocabularyPruner::Cut(const TokenizerSpec& spec, const std::vector<int32_t>& keep) {
  POCKETLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> before, Tokenizer::Create(spec));
  double done = 0.0;
  const auto total = static_cast<double>(BytesOf(options_.corpus));
  const auto proceed = [&](size_t bytes) {
    const bool go_on = Proceed(kCountShare * done / total);
    done += static_cast<double>(bytes);
    return go_on;
  };
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<uint64_t> counts,
                            CountTokens(*before, options_.corpus, &pool_, proceed));
  VocabularyCutOptions cut;
  cut.size = options_.size;
  cut.weights = TokenWeights(*before, counts);
  cut.keep = keep;
  POCKETLM_ASSIGN_OR_RETURN(cut_, CutVocabulary(spec, *before, cut));
  POCKETLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> after, Tokenizer::Create(cut_.spec));
  report_ = {{"size", cut.size},
             {"tokens",
              {{"before", before->vocab_size()},
               {"after", after->vocab_size()},
               {"forced", cut_.forced}}}};
  report_["notes"] = ordered_json::array();
  for (const std::string& script : ScriptsWithoutUse(*before, counts)) {
    report_["notes"].push_back(
        "the corpus has next to no " + script +
        ": most of its tokens are cut, such text takes several times as many");
  }
  return Judge(*before, *after);
}

Status VocabularyPruner::Judge(const Tokenizer& before, const Tokenizer& after) {
  const bool has_evaluation = !options_.evaluation.empty();
  const std::vector<CorpusText>& texts = has_evaluation ? options_.evaluation : options_.corpus;
  const auto total = static_cast<double>(BytesOf(texts));
  std::map<std::string, Fertility> sets;
  LanguageFertility languages;
  double done = 0.0;
  for (const CorpusText& text : texts) {
    if (!Proceed(kCountShare + kJudgeShare * done / total)) return Cancelled("cancelled");
    LanguageFertility of_text;
    POCKETLM_RETURN_IF_ERROR(JudgeText(before, after, text, &of_text));
    for (size_t i = 0; i < kPassageLanguages; ++i) {
      sets[text.set].Add(of_text[i]);
      languages[i].Add(of_text[i]);
    }
    done += static_cast<double>(text.data.size());
  }
  report_["judged_on"] = has_evaluation ? "evaluation" : "corpus";
  report_["sets"] = ordered_json::array();
  for (const auto& [set, fertility] : sets) {
    ordered_json entry = {{"set", ReplaceInvalidUtf8(set)}};
    fertility.AppendTo(&entry);
    report_["sets"].push_back(std::move(entry));
  }
  report_["languages"] = ordered_json::array();
  for (size_t i = 0; i < kPassageLanguages; ++i) {
    if (languages[i].passages == 0) continue;
    ordered_json entry = {{"language", LanguageName(static_cast<PassageLanguage>(i))}};
    languages[i].AppendTo(&entry);
    report_["languages"].push_back(std::move(entry));
  }
  return OkStatus();
}

Status VocabularyPruner::JudgeText(const Tokenizer& before, const Tokenizer& after,
                                   const CorpusText& text, LanguageFertility* out) {
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::string> passages, PassagesOf(text));
  struct Part {
    LanguageFertility fertility;
    const std::string* broken = nullptr;
  };
  std::vector<Part> parts(static_cast<size_t>(pool_.num_threads()));
  pool_.ParallelFor(passages.size(), kPassageChunk, [&](size_t begin, size_t end, int thread) {
    Part& part = parts[static_cast<size_t>(thread)];
    for (size_t i = begin; i < end; ++i) {
      const std::string& passage = passages[i];
      const std::vector<int32_t> old_ids = before.Encode(passage);
      const std::vector<int32_t> new_ids = after.Encode(passage);
      const bool same = std::equal(new_ids.begin(), new_ids.end(), old_ids.begin(), old_ids.end(),
                                   [this](int32_t id, int32_t old_id) {
                                     return cut_.old_ids[static_cast<size_t>(id)] == old_id;
                                   });
      if (!same && before.DecodeBytes(old_ids, false) != after.DecodeBytes(new_ids, false))
        part.broken = &passage;
      part.fertility[static_cast<size_t>(LanguageOf(passage))].Add(
          {1, same, CharactersOf(passage), passage.size(), old_ids.size(), new_ids.size()});
    }
  });
  for (const Part& part : parts) {
    if (part.broken != nullptr) {
      return Internal("verify: " + Shorten(text.name, 255) +
                      ": expected the bytes of the source's tokenizer, got others of " +
                      Quote(*part.broken));
    }
    for (size_t i = 0; i < kPassageLanguages; ++i) (*out)[i].Add(part.fertility[i]);
  }
  return OkStatus();
}

Status VocabularyPruner::Apply(ModelContent* content) const {
  content->tokenizer = cut_.spec;
  for (int32_t& id : content->end_tokens) {
    const bool valid = id >= 0 && static_cast<size_t>(id) < cut_.new_ids.size();
    id = valid ? cut_.new_ids[static_cast<size_t>(id)] : -1;
  }
  std::erase(content->end_tokens, -1);
  std::vector<int64_t> rows(cut_.old_ids.begin(), cut_.old_ids.end());
  rows.resize((rows.size() + kRowMultiple - 1) / kRowMultiple * kRowMultiple, -1);
  content->config.vocab_size = static_cast<uint32_t>(rows.size());
  for (ModelTensor& tensor : content->tensors) {
    if (tensor.role != TensorRole::kEmbedding && tensor.role != TensorRole::kHead) continue;
    tensor.rows = MakeSelectedRows(tensor.rows, rows);
    tensor.shape[0] = rows.size();
  }
  content->provenance["vocabulary"] = {{"tokens_before", cut_.new_ids.size()},
                                       {"tokens", cut_.old_ids.size()}};
  return OkStatus();
}

// What the chat template writes: the model knows its roles and markers by these tokens and no others.
void AddTemplateTokens(const Tokenizer& tokenizer, const std::string& source,
                       std::vector<int32_t>* keep) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool named =
        tokenizer.IsControl(id) && source.find(tokenizer.Piece(id)) != std::string::npos;
    if (named) keep->push_back(id);
  }
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return;  // said where it is used
  const ordered_json user = {{"role", "user"}, {"content", "\n"}};
  const ordered_json assistant = {{"role", "assistant"}, {"content", "\n"}};
  const ordered_json system = {{"role", "system"}, {"content", "\n"}};
  const ordered_json conversations[] = {{user, assistant, user}, {system, user, assistant, user}};
  for (const ordered_json& messages : conversations) {
    RenderInput input;
    input.messages = messages;
    const auto prompt = chat_template->Render(input);
    if (!prompt.ok()) continue;  // a template may refuse a system message
    const std::vector<int32_t> ids = tokenizer.EncodePrompt(prompt->text, {});
    keep->insert(keep->end(), ids.begin(), ids.end());
  }
}

Result<ordered_json> PruneTokenizer(const std::string& input, const std::string& output,
                                    VocabularyPruner* pruner) {
  POCKETLM_ASSIGN_OR_RETURN(const TokenizerSpec spec, OpenTokenizerSpec(input));
  POCKETLM_RETURN_IF_ERROR(pruner->Cut(spec, {}));
  POCKETLM_ASSIGN_OR_RETURN(const std::string text, WriteTokenizerJson(pruner->cut().spec));
  POCKETLM_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(output));
  POCKETLM_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  POCKETLM_RETURN_IF_ERROR(file.Commit());
  return ordered_json{{"output", output}, {"format", "tokenizer.json"}, {"bytes", text.size()}};
}

Result<ordered_json> PruneModel(const std::string& input, const std::string& output,
                                const PruneVocabOptions& options, VocabularyPruner* pruner,
                                const ConversionProgress& progress) {
  POCKETLM_ASSIGN_OR_RETURN(const EncodingOptions encoding, ReadEncoding(output, options.encoding));
  POCKETLM_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(input));
  POCKETLM_ASSIGN_OR_RETURN(ModelContent content,
                            ReadModelContent(input, source, options.encoding.program));
  std::vector<int32_t> keep = content.end_tokens;
  if (content.chat_template) {
    POCKETLM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                              Tokenizer::Create(content.tokenizer));
    AddTemplateTokens(*tokenizer, *content.chat_template, &keep);
  }
  POCKETLM_RETURN_IF_ERROR(pruner->Cut(content.tokenizer, keep));
  POCKETLM_RETURN_IF_ERROR(pruner->Apply(&content));
  const double begin = kCountShare + kJudgeShare;
  const auto rest = [&](double fraction) { return progress(begin + (1.0 - begin) * fraction); };
  return WriteModel(content, output, encoding, options.encoding.num_threads,
                    progress ? ConversionProgress(rest) : ConversionProgress());
}

Result<ordered_json> Prune(const std::string& input, const std::string& output,
                           const PruneVocabOptions& options, const ConversionProgress& progress) {
  POCKETLM_RETURN_IF_ERROR(CheckIsAnotherFile(input, output));
  VocabularyPruner pruner(options, progress);
  POCKETLM_ASSIGN_OR_RETURN(const ordered_json written,
                            output.ends_with(".json")
                                ? PruneTokenizer(input, output, &pruner)
                                : PruneModel(input, output, options, &pruner, progress));
  ordered_json report = {{"input", input}};
  report.update(pruner.report());
  ordered_json notes = report["notes"];
  report.erase("notes");
  report.update(written);
  if (written.contains("notes"))
    notes.insert(notes.end(), written["notes"].begin(), written["notes"].end());
  report["notes"] = std::move(notes);
  return report;
}

}  // namespace

Result<ordered_json> PruneVocab(const std::string& input, const std::string& output,
                                const PruneVocabOptions& options,
                                const ConversionProgress& progress) {
  auto report = Prune(input, output, options, progress);
  if (!report.ok()) return report.status().WithContext("prune-vocab");
  return report;
}

}  // namespace pocketlm
