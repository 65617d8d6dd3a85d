// plm_tokenizer_….
#include <algorithm>

#include "capi/internal.h"
#include "model/model_source.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

extern "C" {

plm_encode_options plm_encode_options_default(void) {
  return {sizeof(plm_encode_options), false, false};
}

plm_status plm_tokenizer_load(const char* path, plm_tokenizer** out) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    POCKETLM_REQUIRE_ARGUMENT(out);
    POCKETLM_ASSIGN_OR_RETURN(TokenizerSpec spec, OpenTokenizerSpec(path));
    auto handle = std::make_unique<plm_tokenizer>();
    POCKETLM_ASSIGN_OR_RETURN(handle->owned, Tokenizer::Create(std::move(spec)));
    handle->tokenizer = handle->owned.get();
    *out = handle.release();
    return OkStatus();
  });
}

void plm_tokenizer_free(plm_tokenizer* tokenizer) { delete tokenizer; }

int32_t plm_tokenizer_vocab_size(const plm_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer->vocab_size();
}

plm_status plm_tokenizer_encode(const plm_tokenizer* tokenizer, const char* text, size_t text_bytes,
                                const plm_encode_options* options, int32_t* ids, size_t capacity,
                                size_t* count) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(tokenizer);
    POCKETLM_REQUIRE_ARGUMENT(count);
    if (capacity > 0) POCKETLM_REQUIRE_ARGUMENT(ids);
    POCKETLM_ASSIGN_OR_RETURN(const std::string_view input, TextArgument(text, text_bytes));
    POCKETLM_ASSIGN_OR_RETURN(const plm_encode_options read,
                              ReadOptions(options, plm_encode_options_default()));
    Tokenizer::EncodeOptions encode;
    encode.parse_special = read.parse_special;
    const Tokenizer& t = *tokenizer->tokenizer;
    std::vector<int32_t> out = t.Encode(input, encode);
    if (read.add_bos && t.add_bos()) out.insert(out.begin(), t.bos_id());
    std::copy_n(out.begin(), std::min(capacity, out.size()), ids);
    *count = out.size();
    return OkStatus();
  });
}

plm_status plm_tokenizer_decode(const plm_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                char** text, size_t* text_bytes) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(tokenizer);
    POCKETLM_REQUIRE_ARGUMENT(text);
    if (count > 0) POCKETLM_REQUIRE_ARGUMENT(ids);
    const Tokenizer& t = *tokenizer->tokenizer;
    for (size_t i = 0; i < count; ++i) {
      if (!t.IsValid(ids[i])) {
        return InvalidArgument("decode: ids[" + std::to_string(i) + "]: expected a token below " +
                               std::to_string(t.vocab_size()) + ", got " + std::to_string(ids[i]));
      }
    }
    const std::string bytes = t.DecodeBytes({ids, count}, /*skip_special=*/false);
    POCKETLM_RETURN_IF_ERROR(CopyString(bytes, text));
    if (text_bytes != nullptr) *text_bytes = bytes.size();
    return OkStatus();
  });
}

const char* plm_tokenizer_piece(const plm_tokenizer* tokenizer, int32_t id, size_t* piece_bytes) {
  if (piece_bytes != nullptr) *piece_bytes = 0;
  if (tokenizer == nullptr || !tokenizer->tokenizer->IsValid(id)) return nullptr;
  const std::string_view piece = tokenizer->tokenizer->Piece(id);
  if (piece_bytes != nullptr) *piece_bytes = piece.size();
  return piece.data();
}

}  // extern "C"
