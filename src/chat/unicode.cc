#include "chat/unicode.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace pocketlm::chat {
namespace {

struct CaseRun {
  uint32_t first;
  uint32_t last;
  uint32_t stride;
  int32_t delta;
};

struct CaseMulti {
  uint32_t codepoint;
  uint32_t mapped[3];  // 0: not used
};

#include "chat/unicode_tables.inc"

template <size_t kRuns, size_t kMulti>
bool AppendFromTable(const CaseRun (&runs)[kRuns], const CaseMulti (&multi)[kMulti],
                     uint32_t codepoint, std::string* out) {
  const auto* m = std::lower_bound(
      std::begin(multi), std::end(multi), codepoint,
      [](const CaseMulti& entry, uint32_t value) { return entry.codepoint < value; });
  if (m != std::end(multi) && m->codepoint == codepoint) {
    for (const uint32_t c : m->mapped) {
      if (c != 0) AppendUtf8(c, out);
    }
    return true;
  }
  // Runs with stride 2 may interleave, so the search goes back over the few that can still cover it.
  const auto* r =
      std::upper_bound(std::begin(runs), std::end(runs), codepoint,
                       [](uint32_t value, const CaseRun& run) { return value < run.first; });
  for (int back = 0; back < 4 && r != std::begin(runs); ++back) {
    --r;
    if (codepoint <= r->last && (codepoint - r->first) % r->stride == 0) {
      AppendUtf8(static_cast<char32_t>(static_cast<int64_t>(codepoint) + r->delta), out);
      return true;
    }
  }
  return false;
}

}  // namespace

uint32_t CharFlags(char32_t codepoint) {
  const uint32_t cp = codepoint;
  if (cp > 0x10FFFF) return 0;
  const auto* it =
      std::upper_bound(std::begin(kPropertyRuns), std::end(kPropertyRuns), (cp << 10) | 0x3FFu);
  return *std::prev(it) & 0x3FFu;
}

void AppendMapped(char32_t codepoint, CaseMapping mapping, std::string* out) {
  const uint32_t cp = codepoint;
  bool done = false;
  if (mapping == CaseMapping::kLower) {
    done = AppendFromTable(kLowerRuns, kLowerMulti, cp, out);
  } else {
    if (mapping == CaseMapping::kTitle) done = AppendFromTable(kTitleRuns, kTitleMulti, cp, out);
    if (!done) done = AppendFromTable(kUpperRuns, kUpperMulti, cp, out);
  }
  if (!done) AppendUtf8(codepoint, out);
}

}  // namespace pocketlm::chat
