#include "tokenizer/detokenizer.h"

#include "base/utf8.h"
#include "test_models.h"

namespace pocketlm {
namespace {

using testing::ByteLevelSpec;
using testing::CreateOrDie;
using testing::SentencePieceSpec;

// Deltas of a stream, Flush last.
std::vector<std::string> Deltas(const Tokenizer& t, const std::vector<int32_t>& ids) {
  IncrementalDetokenizer stream(&t);
  std::vector<std::string> deltas;
  for (const int32_t id : ids) deltas.push_back(stream.Push(id));
  deltas.push_back(stream.Flush());
  return deltas;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& p : parts) out += p;
  return out;
}

TEST(TokenizerFieldCases, STR_D1_SplitCharactersWait) {
  const std::string text =
      "\xF0\x9F\xA6\x99\xE6\xAD\xAA\xC3\xA9";  // three characters of 4, 3 and 2 bytes
  for (const auto& spec : {ByteLevelSpec({}, Splitter::kQwen2), SentencePieceSpec({})}) {
    const auto t = CreateOrDie(spec);
    const std::vector<int32_t> ids = t->Encode(text);
    ASSERT_EQ(ids.size(), text.size());
    const auto deltas = Deltas(*t, ids);
    for (const std::string& d : deltas) {
      EXPECT_TRUE(IsValidUtf8(d));
      EXPECT_EQ(d.find("\xEF\xBF\xBD"), std::string::npos);
    }
    EXPECT_EQ(Joined(deltas), text);
    EXPECT_EQ(t->Decode(ids, false), text);
  }
}

TEST(TokenizerFieldCases, STR_D3_MalformedBytesBecomeOneReplacement) {
  const auto t = CreateOrDie(ByteLevelSpec({}, Splitter::kQwen2));
  EXPECT_EQ(Deltas(*t, {0xC3, '('}), (std::vector<std::string>{"", "\xEF\xBF\xBD(", ""}));
  EXPECT_EQ(Deltas(*t, {'a', 0xF0, 0x9F}), (std::vector<std::string>{"a", "", "", "\xEF\xBF\xBD"}));
}

TEST(Detokenizer, EqualsDecodeForAnyBytes) {
  const auto t = CreateOrDie(ByteLevelSpec({}, Splitter::kQwen2));
  uint32_t state = 12345;
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      constexpr uint8_t kBytes[] = {0x41, 0x80, 0xBF, 0xC3, 0xE4, 0xB8,
                                    0xAD, 0xF0, 0x9F, 0xA6, 0xED, 0xFF};
      ids.push_back(kBytes[(state >> 16) % sizeof(kBytes)]);
    }
    ASSERT_EQ(Joined(Deltas(*t, ids)), t->Decode(ids, true));
  }
}

TEST(Detokenizer, SkipsControlTokensOnDemand) {
  const auto t = CreateOrDie(ByteLevelSpec({}, Splitter::kQwen2));
  EXPECT_EQ(Joined(Deltas(*t, {'a', 256, 'b'})), "ab");
  IncrementalDetokenizer all(t.get(), false);
  EXPECT_EQ(all.Push(256), "<|im_start|>");
}

TEST(Detokenizer, SentencePieceDropsOneLeadingSpace) {
  TokenizerSpec spec = SentencePieceSpec({"\xE2\x96\x81", "a",
                                          "\xE2\x96\x81"
                                          "a"});
  spec.add_space_prefix = true;
  const auto t = CreateOrDie(std::move(spec));
  for (const std::vector<int32_t>& ids :
       {std::vector<int32_t>{260, 260}, {258, 258, 259}, {1, 260}, {2 + 0x20, 259}}) {
    EXPECT_EQ(Joined(Deltas(*t, ids)), t->Decode(ids, true));
  }
  EXPECT_EQ(t->Decode(std::vector<int32_t>{260, 260}, true), "a a");
}

TEST(Detokenizer, FlushStartsAnew) {
  const auto t = CreateOrDie(ByteLevelSpec({}, Splitter::kQwen2));
  IncrementalDetokenizer stream(t.get());
  EXPECT_EQ(stream.Push(0xE6), "");
  EXPECT_EQ(stream.Flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push('a'), "a");
}

}  // namespace
}  // namespace pocketlm
