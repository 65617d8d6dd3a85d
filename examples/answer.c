// Answers a question with the model that the command line names.
#include <stdio.h>

#include "pocketlm/pocketlm.h"

static bool Print(const char* text, size_t text_bytes, void* user) {
  return fwrite(text, 1, text_bytes, (FILE*)user) == text_bytes;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const char* messages = "[{\"role\": \"user\", \"content\": \"What is gravity?\"}]";
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = 100;
  plm_model* model = NULL;
  plm_session* session = NULL;
  plm_status status = plm_model_load(argv[1], NULL, &model);
  if (status == PLM_OK) status = plm_session_create(model, NULL, &session);
  if (status == PLM_OK) status = plm_session_set_chat(session, messages, NULL, NULL);
  if (status == PLM_OK) status = plm_session_generate(session, &options, Print, stdout, NULL, NULL);
  if (status != PLM_OK) fprintf(stderr, "%s\n", plm_last_error());
  plm_session_free(session);
  plm_model_free(model);
  return status == PLM_OK ? 0 : 1;
}
