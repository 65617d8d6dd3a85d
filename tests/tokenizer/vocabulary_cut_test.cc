// What a cut vocabulary keeps and what it makes of texts.
#include "tokenizer/vocabulary_cut.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <set>

#include "test_models.h"

namespace pocketlm {
namespace {

using testing::ByteLevelSpec;
using ::testing::Contains;
using testing::CreateOrDie;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SentencePieceSpec;

std::vector<double> WeightsByPiece(const TokenizerSpec& spec,
                                   const std::vector<std::pair<std::string, double>>& weights) {
  std::vector<double> out(spec.tokens.size(), 0.0);
  for (const auto& [piece, weight] : weights) {
    const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), piece);
    POCKETLM_CHECK(found != spec.tokens.end());
    out[static_cast<size_t>(found - spec.tokens.begin())] = weight;
  }
  return out;
}

VocabularyCut CutOrDie(const TokenizerSpec& spec, const VocabularyCutOptions& options) {
  auto cut = CutVocabulary(spec, *CreateOrDie(spec), options);
  EXPECT_OK(cut);
  POCKETLM_CHECK(cut.ok());
  return std::move(cut).value();
}

TEST(VocabularyCut, KeepsWhatATokenIsMergedFrom) {
  const TokenizerSpec spec =
      ByteLevelSpec({"a b", "c d", "ab cd", "e f", "ef ab"}, Splitter::kNone);
  // 256 bytes, 3 added, "abcd" and what it is made of.
  const VocabularyCut cut = CutOrDie(
      spec,
      {.size = 262, .weights = WeightsByPiece(spec, {{"abcd", 9.0}, {"efab", 8.0}}), .keep = {}});
  EXPECT_THAT(cut.spec.tokens, Contains("abcd"));
  EXPECT_THAT(cut.spec.tokens, Contains("ab"));
  EXPECT_THAT(cut.spec.tokens, Contains("cd"));
  EXPECT_THAT(cut.spec.tokens, Not(Contains("ef")));
  EXPECT_EQ(cut.spec.tokens.size(), 262u);
  // 8 uses of "efab" become "e", "f", "ab".
  EXPECT_DOUBLE_EQ(cut.expected_increase, 16.0 / 17.0);
  const auto after = CreateOrDie(cut.spec);
  EXPECT_EQ(after->Encode("abcdefab").size(), 4u);
}

TEST(VocabularyCut, IdsAreDenseAndKeepTheirOrder) {
  const TokenizerSpec spec = ByteLevelSpec({"a b", "c d"}, Splitter::kNone);
  const VocabularyCut cut =
      CutOrDie(spec, {.size = 260, .weights = WeightsByPiece(spec, {{"cd", 1.0}}), .keep = {}});
  ASSERT_EQ(cut.old_ids.size(), 260u);
  EXPECT_TRUE(std::is_sorted(cut.old_ids.begin(), cut.old_ids.end()));
  for (size_t id = 0; id < cut.old_ids.size(); ++id) {
    EXPECT_EQ(cut.spec.tokens[id], spec.tokens[static_cast<size_t>(cut.old_ids[id])]);
    EXPECT_EQ(cut.new_ids[static_cast<size_t>(cut.old_ids[id])], static_cast<int32_t>(id));
  }
  EXPECT_EQ(cut.forced, 259u);
}

TEST(VocabularyCut, ForcedTokensStayAndPlaceholdersGo) {
  TokenizerSpec spec = SentencePieceSpec({"a", "b", "\xE4\xBD\xA0", "\xE5\xA5\xBD", "ab"});
  for (const char* name : {"<unused3>", "<unused4>", "<start_of_turn>"}) {
    spec.tokens.push_back(name);
    spec.types.push_back(TokenType::kControl);
    spec.scores.push_back(0.0f);
  }
  spec.bos_id = 1;
  const auto unused4 = static_cast<int32_t>(spec.tokens.size()) - 2;
  const VocabularyCut cut = CutOrDie(
      spec, {.size = 263, .weights = WeightsByPiece(spec, {{"ab", 5.0}}), .keep = {unused4}});
  EXPECT_THAT(cut.spec.tokens, Contains("<start_of_turn>"));
  EXPECT_THAT(cut.spec.tokens, Contains("<unused4>"));
  EXPECT_THAT(cut.spec.tokens, Not(Contains("<unused3>")));
  EXPECT_THAT(cut.spec.tokens, Contains("a"));  // printable ASCII
  EXPECT_EQ(cut.spec.tokens[static_cast<size_t>(cut.spec.bos_id)], "<s>");
  EXPECT_THAT(cut.spec.tokens, Not(Contains("\xE4\xBD\xA0")));
  const auto after = CreateOrDie(cut.spec);
  EXPECT_EQ(after->DecodeBytes(after->Encode("ab\xE4\xBD\xA0"), false), "ab\xE4\xBD\xA0");
}

TEST(VocabularyCut, WithoutByteFallbackCharactersStay) {
  TokenizerSpec spec = SentencePieceSpec({"a", "\xE4\xBD\xA0", "aa"});
  spec.byte_fallback = false;
  const VocabularyCut cut = CutOrDie(spec, {.size = 260, .weights = {}, .keep = {}});
  EXPECT_THAT(cut.spec.tokens, Contains("\xE4\xBD\xA0"));
  EXPECT_THAT(cut.spec.tokens, Not(Contains("aa")));
}

