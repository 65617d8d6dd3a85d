// Texts that stand for what a model will read: plain text, or JSON Lines whose every string counts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pocketlm {

// A text in memory, which its owner keeps. A name that ends in ".jsonl" means one JSON value a line.
struct CorpusText {
  std::string name;
  std::string_view data;
  std::string set;  // what it is reported as; texts of one set are added up
};

// The languages that reports tell apart, by the characters of a passage: any Han character makes it Chinese; else
// Latin letters English; else other.
enum class PassageLanguage { kChinese, kEnglish, kOther };
inline constexpr size_t kPassageLanguages = 3;
PassageLanguage LanguageOf(std::string_view passage);
const char* LanguageName(PassageLanguage language);  // "zh", "en", "other"

// The passages of a text: its lines, with their ends; of a JSON line the strings, those of keys called "id" excepted,
// with a line feed between. Empty ones are left out.
// Errors  kDataError naming the text and the line of broken JSON.
Result<std::vector<std::string>> PassagesOf(const CorpusText& text);

}  // namespace pocketlm
