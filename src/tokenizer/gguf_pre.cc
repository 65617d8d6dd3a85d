#include <iterator>

#include "base/quote.h"
#include "tokenizer/tokenizer_spec.h"

namespace pocketlm {
namespace {

struct PreName {
  std::string_view name;
  Splitter splitter;
  bool nfc;  // GGUF does not say; the tokenizers of these families do
  bool ignore_merges;
};

constexpr PreName kPreNames[] = {
    {"gpt-2", Splitter::kGpt2, false, false},
    {"phi-2", Splitter::kGpt2, false, false},
    {"qwen2", Splitter::kQwen2, true, false},
    {"deepseek-r1-qwen", Splitter::kQwen2, true, false},
    {"llama-bpe", Splitter::kLlama3, false, true},
    {"llama3", Splitter::kLlama3, false, true},
    {"llama-v3", Splitter::kLlama3, false, true},
    {"smollm", Splitter::kSmolLm, false, false},
    {"starcoder", Splitter::kSmolLm, false, false},
};

const PreName* FindPre(std::string_view pre) {
  for (const PreName& p : kPreNames) {
    if (p.name == pre) return &p;
  }
  return nullptr;
}

Status UnknownPre(std::string_view pre) {
  std::string known;
  for (const PreName& p : kPreNames) known += (known.empty() ? "" : ", ") + std::string(p.name);
  return Unsupported("tokenizer: tokenizer.ggml.pre: expected one of " + known + ", got " +
                     Quote(pre));
}

}  // namespace

Result<Splitter> SplitterFromGgufPre(std::string_view pre) {
  const PreName* p = FindPre(pre);
  if (p == nullptr) return UnknownPre(pre);
  return p->splitter;
}

Status ApplyGgufPre(std::string_view pre, TokenizerSpec* spec) {
  const PreName* p = FindPre(pre);
  if (p == nullptr) return UnknownPre(pre);
  spec->splitter = p->splitter;
  spec->nfc = p->nfc;
  spec->ignore_merges = p->ignore_merges;
  return OkStatus();
}

}  // namespace pocketlm
