/* PocketLM C API, measurement: speed of a session, what a model lost against another one, weights of a file, memory of
 * the process, read bandwidth of the machine. The conventions are those of pocketlm.h. */
#ifndef POCKETLM_MEASURE_H_
#define POCKETLM_MEASURE_H_

#include "pocketlm/pocketlm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Speed -------------------------------------------------------------------------------------- */

typedef enum plm_benchmark_phase PLM_AS_INT {
  PLM_BENCHMARK_PREFILL = 0, /* read a prompt of random tokens, choose one token */
  PLM_BENCHMARK_DECODE = 1   /* write tokens, each chosen greedily from the model's own logits */
} plm_benchmark_phase;

typedef struct plm_benchmark_options {
  size_t size_bytes;
  plm_benchmark_phase phase; /* default prefill */
  uint32_t tokens;           /* of the prompt, or of the answer; default 512 */
  uint32_t depth;            /* made-up tokens that the cache holds before; default 0 */
  uint32_t repeats;          /* timed runs after an untimed one, 1 … 1000; default 5 */
  uint64_t seed;             /* of the random tokens; default 0 */
  bool profile;              /* one more run with a clock around every op; default false */
} plm_benchmark_options;
PLM_API plm_benchmark_options plm_benchmark_options_default(void);

typedef struct plm_benchmark_result {
  size_t size_bytes;
  /* Milliseconds of a run: forward passes and sampling alone. Every run computes all of its tokens; the prefix
   * cache is not used. */
  double median_ms;
  double min_ms;
  double max_ms;
  double sampling_ms; /* of these, choosing tokens; median */
  double sync_ms;     /* of these, waiting for other threads; median */
  /* Decode: what one token reads: all matrices, the head once, the embedding table only where it is the head … */
  uint64_t weight_bytes_per_token;
  uint64_t kv_bytes_per_token; /* … and keys and values, on average over the run */
} plm_benchmark_result;

/* Times a session. Its tokens are forgotten. PLM_CONTEXT_FULL if depth + tokens do not fit its context;
 * PLM_CANCELLED by plm_session_cancel or `progress` (may be null). *profile_json (may be null) receives
 * {"op": milliseconds, …} of the profiled run, largest first, to be freed with plm_string_free; "{}" without profile. */
PLM_API plm_status plm_session_benchmark(plm_session* session, const plm_benchmark_options* options,
                                         plm_progress_callback progress, void* user,
                                         plm_benchmark_result* result, char** profile_json);

/* ---- Two models --------------------------------------------------------------------------------- */

/* Compares the next tokens that two models expect, text by text. */
typedef struct plm_comparison plm_comparison;

typedef struct plm_comparison_result {
  size_t size_bytes;
  uint64_t tokens; /* scored, as in plm_perplexity_result; so is what follows for a and b */
  uint64_t bytes;
  uint64_t positions; /* compared: the tokens but for a first one that no model has predicted */
  /* Kullback-Leibler divergence of b from a, Σ p_a · ln(p_a / p_b) over the tokens that both vocabularies have, in
   * nats: mean, 99th percentile (interpolated between the two nearest) and maximum over the positions. */
  double kl_mean;
  double kl_p99;
  double kl_max;
  double top1_agreement; /* share of positions where both find the same token likeliest */
  double nll_a;
  double nll_b;
  double perplexity_a;
  double perplexity_b;
  double bits_per_byte_a;
  double bits_per_byte_b;
} plm_comparison_result;

/* `a` is the reference. The sessions must outlive the comparison, which computes on both; they may belong to one model,
 * with other types of keys and values. PLM_INVALID_ARGUMENT for contexts of different lengths, and for models whose
 * tokens differ, named in the message; unused ids at the end of one vocabulary do not count. */
PLM_API plm_status plm_comparison_create(plm_session* a, plm_session* b,
                                         const plm_perplexity_options* options,
                                         plm_comparison** out);
PLM_API void plm_comparison_free(plm_comparison* comparison); /* null is allowed */

