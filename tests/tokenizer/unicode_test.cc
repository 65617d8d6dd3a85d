#include "tokenizer/unicode.h"

#include <chrono>

#include "test_models.h"
#include "tokenizer/added_tokens.h"

namespace pocketlm {
namespace {

std::string Nfc(std::string_view text) {
  std::string out;
  AppendNfc(text, nullptr, &out, nullptr);
  return out;
}

TEST(Unicode, Classes) {
  EXPECT_EQ(CharClass('a'), kCharLetter | kCharWord);
  EXPECT_EQ(CharClass('7'), kCharNumber | kCharDigitSplit | kCharWord);
  EXPECT_EQ(CharClass('_'), kCharWord);
  for (const char32_t space : {0x09u, 0x0Bu, 0x20u, 0x85u, 0xA0u, 0x2003u, 0x2028u, 0x3000u}) {
    EXPECT_EQ(CharClass(space), kCharSpace) << static_cast<uint32_t>(space);
  }
  EXPECT_EQ(CharClass(0x200B), 0);
  EXPECT_TRUE(CharClass(0x6728) & kCharLetter);
  EXPECT_TRUE(CharClass(0xBD) & kCharNumber);
  EXPECT_TRUE(CharClass(0x301) & kCharNfcInteracts);
  EXPECT_EQ(CharClass(0x110000), 0);
  EXPECT_EQ(CharClass(0xFFFFFFFF), 0);
}

TEST(Unicode, NfcComposes) {
  EXPECT_EQ(Nfc("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(Nfc("plain"), "plain");
  EXPECT_EQ(Nfc("ae\xCC\xA3\xCC\x82z"), "a\xE1\xBB\x87z");  // e + dot below + circumflex
  EXPECT_EQ(Nfc("e\xCC\x82\xCC\xA3"), "\xE1\xBB\x87");      // the same, marks swapped
  EXPECT_EQ(Nfc("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "\xEA\xB0\x81");  // Hangul
  EXPECT_EQ(Nfc("\xE2\x84\xAB"), "\xC3\x85");                              // Angstrom sign
  EXPECT_EQ(Nfc("\xE0\xA5\x98"), "\xE0\xA4\x95\xE0\xA4\xBC");              // an excluded composite
}

TEST(Unicode, NfcLeavesIllFormedBytesAlone) {
  EXPECT_EQ(Nfc("e\xFF\xCC\x81"), "e\xFF\xCC\x81");
  EXPECT_EQ(Nfc("\xCC\x81\xC3"), "\xCC\x81\xC3");
  EXPECT_EQ(Nfc("e\xCC"), "e\xCC");
}

TEST(Unicode, NfcMapsMarks) {
  const std::vector<ByteRange> marks = {{1, 2}, {3, 5}};
  std::string out;
  std::vector<ByteRange> out_marks;
  AppendNfc("abce\xCC\x81", &marks, &out, &out_marks);
  EXPECT_EQ(out, "abc\xC3\xA9");
  ASSERT_EQ(out_marks.size(), 2u);
  EXPECT_EQ(out_marks[0].begin, 1u);
  EXPECT_EQ(out_marks[0].end, 2u);
  EXPECT_EQ(out_marks[1].begin, 3u);
  EXPECT_EQ(out_marks[1].end, 5u);
}

TEST(AddedTokens, LeftmostLongest) {
  const AddedTokenMatcher matcher({{1, "<a>"}, {2, "<a>b"}, {3, "a"}, {4, "<"}});
  std::vector<int32_t> ids;
  for (const auto& span : matcher.Split("x<a>b<a><<b a", {true, nullptr})) ids.push_back(span.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{-1, 2, 1, 4, 4, -1, 3}));
}

TEST(AddedTokens, ForbiddenControlTokensAreText) {
  const AddedTokenMatcher matcher({{1, "<a>", true}, {2, "a", false}});
  // What a forbidden token covers is not searched again, as in the `tokenizers` package.
  const auto spans = matcher.Split("<a>a", {false, nullptr});
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].id, -1);
  EXPECT_EQ(spans[0].range.end, 3u);
  EXPECT_EQ(spans[1].id, 2);
}

}  // namespace
}  // namespace pocketlm
