/* PocketLM C API, decisions: answers chosen among given ones, with probabilities. The conventions are those of
 * pocketlm.h. */
#ifndef POCKETLM_DECIDE_H_
#define POCKETLM_DECIDE_H_

#include "pocketlm/pocketlm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Answers questions with a session's model. Keeps what depends on questions and options alone, so one that is kept answers the same
 * questions about the next text sooner. Not thread-safe. */
typedef struct plm_decider plm_decider;

/* The session is borrowed, must outlive the decider, and loses its tokens with every decision. */
PLM_API plm_status plm_decider_create(plm_session* session, plm_decider** decider);
PLM_API void plm_decider_free(plm_decider* decider); /* null is allowed */

/* Answers a request: {"text", "instruction"?: before the text, "questions": [
 *   {"type": "choice", "question"?, "choices": ["label" | {"label", "text": what the model would write}, 2 to 200]} |
 *   {"type": "boolean", "question"} | {"type": "score", "question", "min", "max"}],
 *   "abstain_below"?: probability under which an answer is marked, default 0,
 *   "correct_prior"?: subtract what the options score without the text, default true,
 *   "raw"?: without the model's chat template, default false}.
 * *answers_json, to be freed with plm_string_free: {answers: [{question, choice, probabilities {label: p}, mass, margin,
 * abstained, score?}], tokens_in, time_ms}. A boolean's labels are "true" and "false"; a score's are its numbers, and its
 * "score" is their mean. mass: the probability that the model writes one of the options at all; low means that the question
 * was not understood.
 * PLM_INVALID_ARGUMENT, PLM_DATA_ERROR: the request; PLM_CONTEXT_FULL; PLM_CANCELLED by plm_session_cancel. */
PLM_API plm_status plm_decider_decide(plm_decider* decider, const char* request_json,
                                      char** answers_json);

#ifdef __cplusplus
}
#endif

#endif /* POCKETLM_DECIDE_H_ */
