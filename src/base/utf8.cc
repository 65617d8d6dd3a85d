#include "base/utf8.h"

namespace pocketlm {
namespace {

// How a sequence continues after its lead byte: number of bytes, and the allowed range of the second
// (Unicode Standard, table 3-7); later bytes are always 80..BF.
struct LeadByte {
  uint8_t size;  // 0: no sequence starts here
  uint8_t second_low;
  uint8_t second_high;
};

LeadByte ClassifyLead(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

DecodedCodepoint DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte_at(offset);
  const LeadByte info = ClassifyLead(lead);
  if (info.size == 1) return {lead, 1, true};
  if (info.size == 0) return {kReplacementCharacter, 1, false};
  char32_t codepoint = lead & (0x7F >> info.size);
  for (uint8_t i = 1; i < info.size; ++i) {
    const uint8_t low = i == 1 ? info.second_low : 0x80;
    const uint8_t high = i == 1 ? info.second_high : 0xBF;
    if (offset + i >= text.size() || byte_at(offset + i) < low || byte_at(offset + i) > high) {
      return {kReplacementCharacter, i, false};
    }
    codepoint = (codepoint << 6) | (byte_at(offset + i) & 0x3F);
  }
  return {codepoint, info.size, true};
}

void AppendUtf8(char32_t codepoint, std::string* out) {
  const auto put = [&](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (codepoint < 0x80) {
    put(codepoint);
  } else if (codepoint < 0x800) {
    put(0xC0 | (codepoint >> 6));
    put(0x80 | (codepoint & 0x3F));
  } else if (codepoint < 0x10000) {
    put(0xE0 | (codepoint >> 12));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  } else {
    put(0xF0 | (codepoint >> 18));
    put(0x80 | ((codepoint >> 12) & 0x3F));
    put(0x80 | ((codepoint >> 6) & 0x3F));
    put(0x80 | (codepoint & 0x3F));
  }
}

bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const DecodedCodepoint d = DecodeUtf8(text, i);
    if (!d.valid) return false;
    i += d.size_bytes;
  }
  return true;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const DecodedCodepoint d = DecodeUtf8(text, i);
    if (d.valid) {
      out.append(text.substr(i, d.size_bytes));
    } else {
      AppendUtf8(kReplacementCharacter, &out);
    }
    i += d.size_bytes;
  }
  return out;
}

size_t IncompleteUtf8Suffix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t start = text.size() - back;
    const LeadByte info = ClassifyLead(static_cast<uint8_t>(text[start]));
    if (info.size <= 1) continue;
    if (info.size <= back) return 0;
    const DecodedCodepoint d = DecodeUtf8(text, start);
    return !d.valid && d.size_bytes == back ? back : 0;
  }
  return 0;
}

}  // namespace pocketlm
