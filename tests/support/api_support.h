// What tests of the C API share: failures as values, messages, streams, greedy answers.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "pocketlm/pocketlm.hpp"
#include "support/bigram_model.h"
#include "support/test_support.h"

namespace pocketlm::testing {

struct Outcome {
  plm_status status = PLM_OK;
  std::string message;
};

// Runs `body` and returns the failure that it throws, or PLM_OK.
template <typename Body>
Outcome Try(Body&& body) {
  try {
    std::forward<Body>(body)();
  } catch (const plm::Error& error) {
    return {error.status(), error.what()};
  }
  return {};
}

inline plm_generate_options Greedy(int32_t max_tokens = -1) {
  plm_generate_options options = plm_generate_options_default();
  options.max_tokens = max_tokens;
  return options;
}

inline plm_session_options ContextOf(uint32_t tokens) {
  plm_session_options options = plm_session_options_default();
  options.context_length = tokens;
  return options;
}

// A generation and the pieces that its callback received.
struct Streamed {
  plm::Generation answer;
  std::vector<std::string> pieces;
  std::string joined;
};

// Generates with a callback and checks what holds for every stream: each piece is valid UTF-8 and the
// pieces joined are the answer.
inline Streamed Stream(plm::Session* session, const plm_generate_options& options) {
  Streamed out;
  out.answer = session->Generate(&options, [&](std::string_view piece) {
    out.pieces.emplace_back(piece);
    out.joined += piece;
    return true;
  });
  for (const std::string& piece : out.pieces)
    EXPECT_TRUE(IsValidUtf8(piece)) << ::testing::PrintToString(piece);
  EXPECT_EQ(out.joined, out.answer.text);
  return out;
}

// A bigram model with an end token, control tokens of ChatML and room for a script.
struct ScriptedModel {
  explicit ScriptedModel(BigramModel::Vocabulary vocabulary = BigramModel::Vocabulary::kByteLevel)
      : file(vocabulary) {
    eos = file.AddControl("<|endoftext|>");
    im_start = file.AddControl("<|im_start|>");
    im_end = file.AddControl("<|im_end|>");
    file.set_eos(eos);
  }
  // `threads` 0: as many as the machine grants.
  plm::Model Load(int32_t threads = 0) const {
    plm_model_options options = plm_model_options_default();
    options.num_threads = threads;
    return plm::Model::Load(file.WriteGguf(), &options);
  }

  BigramModel file;
  int32_t eos = -1, im_start = -1, im_end = -1;
};

// ChatML that also writes names; content is trimmed.
inline constexpr char kChatMl[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role }}{% if message.name %} {{ message.name }}{% endif %}\n"
    "{{ message.content | trim }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace pocketlm::testing
