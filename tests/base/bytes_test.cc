// ByteReader, UTF-8 and quoting on hostile bytes.

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/byte_reader.h"
#include "base/quote.h"
#include "base/utf8.h"

namespace pocketlm {
namespace {

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(ByteReaderTest, ReadsLittleEndianInOrder) {
  const std::string data(
      "\x01\x02\x03\x04\xFF\x00\x00\x80\x3F"
      "abc",
      12);
  ByteReader reader(AsBytes(data));
  EXPECT_EQ(*reader.Read<uint32_t>("n"), 0x04030201u);
  EXPECT_EQ(*reader.Read<int8_t>("n"), -1);
  EXPECT_EQ(*reader.Read<float>("n"), 1.0f);
  EXPECT_EQ(*reader.ReadString(3, "s"), "abc");
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(*reader.ReadString(0, "s"), "");
}

TEST(ByteReaderTest, TruncationIsAnErrorThatMovesNothing) {
  const std::string data("abc");
  ByteReader reader(AsBytes(data));
  const auto number = reader.Read<uint64_t>("tensor count");
  EXPECT_EQ(number.status().code(), StatusCode::kDataError);
  EXPECT_NE(number.status().message().find("tensor count at byte 0"), std::string::npos);
  EXPECT_FALSE(reader.ReadBytes(4, "x").ok());
  EXPECT_FALSE(reader.ReadBytes(std::numeric_limits<uint64_t>::max(), "x").ok());
  EXPECT_FALSE(reader.ReadString(std::numeric_limits<uint64_t>::max() - 2, "x").ok());
  EXPECT_EQ(reader.position(), 0u);
  EXPECT_EQ(*reader.ReadString(3, "x"), "abc");
  EXPECT_FALSE(reader.Read<uint8_t>("end").ok());
}

TEST(ByteReaderTest, EmptyInput) {
  ByteReader reader({});
  EXPECT_FALSE(reader.Read<uint8_t>("x").ok());
  EXPECT_TRUE(reader.ReadBytes(0, "x").ok());
}

TEST(Utf8Test, EveryScalarValueRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string text;
    AppendUtf8(c, &text);
    const DecodedCodepoint d = DecodeUtf8(text, 0);
    ASSERT_TRUE(d.valid && d.codepoint == c && d.size_bytes == text.size())
        << static_cast<uint32_t>(c);
  }
}

// Expected texts are Python's bytes.decode(errors="replace").
TEST(Utf8Test, ReplacesMaximalIllFormedParts) {
  const std::string r = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x80", r},
      {"\xC0\xAF", r + r},                  // overlong
      {"\xE0\x80\xAF", r + r + r},          // overlong
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // above U+10FFFF
      {"\xF0\x9F\x98", r},                  // unfinished
      {"\xF0\x9F\x98"
       "a",
       r + "a"},
      {"\xE4\xB8\xE4\xB8\xAD", r + "\xE4\xB8\xAD"},
      {"a\xFF"
       "b\xC3(",
       "a" + r + "b" + r + "("},
      {"\xF8\x88\x80\x80\x80", r + r + r + r + r},
  };
  for (const auto& [bytes, want] : cases) {
    EXPECT_EQ(ReplaceInvalidUtf8(bytes), want);
    EXPECT_FALSE(IsValidUtf8(bytes));
  }
  EXPECT_TRUE(IsValidUtf8(std::string("\0a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", 11)));
}

TEST(Utf8Test, IncompleteSuffix) {
  EXPECT_EQ(IncompleteUtf8Suffix(""), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("a"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0"), 1u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0\x9F"), 2u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("\xE4\xB8"), 2u);
  EXPECT_EQ(IncompleteUtf8Suffix("\x80\x80\x80"), 0u);  // begins nothing
  EXPECT_EQ(IncompleteUtf8Suffix("\xED\xA0"), 0u);      // a surrogate can't be finished
  EXPECT_EQ(IncompleteUtf8Suffix("\xC0"), 0u);          // never a lead byte
}

TEST(QuoteTest, StaysOneShortLineOfValidUtf8) {
  EXPECT_EQ(Quote(""), "''");
  EXPECT_EQ(Quote("blk.0.weight"), "'blk.0.weight'");
  EXPECT_EQ(Quote(std::string_view("a\n\x7F\0b", 5)), "'a???b'");
  EXPECT_EQ(Quote("a\xFF\xE4\xBD"), "'a\uFFFD\uFFFD'");
  EXPECT_EQ(Quote("abcd", 4), "'abcd'");
  EXPECT_EQ(Quote("abcde", 4), "'abcd…'");
  EXPECT_EQ(Shorten("ab你好", 5), "ab你…");
  EXPECT_EQ(Shorten("ab你好", 7), "ab你…") << "never half a character";
  EXPECT_EQ(Shorten("ab你好", 8), "ab你好");
}

}  // namespace
}  // namespace pocketlm
