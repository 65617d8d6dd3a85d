/* PocketLM C API, version 0: load a model, tokenize, generate.
 *
 * Conventions
 *   Text      UTF-8, given as pointer and length in bytes; text handed out is NUL-terminated as well.
 *             Text in is any bytes; text out of generation is always valid UTF-8, whole characters only.
 *   Errors    Functions that can fail return plm_status. plm_last_error() then gives one line: what, where,
 *             expected, got. Output arguments are written only on success unless said otherwise.
 *   Options   Structs that begin with size_bytes. Get one from its plm_…_options_default(), which sets
 *             size_bytes; a struct of another version is accepted as far as both know its fields: one that sets
 *             fields which this library lacks is PLM_UNSUPPORTED.
 *             A null options pointer means the defaults.
 *   Ownership Handles are freed by their own _free function, strings by plm_string_free; both accept null.
 *             A model must outlive its sessions and its borrowed tokenizer.
 *   Threads   A model and a tokenizer may be used from any number of threads. A session serves one call at a
 *             time: a second one returns PLM_BUSY. plm_session_cancel may be called from any thread.
 *             Sessions of one model compute in turns.
 *   No C++ exception crosses this interface; the library never prints, exits or aborts on input. */
#ifndef POCKETLM_POCKETLM_H_
#define POCKETLM_POCKETLM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define PLM_API __declspec(dllexport)
#else
#define PLM_API __attribute__((visibility("default")))
#endif

