/* PocketLM C API, conversion: model files in other types and formats, models with random weights,
 * smaller vocabularies. The conventions are
 * those of pocketlm.h. */
#ifndef POCKETLM_CONVERT_H_
#define POCKETLM_CONVERT_H_

#include "pocketlm/pocketlm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text in memory, borrowed for the call. */
typedef struct plm_text {
  const char*
      name; /* for messages; one that ends in ".jsonl" means a JSON value a line, whose strings all count but
                       those of keys called "id" */
  const char* data;
  size_t size_bytes;
  const char* set; /* what the report adds it up under; null: `name` */
} plm_text;

/* How weights are stored. Texts may be null or "", which means the default. */
typedef struct plm_convert_options {
  size_t size_bytes;
  /* Of matrices. A .plm file: "int4" (default), "int8", "f16". GGUF: "q4_1" (default), "q4_0", "q8_0", "f16". A folder:
   * "f16" (default), "f32". Codes
   * that the type holds exactly are kept bit for bit: Q4_0, Q4_1 and int4 for int4 and q4_1; Q5_0, Q8_0 and int8
   * for int8 and q8_0. All else is rounded to the nearest code. */
  const char* type;
  /* Of the embedding table and the output head. Default: as `type`, but int8 (q8_0) where `type` has 4 bits and the
   * source stores the table in 5 to 8. */
  const char* head_type;
  uint32_t
      group_size; /* weights that share a scale, of what is rounded for .plm: 32, 64 (0: default), 128 */
  /* Offsets of int4 groups, of what is rounded for .plm: "zero4" (default; integers), "min_f16", "none". */
  const char* offset;
  bool requantize;     /* round codes too that could be kept; default false */
  int32_t num_threads; /* 0 (default): min(affinity, CPU quota) */
  /* Texts like those that the model will read, a few thousand tokens at least. With them, what is rounded
   * to 4 bits, but for a table that is no head, is rounded so that what they make of these texts changes least (GPTQ), which takes minutes; without
   * (default), to the nearest code. */
  const plm_text* calibration;
  size_t calibration_count;
  uint64_t
      target_bytes; /* 0 (default): none. Else every matrix gets the type that loses least on the calibration texts, so that
                            the file has this many bytes at most; not beside type, head_type, group_size, offset */
} plm_convert_options;
PLM_API plm_convert_options plm_convert_options_default(void);

/* Converts the model at `input` (a .plm or GGUF file, a Hugging Face folder) to `output`, whose ending tells the format: .plm,
 * .gguf, or / for a Hugging Face folder, which must be empty or not be there. The output is written beside its place under another name, opened again, held to what was meant
 * to be in it and then renamed: it is complete or not there. An output that is the input is PLM_INVALID_ARGUMENT.
 * `progress` may be null; false from it is PLM_CANCELLED. *report_json (may be null): {input, output, format, type,
 * method ("rtn" or "gptq"), bytes, architecture, parameters, bits_per_weight, types: [{type, tensors, parameters, bytes, exact,
 * relative_rms_error, max_error}], notes, verified, seconds}; errors are those of stored against source values. */
PLM_API plm_status plm_convert(const char* input, const char* output,
                               const plm_convert_options* options, plm_progress_callback progress,
                               void* user, char** report_json);

typedef struct plm_new_model_options {
  size_t size_bytes;
  const char*
      config; /* "pocket-0.3b" (null: default), "qwen3-0.6b", or the path of a config.json */
  const char*
      tokenizer; /* a model or tokenizer.json to take it from; null (default): a made-up vocabulary */
  uint64_t seed; /* the same seed gives the same weights on every machine; default 0 */
  const plm_convert_options* encoding; /* null: the defaults */
} plm_new_model_options;
PLM_API plm_new_model_options plm_new_model_options_default(void);

/* Writes a model with random weights, as plm_convert writes one. The report has `config` and `seed` in place of
 * `input`. */
PLM_API plm_status plm_new_model(const char* output, const plm_new_model_options* options,
                                 plm_progress_callback progress, void* user, char** report_json);

typedef struct plm_prune_vocab_options {
  size_t size_bytes;
  uint64_t
      vocab_size; /* tokens to keep; default 65536. Tables are padded with zeros to a multiple of 64 rows */
  const plm_text* corpus; /* texts like those that the model will read: at least one */
  size_t corpus_count;
  const plm_text* evaluation; /* texts to judge the cut on; default: the corpus */
  size_t evaluation_count;
  const plm_convert_options* encoding; /* null: the defaults */
} plm_prune_vocab_options;
PLM_API plm_prune_vocab_options plm_prune_vocab_options_default(void);

/* Writes the model at `input` with the tokens that the corpus needs most to `output`, as plm_convert writes one: rows of
 * the embedding table and the output head carried over under new ids. Byte tokens, control tokens, added tokens and
 * whatever kept tokens are merged from stay, so every text round-trips, and a text of kept tokens keeps them. With an
 * output that ends in ".json", `input` may be a tokenizer.json too, and a tokenizer.json is all that is written.
 * The report has {input, size, tokens: {before, after, forced}, judged_on, sets, languages} in front of plm_convert's;
 * the last two hold, by set and language (zh, en, other), {passages, unchanged, characters, bytes, tokens_before,
 * tokens_after, increase, tokens_per_character_before, tokens_per_character_after}. A size that is not below the
 * present one is PLM_INVALID_ARGUMENT, broken JSON in a text PLM_DATA_ERROR. */
PLM_API plm_status plm_prune_vocab(const char* input, const char* output,
                                   const plm_prune_vocab_options* options,
                                   plm_progress_callback progress, void* user, char** report_json);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POCKETLM_CONVERT_H_ */
