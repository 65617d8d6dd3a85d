// ModelSource from a .plm file.
#include <utility>

#include "model/model_source.h"
#include "model/plm_metadata.h"

namespace pocketlm {

Result<ModelSource> ModelSourceFromPlm(PlmFile file) {
  POCKETLM_ASSIGN_OR_RETURN(PlmDescription description, ReadPlmDescription(file));
  ModelSource source;
  source.config = std::move(description.config);
  source.tokenizer = std::move(description.tokenizer);
  source.chat_template = std::move(description.chat_template);
  source.end_tokens = std::move(description.end_tokens);
  source.plm = std::move(file);
  return source;
}

Result<TokenizerSpec> TokenizerSpecFromPlm(const PlmFile& file) {
  POCKETLM_ASSIGN_OR_RETURN(PlmDescription description, ReadPlmDescription(file));
  return std::move(description.tokenizer);
}

}  // namespace pocketlm