/* Compares on a text, in windows of the contexts' length as plm_session_perplexity. Both sessions forget their tokens.
 * One call at a time. On failure the text does not count: PLM_INVALID_ARGUMENT if it is too short, or becomes other
 * tokens in the other model; PLM_BUSY if a session is in a call, or both are the same; PLM_CANCELLED by
 * plm_session_cancel or `progress` (may be null). */
PLM_API plm_status plm_comparison_add(plm_comparison* comparison, const char* text,
                                      size_t text_bytes, plm_progress_callback progress, void* user,
                                      plm_comparison_result* result);

/* Of all texts together; zeros before the first. */
PLM_API plm_status plm_comparison_total(const plm_comparison* comparison,
                                        plm_comparison_result* result);

/* ---- Weights ------------------------------------------------------------------------------------ */

/* JSON: what the weights of a model file or folder are, read without computing with them.
 *   {tensors: [{name, minimum, maximum, rms, zeros, non_finite, …}]}
 * in the order of a forward pass, with the names of plm_inspect, as the kernels use them (norms with Gemma's "+1").
 * minimum, maximum and rms are those of finite values (null if there is none), zeros and non_finite are counts. Types
 * with a scale per group (Q4_0, Q4_1, Q5_0, Q8_0 and those of .plm files) add group_size, groups, zero_groups (all
 * weights are 0), constant_groups (all weights are the same other number), non_finite_scales (scale or min),
 * scale_minimum, scale_maximum, first_code and codes: [how many weights have the code first_code, the next, …].
 * `against` (may be null) is the model that this one was made from: its tensors of the same place, whatever they are
 * called there, give relative_rms_error and maximum_error, over finite values; a tensor without counterpart has none.
 * PLM_INVALID_ARGUMENT for models of different shapes; a table of another vocabulary has no counterpart.
 * `num_threads` 0: min(affinity, CPU quota). `progress` may be null; false from it is PLM_CANCELLED. */
PLM_API plm_status plm_inspect_tensors(const char* path, const char* against, int32_t num_threads,
                                       plm_progress_callback progress, void* user, char** json);

/* ---- Memory ------------------------------------------------------------------------------------- */

/* JSON of a session as it runs: context_length, prefill_chunk, kv_k_type, kv_v_type, num_threads, memory_plan
 * {weights_bytes, kv_bytes, arena_bytes, total_bytes}. plm_inspect plans for a file that is not loaded. */
PLM_API plm_status plm_session_describe(const plm_session* session, char** json);

/* Of this process, in bytes; zeros where the system does not tell. */
typedef struct plm_memory_usage {
  size_t size_bytes;
  uint64_t peak_rss_bytes;  /* high-water mark of the resident set */
  uint64_t anonymous_bytes; /* resident now, not backed by a file */
  uint64_t file_bytes;      /* resident pages of mapped files now, the weights above all */
  uint64_t swap_bytes;      /* swapped out */
} plm_memory_usage;

PLM_API plm_status plm_measure_memory(plm_memory_usage* result);

/* ---- Machine and model -------------------------------------------------------------------------- */

typedef struct plm_read_bandwidth {
  size_t size_bytes;
  double file_bytes_s;   /* reading the mapped file; 0 without one */
  double buffer_bytes_s; /* reading an anonymous buffer of 512 MB */
} plm_read_bandwidth;

/* Medians of 5 passes after one more, with num_threads threads (0: as plm_model_options). `path` (may be null) is a
 * model file, or a folder, whose largest weight file counts. Allocates the buffer for the call: run it in a process
 * of its own where memory is measured too. */
PLM_API plm_status plm_measure_read_bandwidth(const char* path, int32_t num_threads,
                                              plm_read_bandwidth* result);

/* JSON: cpu_model, cpu_flags (those that matter here), cpus (what this process may use). */
PLM_API plm_status plm_describe_machine(char** json);

typedef struct plm_model_identity {
  size_t size_bytes;
  uint64_t file_bytes; /* of the file, or of all weight files of a folder */
  char hash
      [17]; /* 16 hexadecimal digits and NUL: XXH3 of length, first and last MiB; no integrity check */
} plm_model_identity;

PLM_API plm_status plm_identify_model(const char* path, plm_model_identity* result);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* POCKETLM_MEASURE_H_ */
