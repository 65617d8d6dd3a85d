// ModelSource from a GGUF file. Keys: the GGUF specification, "tokenizer.ggml.*".
#include <algorithm>
#include <string>
#include <utility>

#include "base/quote.h"
#include "model/model_source.h"

namespace pocketlm {
namespace {

constexpr int64_t kNumGgufTokenTypes = 6;  // 1 (normal) … 6 (byte)

// An optional token id; −1 if the key is absent.
Result<int32_t> ReadTokenId(const GgufFile& file, const std::string& key, size_t vocab_size) {
  POCKETLM_ASSIGN_OR_RETURN(const int64_t id, file.GetIntOr(key, -1));
  if (id < -1 || id >= static_cast<int64_t>(vocab_size)) {
    return DataError("gguf: " + key + ": expected a token below " + std::to_string(vocab_size) +
                     ", got " + std::to_string(id));
  }
  return static_cast<int32_t>(id);
}

Status ReadTokens(const GgufFile& file, TokenizerSpec* spec) {
  POCKETLM_ASSIGN_OR_RETURN(const GgufArray tokens, file.GetArray("tokenizer.ggml.tokens"));
  if (!tokens.is_string())
    return DataError("gguf: tokenizer.ggml.tokens: expected an array of strings");
  spec->tokens.reserve(tokens.size());
  for (std::string_view token : tokens.strings()) spec->tokens.emplace_back(token);

  if (file.HasKey("tokenizer.ggml.token_type")) {
    POCKETLM_ASSIGN_OR_RETURN(const GgufArray types, file.GetArray("tokenizer.ggml.token_type"));
    if (types.size() != tokens.size()) {
      return DataError("gguf: tokenizer.ggml.token_type: expected " +
                       std::to_string(tokens.size()) + " entries, got " +
                       std::to_string(types.size()));
    }
    spec->types.reserve(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      const int64_t type = types.Int(i).value_or(0);
      if (type < 1 || type > kNumGgufTokenTypes) {
        return DataError("gguf: tokenizer.ggml.token_type[" + std::to_string(i) +
                         "]: expected 1 to 6, got " + std::to_string(type));
      }
      spec->types.push_back(static_cast<TokenType>(type - 1));
    }
  }
  return OkStatus();
}

Status ReadScores(const GgufFile& file, TokenizerSpec* spec) {
  POCKETLM_ASSIGN_OR_RETURN(const GgufArray scores, file.GetArray("tokenizer.ggml.scores"));
  if (scores.size() != spec->tokens.size()) {
    return DataError("gguf: tokenizer.ggml.scores: expected " +
                     std::to_string(spec->tokens.size()) + " entries, got " +
                     std::to_string(scores.size()));
  }
  spec->scores.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    const std::optional<double> score = scores.Float(i);
    if (!score) return DataError("gguf: tokenizer.ggml.scores: expected numbers");
    spec->scores.push_back(static_cast<float>(*score));
  }
  return OkStatus();
}

Status ReadByteLevel(const GgufFile& file, TokenizerSpec* spec) {
  spec->kind = TokenizerKind::kByteLevelBpe;
  POCKETLM_ASSIGN_OR_RETURN(const GgufArray merges, file.GetArray("tokenizer.ggml.merges"));
  if (!merges.is_string())
    return DataError("gguf: tokenizer.ggml.merges: expected an array of strings");
  spec->merges.reserve(merges.size());
  for (std::string_view merge : merges.strings()) spec->merges.emplace_back(merge);
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view pre, file.GetString("tokenizer.ggml.pre"));
  POCKETLM_RETURN_IF_ERROR(ApplyGgufPre(pre, spec));
  POCKETLM_ASSIGN_OR_RETURN(spec->add_space_prefix,
                            file.GetBoolOr("tokenizer.ggml.add_space_prefix", false));
  // Files of Llama 3 leave it out and mean yes.
  POCKETLM_ASSIGN_OR_RETURN(spec->add_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token",
                                                          spec->splitter == Splitter::kLlama3));
  return OkStatus();
}

Status ReadSentencePiece(const GgufFile& file, TokenizerSpec* spec) {
  spec->kind = TokenizerKind::kSentencePieceBpe;
  POCKETLM_RETURN_IF_ERROR(ReadScores(file, spec));
  // Defaults of SentencePiece models where a file says nothing.
  POCKETLM_ASSIGN_OR_RETURN(spec->add_space_prefix,
                            file.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  POCKETLM_ASSIGN_OR_RETURN(spec->add_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token", true));
  return OkStatus();
}

}  // namespace

Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  TokenizerSpec spec;
  POCKETLM_RETURN_IF_ERROR(ReadTokens(file, &spec));
  const size_t size = spec.tokens.size();
  POCKETLM_ASSIGN_OR_RETURN(spec.bos_id, ReadTokenId(file, "tokenizer.ggml.bos_token_id", size));
  POCKETLM_ASSIGN_OR_RETURN(spec.eos_id, ReadTokenId(file, "tokenizer.ggml.eos_token_id", size));
  POCKETLM_ASSIGN_OR_RETURN(spec.unk_id,
                            ReadTokenId(file, "tokenizer.ggml.unknown_token_id", size));
  POCKETLM_ASSIGN_OR_RETURN(spec.pad_id,
                            ReadTokenId(file, "tokenizer.ggml.padding_token_id", size));
  POCKETLM_ASSIGN_OR_RETURN(spec.add_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view kind, file.GetString("tokenizer.ggml.model"));
  if (kind == "gpt2") {
    POCKETLM_RETURN_IF_ERROR(ReadByteLevel(file, &spec));
  } else if (kind == "llama") {
    POCKETLM_RETURN_IF_ERROR(ReadSentencePiece(file, &spec));
  } else {
    return Unsupported("gguf: tokenizer.ggml.model: expected gpt2 or llama, got " + Quote(kind));
  }
  return spec;
}

Result<ModelSource> ModelSourceFromGguf(GgufFile file) {
  ModelSource source;
  POCKETLM_ASSIGN_OR_RETURN(source.config, ConfigFromGguf(file));
  POCKETLM_ASSIGN_OR_RETURN(source.tokenizer, TokenizerSpecFromGguf(file));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    POCKETLM_ASSIGN_OR_RETURN(const int32_t id,
                              ReadTokenId(file, key, source.tokenizer.tokens.size()));
    if (id >= 0) source.end_tokens.push_back(id);
  }
  if (file.HasKey("tokenizer.ggml.eos_token_ids")) {
    POCKETLM_ASSIGN_OR_RETURN(const GgufArray ids, file.GetArray("tokenizer.ggml.eos_token_ids"));
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t id = ids.Int(i).value_or(-1);
      if (id >= 0 && id < static_cast<int64_t>(source.tokenizer.tokens.size()))
        source.end_tokens.push_back(static_cast<int32_t>(id));
    }
  }
  std::sort(source.end_tokens.begin(), source.end_tokens.end());
  source.end_tokens.erase(std::unique(source.end_tokens.begin(), source.end_tokens.end()),
                          source.end_tokens.end());
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view chat_template,
                            file.GetStringOr("tokenizer.chat_template", ""));
  if (!chat_template.empty()) source.chat_template = std::string(chat_template);
  source.gguf = std::move(file);
  return source;
}

}  // namespace pocketlm
