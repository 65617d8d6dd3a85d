// Any bytes as text, through every splitter and both kinds of tokenizer. Byte-level tokenizers must give the
// bytes back (where they do not normalize), no text may become a control token, and a stream must equal
// Decode.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace {

using pocketlm::Splitter;
using pocketlm::Tokenizer;
using pocketlm::TokenizerSpec;
using pocketlm::TokenType;

void AddToken(TokenizerSpec* spec, const std::string& token, TokenType type) {
  spec->tokens.push_back(token);
  spec->types.push_back(type);
  spec->scores.push_back(-static_cast<float>(spec->tokens.size()));
}

void AddAddedTokens(TokenizerSpec* spec) {
  const auto add = [&](const char* content, TokenType type, pocketlm::AddedTokenFlags flags) {
    flags.id = static_cast<int32_t>(spec->tokens.size());
    AddToken(spec, content, type);
    spec->added_flags.push_back(flags);
  };
  add("<|e|>", TokenType::kControl, {});
  add("<|e|>x", TokenType::kControl, {.lstrip = true});
  add("<s>", TokenType::kControl, {.normalized = true});
  add("\n\n", TokenType::kUserDefined, {});
  add("tag", TokenType::kUserDefined, {.rstrip = true, .single_word = true});
  add("\xC3\xA9!", TokenType::kUserDefined, {.normalized = true});
}

std::unique_ptr<Tokenizer> CreateOrDie(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  POCKETLM_CHECK(tokenizer.ok());
  return std::move(tokenizer).value();
}

std::unique_ptr<Tokenizer> ByteLevel(Splitter splitter, bool nfc) {
  TokenizerSpec spec;
  spec.splitter = splitter;
  spec.nfc = nfc;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    pocketlm::AppendByteCharacter(static_cast<unsigned char>(b), &piece);
    AddToken(&spec, piece, TokenType::kNormal);
  }
  for (const char* merge : {"a b", "ab a", "< s", "<s >", "\xC4\xA0 a", "\xC4\xA0 \xC4\xA0", "1 1",
                            "\xC3\x83 \xC2\xA9"}) {
    const std::string text = merge;
    const size_t space = text.find(' ');
    const std::string token = text.substr(0, space) + text.substr(space + 1);
    if (token != "<s>") AddToken(&spec, token, TokenType::kNormal);
    spec.merges.push_back(text);
  }
  AddAddedTokens(&spec);
  return CreateOrDie(std::move(spec));
}

std::unique_ptr<Tokenizer> SentencePiece(bool prefix) {
  TokenizerSpec spec;
  spec.kind = pocketlm::TokenizerKind::kSentencePieceBpe;
  spec.add_space_prefix = prefix;
  const char* const hex = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b) {
    AddToken(&spec, std::string("<0x") + hex[b / 16] + hex[b % 16] + ">", TokenType::kByte);
  }
  for (const char* piece : {"\xE2\x96\x81", "a", "b", "<", "s", ">", "<s", "ab",
                            "\xE2\x96\x81"
                            "a",
                            "aba", "\xE6\x9C\xA8"}) {
    AddToken(&spec, piece, TokenType::kNormal);
  }
  AddAddedTokens(&spec);
  return CreateOrDie(std::move(spec));
}

struct Subject {
  std::unique_ptr<Tokenizer> tokenizer;
  bool exact;  // decoding gives back the bytes
};

const std::vector<Subject>& Subjects() {
  static const std::vector<Subject>* subjects = [] {
    auto* s = new std::vector<Subject>;
    for (const Splitter splitter : {Splitter::kNone, Splitter::kGpt2, Splitter::kQwen2,
                                    Splitter::kLlama3, Splitter::kSmolLm}) {
      s->push_back({ByteLevel(splitter, false), true});
      s->push_back({ByteLevel(splitter, true), false});
    }
    s->push_back({SentencePiece(false), false});
    s->push_back({SentencePiece(true), false});
    return s;
  }();
  return *subjects;
}

void CheckStream(const Tokenizer& t, const std::vector<int32_t>& ids) {
  pocketlm::IncrementalDetokenizer stream(&t, false);
  std::string joined;
  for (const int32_t id : ids) joined += stream.Push(id);
  POCKETLM_CHECK(joined + stream.Flush() == t.Decode(ids, false));
}

size_t CountControl(const Tokenizer& t, const std::vector<int32_t>& ids) {
  size_t count = 0;
  for (const int32_t id : ids) count += t.IsControl(id);
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 100'000) return 0;
  const Subject& subject = Subjects()[data[0] % Subjects().size()];
  const Tokenizer& t = *subject.tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

  const std::vector<int32_t> plain = t.Encode(text);
  for (const int32_t id : plain) POCKETLM_CHECK(t.IsValid(id));
  POCKETLM_CHECK(CountControl(t, plain) == 0);
  // Tokens that take spaces with them do not give those back.
  const bool strips = text.find("tag") != std::string_view::npos;
  if (subject.exact && !strips) POCKETLM_CHECK(t.DecodeBytes(plain, false) == text);
  CheckStream(t, plain);

  const std::vector<int32_t> special = t.Encode(text, {.parse_special = true});
  CheckStream(t, special);
  const size_t cut = text.size() * data[1] / 256;
  const Tokenizer::ByteRange all[] = {{0, text.size()}}, part[] = {{0, cut}};
  POCKETLM_CHECK(CountControl(t, t.EncodePrompt(text, all)) == 0);
  POCKETLM_CHECK(CountControl(t, t.EncodePrompt(text, part)) <= text.size() - cut);
  POCKETLM_CHECK(t.EncodePrompt(text, {}) == special);
  return 0;
}