/* In C++ too, an enum holds any int, so that a wrong value can be refused. */
#ifdef __cplusplus
#define PLM_AS_INT : int
extern "C" {
#else
#define PLM_AS_INT
#endif

typedef enum plm_status PLM_AS_INT {
  PLM_OK = 0,
  PLM_INVALID_ARGUMENT = 1,
  PLM_NOT_FOUND = 2,
  PLM_DATA_ERROR = 3,   /* a file or text is malformed */
  PLM_UNSUPPORTED = 4,  /* well-formed, but this version cannot do it */
  PLM_CONTEXT_FULL = 5, /* more tokens than the context holds */
  PLM_CANCELLED = 6,
  PLM_OUT_OF_MEMORY = 7,
  PLM_IO_ERROR = 8,
  PLM_BUSY = 9,
  PLM_INTERNAL = 10 /* numerical failure, such as logits that are all NaN */
} plm_status;

/* "ok", "invalid_argument", …; static, never null. */
PLM_API const char* plm_status_name(plm_status status);

/* The message of the last call on this thread that returned a plm_status; "" if it was PLM_OK. Valid until the
 * next such call on this thread. */
PLM_API const char* plm_last_error(void);

/* "0.1.0"; static. */
PLM_API const char* plm_version(void);

PLM_API void plm_string_free(char* text);

typedef enum plm_log_level PLM_AS_INT { PLM_LOG_INFO = 0, PLM_LOG_WARNING = 1 } plm_log_level;
typedef void (*plm_log_callback)(plm_log_level level, const char* message, void* user);
/* Receives the library's log lines, process-wide, one call at a time; null drops them (the default). */
PLM_API void plm_set_log_callback(plm_log_callback callback, void* user);

/* ---- Tokenizer ---------------------------------------------------------------------------------- */

typedef struct plm_tokenizer plm_tokenizer;

/* Loads only the tokenizer of a GGUF file, a Hugging Face folder, or a tokenizer.json file. */
PLM_API plm_status plm_tokenizer_load(const char* path, plm_tokenizer** out);
PLM_API void plm_tokenizer_free(plm_tokenizer* tokenizer);

/* Number of ids; every id is in [0, size). */
PLM_API int32_t plm_tokenizer_vocab_size(const plm_tokenizer* tokenizer);

typedef struct plm_encode_options {
  size_t size_bytes;
  bool parse_special; /* control tokens written in the text become their ids; default false */
  bool add_bos;       /* put BOS in front if the model declares that it wants one; default false */
} plm_encode_options;
PLM_API plm_encode_options plm_encode_options_default(void);

/* Writes up to `capacity` ids and the whole number of ids to *count: call with capacity 0 to size a buffer.
 * Any bytes are accepted and come back from plm_tokenizer_decode (NFC of the text where the tokenizer
 * normalizes), but for bytes that the vocabulary has no token for, which vanish as in Hugging Face's
 * `tokenizers` (SmolLM2 lacks 21, such as 04 and FF). Added tokens that are not special ("<think>" of
 * Qwen3) match in any text. ids may be null if capacity is 0. */
PLM_API plm_status plm_tokenizer_encode(const plm_tokenizer* tokenizer, const char* text,
                                        size_t text_bytes, const plm_encode_options* options,
                                        int32_t* ids, size_t capacity, size_t* count);

/* The exact bytes that the ids stand for (not necessarily UTF-8), control tokens as their text. An id outside
 * the vocabulary is PLM_INVALID_ARGUMENT. *text is NUL-terminated; *text_bytes may be null. */
PLM_API plm_status plm_tokenizer_decode(const plm_tokenizer* tokenizer, const int32_t* ids,
                                        size_t count, char** text, size_t* text_bytes);

/* The vocabulary's own spelling of a token ("Ġthe", "▁the"), borrowed from the tokenizer and not
 * NUL-terminated; null for an id outside the vocabulary. */
PLM_API const char* plm_tokenizer_piece(const plm_tokenizer* tokenizer, int32_t id,
                                        size_t* piece_bytes);

/* ---- Model -------------------------------------------------------------------------------------- */

typedef struct plm_model plm_model;

/* How activations meet packed weights. */
typedef enum plm_activations PLM_AS_INT {
  PLM_ACTIVATIONS_INT8 = 0, /* default: quantized per token and group */
  PLM_ACTIVATIONS_F32 = 1   /* slow, for accuracy studies */
} plm_activations;

typedef struct plm_model_options {
  size_t size_bytes;
  int32_t num_threads; /* 0 (default): min(affinity, CPU quota) */
  plm_activations activations;
} plm_model_options;
PLM_API plm_model_options plm_model_options_default(void);

/* Maps a GGUF file or a Hugging Face folder. */
PLM_API plm_status plm_model_load(const char* path, const plm_model_options* options,
                                  plm_model** out);
PLM_API void plm_model_free(plm_model* model);

/* The model's tokenizer, borrowed; do not free. */
PLM_API const plm_tokenizer* plm_model_tokenizer(const plm_model* model);

/* True if the model has a chat template. */
PLM_API bool plm_model_has_chat_template(const plm_model* model);

/* JSON: architecture, parameters, config, context_length, num_threads, cpu_variant, activations, end_tokens,
 * has_chat_template. */
PLM_API plm_status plm_model_describe(const plm_model* model, char** json);

typedef struct plm_session_options plm_session_options;

/* JSON of a model file or folder without loading it for work: architecture, parameters, tensors
 * [{name, type, shape, bytes}], metadata, memory_plan {weights_bytes, kv_bytes, arena_bytes, total_bytes}
 * (for session options as given; null for the defaults). */
PLM_API plm_status plm_inspect(const char* path, const plm_session_options* options, char** json);

/* Compares all weights of a .plm file with the checksums in it, which loading does not: PLM_DATA_ERROR names the first
 * tensor that differs; PLM_UNSUPPORTED for other files. Reads the whole file. */
PLM_API plm_status plm_verify(const char* path);

/* ---- Session ------------------------------------------------------------------------------------ */

typedef struct plm_session plm_session;

/* How cached keys and values are kept. int8 and int4 have one fp16 scale per 64 values (int4: rotated). */
typedef enum plm_kv_type PLM_AS_INT {
  PLM_KV_F16 = 0,
  PLM_KV_F32 = 1,
  PLM_KV_INT8 = 2, /* f16 where the model's head size is no multiple of 4 */
  PLM_KV_INT4 =
      3 /* for long contexts; risky for keys: some models then answer badly (logged as a warning) */
} plm_kv_type;

struct plm_session_options {
  size_t size_bytes;
  uint32_t context_length; /* tokens; 0 (default): min(model's limit, 4096) */
  /* tokens computed at once, 1 … 4096; default 128; never changes results */
  uint32_t prefill_chunk;
  plm_kv_type kv_k_type; /* default int8 */
  plm_kv_type kv_v_type;
};
PLM_API plm_session_options plm_session_options_default(void);

PLM_API plm_status plm_session_create(plm_model* model, const plm_session_options* options,
                                      plm_session** out);
PLM_API void plm_session_free(plm_session* session);

/* Tokens the context holds. */
PLM_API uint32_t plm_session_context_length(const plm_session* session);

/* Forgets all tokens. */
PLM_API plm_status plm_session_reset(plm_session* session);

/* Makes the running call return soon: a generation ends with PLM_FINISH_CANCELLED. Without a running call
 * it does nothing. Any thread, also from a signal handler. */
PLM_API void plm_session_cancel(plm_session* session);

/* ---- Prompts ------------------------------------------------------------------------------------ */

typedef struct plm_chat_options {
  size_t size_bytes;
  const char* tools_json; /* JSON array of tool definitions, or null */
  /* JSON object of further template variables (enable_thinking …), or null */
  const char* extra_json;
  bool add_generation_prompt; /* default true */
  /* A prompt that does not fit is shortened: oldest turns first, then the start of the last message, never the
   * system message; default false: PLM_CONTEXT_FULL. */
  bool truncate;
  uint32_t reserve_tokens; /* room that truncation leaves for the answer; default 256 */
} plm_chat_options;
PLM_API plm_chat_options plm_chat_options_default(void);

/* The text that the model's chat template makes of a JSON array of messages
 * [{"role": "user", "content": "…"}, …]. PLM_UNSUPPORTED if the model has no template. *text_bytes (may be null) is
 * its length: a message may contain NUL characters. */
PLM_API plm_status plm_model_render_chat(const plm_model* model, const char* messages_json,
                                         const plm_chat_options* options, char** text,
                                         size_t* text_bytes);

/* Makes the session's prompt: a raw text. Null options mean the defaults but for add_bos, which is true here: BOS
 * is added if the model wants one … */
PLM_API plm_status plm_session_set_text(plm_session* session, const char* text, size_t text_bytes,
                                        const plm_encode_options* options);
/* … or a conversation through the chat template: control tokens come from the template alone, never from the
 * messages; *truncated (may be null) tells whether it was shortened … */
PLM_API plm_status plm_session_set_chat(plm_session* session, const char* messages_json,
                                        const plm_chat_options* options, bool* truncated);
/* … or token ids. All three replace what the session held, but keys and values of the common beginning are
 * kept, so a growing conversation costs only its new tokens. More tokens than the context holds is
 * PLM_CONTEXT_FULL and changes nothing. */
PLM_API plm_status plm_session_set_tokens(plm_session* session, const int32_t* ids, size_t count);

/* The session's tokens: prompt, then what was generated. As plm_tokenizer_encode. */
PLM_API plm_status plm_session_tokens(const plm_session* session, int32_t* ids, size_t capacity,
                                      size_t* count);

/* Computes what is not computed yet and copies the logits after the last token: [vocab_size] floats of the
 * tokenizer's ids. PLM_INVALID_ARGUMENT if the session is empty or capacity < vocab_size. */
PLM_API plm_status plm_session_logits(plm_session* session, float* logits, size_t capacity);

/* ---- Generation --------------------------------------------------------------------------------- */

typedef struct plm_logit_bias {
  int32_t token;
  float bias; /* added to the logit; -INFINITY bans the token */
} plm_logit_bias;

typedef struct plm_generate_options {
  size_t size_bytes;
  int32_t max_tokens;               /* -1 (default): until an end token or a full context */
  float temperature;                /* 0 (default): greedy, the lowest id of the largest logits */
  int32_t top_k;                    /* 0 (default): off */
  float top_p;                      /* 1 (default): off; 0 keeps one token */
  float min_p;                      /* 0 (default): off */
  float repetition_penalty;         /* 1 (default): off; over prompt and answer, as in CTRL */
  float presence_penalty;           /* 0 (default); over the answer */
  float frequency_penalty;          /* 0 (default); over the answer */
  uint64_t seed;                    /* default 0; the same seed gives the same answer */
  const plm_logit_bias* logit_bias; /* may be null */
  size_t logit_bias_count;
  /* NUL-terminated texts that end the answer, not part of it; may be null */
  const char* const* stop;
  size_t stop_count;
  bool ignore_end_tokens; /* go on until max_tokens; default false */
} plm_generate_options;
PLM_API plm_generate_options plm_generate_options_default(void);

/* Receives each piece of the answer: NUL-terminated valid UTF-8, whole characters, stop texts held back.
 * Return true to go on, false to cancel. Called on the thread that generates; must not use the session. */
typedef bool (*plm_text_callback)(const char* text, size_t text_bytes, void* user);

typedef enum plm_finish_reason PLM_AS_INT {
  PLM_FINISH_STOP = 0,
  PLM_FINISH_LENGTH = 1,
  PLM_FINISH_CANCELLED = 2
} plm_finish_reason;

typedef struct plm_generate_result {
  size_t size_bytes;
  /* stop: end token or stop text; length: max_tokens or full context */
  plm_finish_reason finish_reason;
  uint32_t tokens_in;     /* tokens of the prompt */
  uint32_t tokens_cached; /* of these, how many were already computed */
  uint32_t tokens_out;    /* sampled tokens, the end token included */
  double prefill_ms;
  double decode_ms;      /* first token excluded */
  double first_token_ms; /* from the call to the first sampled token */
  size_t text_bytes;     /* length of the answer, which may contain NUL characters */
} plm_generate_result;

/* Answers the session's prompt; the answer's tokens become part of the session. `callback` may be null.
 * *text (may be null) receives the whole answer, to be freed with plm_string_free. On failure the session
 * keeps the tokens it had before the call. A prompt that fills the context leaves no room for an answer:
 * PLM_CONTEXT_FULL, unless max_tokens is 0. result may be null; set its size_bytes. */
PLM_API plm_status plm_session_generate(plm_session* session, const plm_generate_options* options,
                                        plm_text_callback callback, void* user, char** text,
                                        plm_generate_result* result);

/* ---- Measurement -------------------------------------------------------------------------------- */

typedef struct plm_perplexity_options {
  size_t size_bytes;
  /* default false: windows of the context length without overlap, their first half unscored, BOS in place of a
   * window's first token if the model adds one, the last partial window dropped (llama.cpp's way). true: every
   * token of the text is scored, overlapping windows. */
  bool score_all;
  size_t max_windows; /* stop after this many windows; 0 (default): all */
} plm_perplexity_options;
PLM_API plm_perplexity_options plm_perplexity_options_default(void);

typedef struct plm_perplexity_result {
  size_t size_bytes;
  uint64_t tokens; /* scored */
  uint64_t bytes;  /* of text, of the scored tokens */
  double nll;      /* natural log, summed */
  double perplexity;
  double bits_per_byte;
} plm_perplexity_result;

/* Progress of long work, fraction in [0, 1]; return false to cancel. */
typedef bool (*plm_progress_callback)(double fraction, void* user);

/* Perplexity of the model on a text, in windows of the session's context length. Resets the session before and
 * after. PLM_INVALID_ARGUMENT if the text does not fill one window (score_all: if it is empty). */
PLM_API plm_status plm_session_perplexity(plm_session* session, const char* text, size_t text_bytes,
                                          const plm_perplexity_options* options,
                                          plm_progress_callback progress, void* user,
                                          plm_perplexity_result* result);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POCKETLM_POCKETLM_H_ */
