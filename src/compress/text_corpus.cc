#include "compress/text_corpus.h"

#include <utility>

#include "base/json.h"
#include "base/quote.h"
#include "base/utf8.h"

namespace pocketlm {
namespace {

// Calls visit(line, its number from 1) for each line, its end included.
Status ForEachLine(std::string_view text,
                   const std::function<Status(std::string_view, size_t)>& visit) {
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    const size_t next = end == std::string_view::npos ? text.size() : end + 1;
    POCKETLM_RETURN_IF_ERROR(visit(text.substr(begin, next - begin), number));
    begin = next;
  }
  return OkStatus();
}

// ParseJson bounds the depth.
void JoinStrings(const nlohmann::json& value, std::string* out) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (!out->empty() && !text.empty()) *out += '\n';
    *out += text;
  } else if (value.is_array()) {
    for (const nlohmann::json& item : value) JoinStrings(item, out);
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      if (key != "id") JoinStrings(item, out);
    }
  }
}

bool IsHan(char32_t c) {
  return (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

bool IsLatin(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0x24F);
}

}  // namespace

PassageLanguage LanguageOf(std::string_view passage) {
  bool latin = false;
  for (size_t i = 0; i < passage.size();) {
    const DecodedCodepoint c = DecodeUtf8(passage, i);
    if (IsHan(c.codepoint)) return PassageLanguage::kChinese;
    latin = latin || IsLatin(c.codepoint);
    i += c.size_bytes;
  }
  return latin ? PassageLanguage::kEnglish : PassageLanguage::kOther;
}

const char* LanguageName(PassageLanguage language) {
  constexpr const char* kNames[kPassageLanguages] = {"zh", "en", "other"};
  return kNames[static_cast<size_t>(language)];
}

Result<std::vector<std::string>> PassagesOf(const CorpusText& text) {
  std::vector<std::string> out;
  const bool json = text.name.ends_with(".jsonl");
  const std::string_view data = json ? SkipByteOrderMark(text.data) : text.data;
  const Status status = ForEachLine(data, [&](std::string_view line, size_t number) -> Status {
    if (!json) {
      out.emplace_back(line);
      return OkStatus();
    }
    if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return OkStatus();
    const auto value = ParseJson(line);
    if (!value.ok()) return value.status().WithContext("line " + std::to_string(number));
    std::string passage;
    JoinStrings(*value, &passage);
    if (!passage.empty()) out.push_back(std::move(passage));
    return OkStatus();
  });
  if (!status.ok()) return status.WithContext(Shorten(text.name, 255));
  return out;
}

}  // namespace pocketlm
