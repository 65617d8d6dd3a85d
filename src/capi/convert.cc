// plm_convert, plm_new_model and plm_prune_vocab.
#include "compress/convert.h"

#include <nlohmann/json.hpp>

#include "capi/internal.h"
#include "compress/new_model.h"
#include "compress/prune_vocab.h"
#include "pocketlm/convert.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

namespace {

std::string TextOr(const char* text, const char* absent) { return text != nullptr ? text : absent; }

Result<std::vector<CorpusText>> ReadTexts(const char* what, const plm_text* texts, size_t count) {
  std::vector<CorpusText> out;
  if (count > 0 && texts == nullptr) return NullArgument(what);
  for (size_t i = 0; i < count; ++i) {
    const plm_text& text = texts[i];
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view data,
                              TextArgument(text.data, text.size_bytes));
    const std::string name = TextOr(text.name, "text");
    out.push_back({name, data, TextOr(text.set, name.c_str())});
  }
  return out;
}

Result<ConvertOptions> ReadConvertOptions(const plm_convert_options* options) {
  POCKETLM_ASSIGN_OR_RETURN(const plm_convert_options read,
                            ReadOptions(options, plm_convert_options_default()));
  ConvertOptions out;
  out.type = TextOr(read.type, "");
  out.head_type = TextOr(read.head_type, "");
  out.offset = TextOr(read.offset, "");
  out.group_size = read.group_size;
  out.requantize = read.requantize;
  out.num_threads = read.num_threads;
  out.target_bytes = read.target_bytes;
  POCKETLM_ASSIGN_OR_RETURN(out.calibration,
                            ReadTexts("calibration", read.calibration, read.calibration_count));
  out.program = std::string("pocketlm ") + plm_version();
  return out;
}

ConversionProgress ProgressOf(plm_progress_callback progress, void* user) {
  if (progress == nullptr) return {};
  return [progress, user](double fraction) { return progress(fraction, user); };
}

Status GiveReport(const nlohmann::ordered_json& report, char** out) {
  if (out == nullptr) return OkStatus();
  return CopyString(report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                    out);
}

}  // namespace

extern "C" {

plm_convert_options plm_convert_options_default(void) {
  return {sizeof(plm_convert_options), nullptr, nullptr, 0, nullptr, false, 0, nullptr, 0, 0};
}

plm_status plm_convert(const char* input, const char* output, const plm_convert_options* options,
                       plm_progress_callback progress, void* user, char** report_json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(input);
    POCKETLM_REQUIRE_ARGUMENT(output);
    POCKETLM_ASSIGN_OR_RETURN(const ConvertOptions read, ReadConvertOptions(options));
    POCKETLM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report,
                              ConvertModel(input, output, read, ProgressOf(progress, user)));
    return GiveReport(report, report_json);
  });
}

plm_new_model_options plm_new_model_options_default(void) {
  return {sizeof(plm_new_model_options), nullptr, nullptr, 0, nullptr};
}

plm_status plm_new_model(const char* output, const plm_new_model_options* options,
                         plm_progress_callback progress, void* user, char** report_json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(output);
    POCKETLM_ASSIGN_OR_RETURN(const plm_new_model_options read,
                              ReadOptions(options, plm_new_model_options_default()));
    NewModelOptions model;
    model.config = TextOr(read.config, "pocket-0.3b");
    model.tokenizer = TextOr(read.tokenizer, "");
    model.seed = read.seed;
    POCKETLM_ASSIGN_OR_RETURN(model.encoding, ReadConvertOptions(read.encoding));
    POCKETLM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report,
                              WriteNewModel(output, model, ProgressOf(progress, user)));
    return GiveReport(report, report_json);
  });
}

plm_prune_vocab_options plm_prune_vocab_options_default(void) {
  return {sizeof(plm_prune_vocab_options), 65536, nullptr, 0, nullptr, 0, nullptr};
}

plm_status plm_prune_vocab(const char* input, const char* output,
                           const plm_prune_vocab_options* options, plm_progress_callback progress,
                           void* user, char** report_json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(input);
    POCKETLM_REQUIRE_ARGUMENT(output);
    POCKETLM_ASSIGN_OR_RETURN(const plm_prune_vocab_options read,
                              ReadOptions(options, plm_prune_vocab_options_default()));
    PruneVocabOptions prune;
    prune.size = static_cast<size_t>(read.vocab_size);
    POCKETLM_ASSIGN_OR_RETURN(prune.corpus, ReadTexts("corpus", read.corpus, read.corpus_count));
    POCKETLM_ASSIGN_OR_RETURN(prune.evaluation,
                              ReadTexts("evaluation", read.evaluation, read.evaluation_count));
    POCKETLM_ASSIGN_OR_RETURN(prune.encoding, ReadConvertOptions(read.encoding));
    POCKETLM_ASSIGN_OR_RETURN(const nlohmann::ordered_json report,
                              PruneVocab(input, output, prune, ProgressOf(progress, user)));
    return GiveReport(report, report_json);
  });
}

}  // extern "C"
