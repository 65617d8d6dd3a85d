#include "compress/token_use.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/utf8.h"

namespace pocketlm {
namespace {

constexpr double kUnseenFactor = 10.0;
constexpr double kNonHanFactor = 2.2;
constexpr int32_t kRankBlock = 16384;
constexpr size_t kPassageChunk = 64;

enum class Script : uint8_t {
  kNone,
  kAscii,
  kLatin,
  kHan,
  kGreek,
  kCyrillic,
  kHebrew,
  kArabic,
  kIndic,
  kThai,
  kKana,
  kHangul,
  kOther,
  kBroken
};

struct ScriptRange {
  char32_t begin, end;  // [begin, end)
  Script script;
};

// Letters outside ASCII, by the blocks of Unicode.
constexpr ScriptRange kScriptRanges[] = {
    {0xC0, 0x250, Script::kLatin},     {0x370, 0x400, Script::kGreek},
    {0x400, 0x530, Script::kCyrillic}, {0x590, 0x600, Script::kHebrew},
    {0x600, 0x780, Script::kArabic},   {0x900, 0xE00, Script::kIndic},
    {0xE00, 0xE80, Script::kThai},     {0x1100, 0x1200, Script::kHangul},
    {0x1E00, 0x1F00, Script::kLatin},  {0x1F00, 0x2000, Script::kGreek},
    {0x3040, 0x3100, Script::kKana},   {0x3400, 0x4DC0, Script::kHan},
    {0x4E00, 0xA000, Script::kHan},    {0xAC00, 0xD7B0, Script::kHangul},
    {0xF900, 0xFB00, Script::kHan},    {0xFB50, 0xFE00, Script::kArabic},
    {0xFE70, 0xFF00, Script::kArabic}, {0x20000, 0x40000, Script::kHan}};

const char* ScriptName(Script script) {
  switch (script) {
    case Script::kGreek:
      return "Greek";
    case Script::kCyrillic:
      return "Cyrillic";
    case Script::kHebrew:
      return "Hebrew";
    case Script::kArabic:
      return "Arabic";
    case Script::kIndic:
      return "Indic";
    case Script::kThai:
      return "Thai";
    case Script::kKana:
      return "Kana";
    case Script::kHangul:
      return "Hangul";
    case Script::kHan:
      return "Han";
    case Script::kAscii:
    case Script::kLatin:
      return "Latin";
    default:
      return "";
  }
}

Script ScriptOf(char32_t c) {
  if (c < 0x80) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return letter ? Script::kAscii : Script::kNone;
  }
  for (const ScriptRange& range : kScriptRanges) {
    if (c >= range.begin && c < range.end) return range.script;
  }
  return c < 0x2000 || c >= 0x3000 ? Script::kOther : Script::kNone;
}

enum class Case : uint8_t { kNone, kLower, kUpper, kTitle, kMixed };

// What tokens have in common whose chances in new text are alike.
struct Shape {
  Script script =
      Script::kNone;  // Han or a part of a character above all, else that of the last letter
  Case letters = Case::kNone;  // of a word of ASCII letters
  bool leading_space = false;
  bool pure = true;  // nothing but letters of the script

  auto Key() const { return std::tuple(script, letters, leading_space, pure); }
};

Case CaseOf(std::string_view word) {
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto upper = static_cast<size_t>(std::count_if(word.begin(), word.end(), is_upper));
  if (upper == 0) return Case::kLower;
  if (upper == word.size()) return Case::kUpper;
  return upper == 1 && is_upper(word.front()) ? Case::kTitle : Case::kMixed;
}

Shape ShapeOf(std::string_view text) {
  Shape shape;
  shape.leading_space = text.size() > 1 && text.front() == ' ';
  if (shape.leading_space) text.remove_prefix(1);
  for (size_t i = 0; i < text.size();) {
    const DecodedCodepoint decoded = DecodeUtf8(text, i);
    i += decoded.size_bytes;
    const Script script = decoded.valid ? ScriptOf(decoded.codepoint) : Script::kBroken;
    if (script == Script::kNone || (i > decoded.size_bytes && script != shape.script))
      shape.pure = false;
    if (script == Script::kNone || shape.script == Script::kBroken || shape.script == Script::kHan)
      continue;
    shape.script = script;
  }
  if (shape.pure && shape.script == Script::kAscii) shape.letters = CaseOf(text);
  return shape;
}

// The shape of a token, or nullopt for those that text does not become.
struct TokenShapes {
  explicit TokenShapes(const Tokenizer& tokenizer) {
    const std::vector<TokenDerivation> derivations = DeriveTokens(tokenizer);
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const bool in_text = derivations[static_cast<size_t>(id)].reachable &&
                           !tokenizer.IsControl(id) && !tokenizer.IsUnused(id);
      if (in_text) shapes.emplace_back(id, ShapeOf(tokenizer.TokenBytes(id)));
    }
  }
  std::vector<std::pair<int32_t, Shape>> shapes;
};

}  // namespace