TEST(VocabularyCut, SizesThatCannotBeAreErrors) {
  const TokenizerSpec spec = ByteLevelSpec({"a b", "c d"}, Splitter::kNone);
  const auto tokenizer = CreateOrDie(spec);
  for (const size_t size : {size_t{0}, spec.tokens.size(), size_t{1} << 40}) {
    const auto cut = CutVocabulary(spec, *tokenizer, {.size = size, .weights = {}, .keep = {}});
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(cut.status().message(), HasSubstr("expected 1 to 260"));
  }
  const auto cut = CutVocabulary(spec, *tokenizer, {.size = 100, .weights = {}, .keep = {}});
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.status().message(), HasSubstr("expected at least 259"));
}

TEST(VocabularyCut, TokensThatTextNeverBecomesGoFirst) {
  // "abc" is merged as "a" + "bc" by no text: "ab" comes first.
  TokenizerSpec spec = ByteLevelSpec({"a b", "b c", "a bc"}, Splitter::kNone);
  const auto tokenizer = CreateOrDie(spec);
  const std::vector<TokenDerivation> derivations = DeriveTokens(*tokenizer);
  EXPECT_FALSE(derivations[258].reachable);
  EXPECT_TRUE(derivations[257].reachable);
  EXPECT_EQ(derivations[257].left, 'b' - '!' + 33);
  const VocabularyCut cut =
      CutOrDie(spec, {.size = 261, .weights = WeightsByPiece(spec, {{"abc", 100.0}}), .keep = {}});
  EXPECT_THAT(cut.spec.tokens, Not(Contains("abc")));
}

// A vocabulary whose tokens are merged at random from earlier ones.
TokenizerSpec RandomByteLevel(std::mt19937* random) {
  std::vector<std::string> pieces, merges;
  for (const char* c : {"a", "b", "c", "\xC3\xA9", "\xC4\xA0"}) pieces.emplace_back(c);
  std::set<std::string> known;
  while (merges.size() < 60) {
    const std::string left = pieces[(*random)() % pieces.size()];
    const std::string right = pieces[(*random)() % pieces.size()];
    if (left.size() + right.size() > 12 || !known.insert(left + right).second) continue;
    merges.push_back(left + " " + right);
    pieces.push_back(left + right);
  }
  return ByteLevelSpec(merges, Splitter::kGpt2);
}

TokenizerSpec RandomSentencePiece(std::mt19937* random) {
  std::vector<std::string> pieces = {"a", "b", "c", "\xE4\xBD\xA0", "\xE2\x96\x81"};
  std::set<std::string> known;
  while (pieces.size() < 65) {
    const std::string whole =
        pieces[(*random)() % pieces.size()] + pieces[(*random)() % pieces.size()];
    if (whole.size() <= 12 && known.insert(whole).second) pieces.push_back(whole);
  }
  return SentencePieceSpec(pieces);
}

std::string RandomText(std::mt19937* random) {
  constexpr const char* kParts[] = {"a",    "b", "c",      " ", "\xE9", "\xC3\xA9", "\xE4\xBD\xA0",
                                    "\xFF", "d", "<think>"};
  std::string out;
  for (size_t n = (*random)() % 30; n > 0; --n) out += kParts[(*random)() % std::size(kParts)];
  return out;
}

class RandomCuts : public ::testing::TestWithParam<TokenizerKind> {};

// Texts come back, kept derivations are complete, and texts of kept tokens keep their tokens.
TEST_P(RandomCuts, KeepTheirPromises) {
  std::mt19937 random(7);
  size_t unchanged = 0, changed = 0;
  for (int round = 0; round < 60; ++round) {
    const TokenizerSpec spec = GetParam() == TokenizerKind::kByteLevelBpe
                                   ? RandomByteLevel(&random)
                                   : RandomSentencePiece(&random);
    const auto before = CreateOrDie(spec);
    std::vector<double> weights;
    for (size_t i = 0; i < spec.tokens.size(); ++i) weights.push_back(random() % 100);
    const size_t forced = 265;
    const VocabularyCut cut =
        CutOrDie(spec, {.size = forced + random() % 40, .weights = weights, .keep = {}});
    const std::vector<TokenDerivation> derivations = DeriveTokens(*before);
    for (const int32_t old : cut.old_ids) {
      const TokenDerivation& made = derivations[static_cast<size_t>(old)];
      if (made.left < 0) continue;
      ASSERT_GE(cut.new_ids[static_cast<size_t>(made.left)], 0);
      ASSERT_GE(cut.new_ids[static_cast<size_t>(made.right)], 0);
    }
    const auto after = CreateOrDie(cut.spec);
    for (int text = 0; text < 50; ++text) {
      const std::string bytes = RandomText(&random);
      const std::vector<int32_t> old_ids = before->Encode(bytes), new_ids = after->Encode(bytes);
      ASSERT_EQ(after->DecodeBytes(new_ids, false), before->DecodeBytes(old_ids, false));
      std::vector<int32_t> mapped;
      for (const int32_t id : old_ids) mapped.push_back(cut.new_ids[static_cast<size_t>(id)]);
      if (std::find(mapped.begin(), mapped.end(), -1) != mapped.end()) {
        ++changed;
      } else {
        ++unchanged;
        ASSERT_EQ(new_ids, mapped) << bytes;
      }
    }
  }
  EXPECT_GT(unchanged, 100u);
  EXPECT_GT(changed, 100u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomCuts,
                         ::testing::Values(TokenizerKind::kByteLevelBpe,
                                           TokenizerKind::kSentencePieceBpe),
                         [](const auto& kind) {
                           return kind.param == TokenizerKind::kByteLevelBpe ? "ByteLevel"
                                                                             : "SentencePiece";
                         });

}  // namespace
}  // namespace pocketlm