Result<std::vector<uint64_t>> CountTokens(const Tokenizer& tokenizer,
                                          const std::vector<CorpusText>& texts, ThreadPool* pool,
                                          const std::function<bool(size_t bytes)>& proceed) {
  const auto size = static_cast<size_t>(tokenizer.vocab_size());
  std::vector<std::vector<uint64_t>> counts(static_cast<size_t>(pool->num_threads()));
  for (auto& of_thread : counts) of_thread.assign(size, 0);
  for (const CorpusText& text : texts) {
    if (!proceed(text.data.size())) return Cancelled("cancelled");
    POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::string> passages, PassagesOf(text));
    pool->ParallelFor(passages.size(), kPassageChunk, [&](size_t begin, size_t end, int thread) {
      std::vector<uint64_t>& of_thread = counts[static_cast<size_t>(thread)];
      for (size_t i = begin; i < end; ++i) {
        for (const int32_t id : tokenizer.Encode(passages[i])) ++of_thread[static_cast<size_t>(id)];
      }
    });
  }
  uint64_t total = 0;
  for (size_t id = 0; id < size; ++id) {
    for (size_t thread = 1; thread < counts.size(); ++thread) counts[0][id] += counts[thread][id];
    total += counts[0][id];
  }
  if (total == 0) return DataError("corpus: expected text, got none");
  return std::move(counts[0]);
}

std::vector<double> TokenWeights(const Tokenizer& tokenizer, const std::vector<uint64_t>& counts) {
  std::vector<double> weights(counts.begin(), counts.end());
  struct Seen {
    double never = 0.0, once = 0.0;
  };
  const TokenShapes tokens(tokenizer);
  const auto key = [](int32_t id, const Shape& shape) {
    return std::pair(shape.Key(), id / kRankBlock);
  };
  std::map<decltype(key(0, Shape())), Seen> seen;
  for (const auto& [id, shape] : tokens.shapes) {
    const uint64_t count = counts[static_cast<size_t>(id)];
    Seen& alike = seen[key(id, shape)];
    alike.never += count == 0;
    alike.once += count == 1;
  }
  for (const auto& [id, shape] : tokens.shapes) {
    const Seen& alike = seen.at(key(id, shape));
    double& weight = weights[static_cast<size_t>(id)];
    weight += kUnseenFactor * alike.once / std::max(alike.never, 1.0);
    if (shape.script != Script::kHan) weight *= kNonHanFactor;
  }
  return weights;
}

std::vector<std::string> ScriptsWithoutUse(const Tokenizer& tokenizer,
                                           const std::vector<uint64_t>& counts) {
  struct Use {
    size_t tokens = 0, used = 0;
  };
  std::map<std::string, Use> scripts;
  for (const auto& [id, shape] : TokenShapes(tokenizer).shapes) {
    Use& use = scripts[ScriptName(shape.script)];
    ++use.tokens;
    use.used += counts[static_cast<size_t>(id)] > 0;
  }
  std::vector<std::string> out;
  for (const auto& [name, use] : scripts) {
    const bool large = use.tokens * 200 >= counts.size();
    if (!name.empty() && large && use.used * 100 < use.tokens) out.push_back(name);
  }
  return out;
}

}  // namespace pocketlm
