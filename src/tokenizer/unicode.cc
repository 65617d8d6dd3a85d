#include "tokenizer/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/utf8.h"
#include "tokenizer/unicode_tables.inc"

namespace pocketlm {
namespace {

constexpr size_t kCodepoints = 0x110000;
constexpr size_t kBlock = 256;
constexpr uint32_t kComposes = 0x80000000u;

constexpr char32_t kHangulBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28,
                   kHangulCount = kLCount * kVCount * kTCount;

// A byte per code point in two levels, unfolded from runs at first use. Equal blocks are stored once.
class ByteMap {
 public:
  template <size_t N>
  explicit ByteMap(const uint32_t (&runs)[N]) {
    std::array<uint8_t, kBlock> block;
    size_t run = 0;
    for (size_t start = 0; start < kCodepoints; start += kBlock) {
      for (size_t i = 0; i < kBlock; ++i) {
        while (run + 1 < N && (runs[run + 1] >> 8) <= start + i) ++run;
        block[i] = static_cast<uint8_t>(runs[run] & 0xFF);
      }
      index_[start / kBlock] = FindOrAdd(block);
    }
  }

  uint8_t operator[](char32_t c) const {
    return c < kCodepoints ? data_[index_[c / kBlock] * kBlock + c % kBlock] : 0;
  }

 private:
  uint16_t FindOrAdd(const std::array<uint8_t, kBlock>& block) {
    // Long stretches repeat the block before or one of the first.
    for (size_t i = data_.size() / kBlock; i-- > 0;) {
      if (std::equal(block.begin(), block.end(), data_.begin() + static_cast<long>(i * kBlock))) {
        return static_cast<uint16_t>(i);
      }
    }
    data_.insert(data_.end(), block.begin(), block.end());
    return static_cast<uint16_t>(data_.size() / kBlock - 1);
  }

  std::array<uint16_t, kCodepoints / kBlock> index_;
  std::vector<uint8_t> data_;
};

const ByteMap& ClassMap() {
  static const ByteMap map(kClassRuns);
  return map;
}

const ByteMap& CombiningClassMap() {
  static const ByteMap map(kCombiningClassRuns);
  return map;
}

struct Composition {
  char32_t first, second, composed;
  bool operator<(const Composition& o) const {
    return first != o.first ? first < o.first : second < o.second;
  }
};

const std::vector<Composition>& Compositions() {
  static const std::vector<Composition> table = [] {
    std::vector<Composition> t;
    for (size_t i = 0; i < std::size(kDecompositions); i += 3) {
      if (!(kDecompositions[i] & kComposes)) continue;
      t.push_back(
          {kDecompositions[i + 1], kDecompositions[i + 2], kDecompositions[i] & ~kComposes});
    }
    std::sort(t.begin(), t.end());
    return t;
  }();
  return table;
}

// Index into kDecompositions, or -1.
long FindDecomposition(char32_t c) {
  size_t low = 0, high = std::size(kDecompositions) / 3;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if ((kDecompositions[middle * 3] & ~kComposes) < c) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const bool found =
      low < std::size(kDecompositions) / 3 && (kDecompositions[low * 3] & ~kComposes) == c;
  return found ? static_cast<long>(low * 3) : -1;
}

void AppendDecomposed(char32_t c, std::vector<char32_t>* out) {
  if (c >= kHangulBase && c < kHangulBase + kHangulCount) {
    const char32_t s = c - kHangulBase;
    out->push_back(kLBase + s / (kVCount * kTCount));
    out->push_back(kVBase + s % (kVCount * kTCount) / kTCount);
    if (s % kTCount != 0) out->push_back(kTBase + s % kTCount);
    return;
  }
  // The chain of first parts is at most four long in Unicode; the seconds do not decompose further
  // unless they are singletons' targets, which the generator has already resolved.
  std::array<char32_t, 8> seconds;
  size_t count = 0;
  for (long i = FindDecomposition(c); i >= 0 && count < seconds.size(); i = FindDecomposition(c)) {
    c = kDecompositions[i + 1];
    if (kDecompositions[i + 2] != 0) seconds[count++] = kDecompositions[i + 2];
  }
  out->push_back(c);
  while (count > 0) out->push_back(seconds[--count]);
}

// The composition of two code points, or 0.
char32_t Compose(char32_t a, char32_t b) {
  if (a >= kLBase && a < kLBase + kLCount && b >= kVBase && b < kVBase + kVCount) {
    return kHangulBase + ((a - kLBase) * kVCount + (b - kVBase)) * kTCount;
  }
  if (a >= kHangulBase && a < kHangulBase + kHangulCount && (a - kHangulBase) % kTCount == 0 &&
      b > kTBase && b < kTBase + kTCount) {
    return a + (b - kTBase);
  }
  const auto& table = Compositions();
  const auto it = std::lower_bound(table.begin(), table.end(), Composition{a, b, 0});
  return it != table.end() && it->first == a && it->second == b ? it->composed : 0;
}

// Sorts each run of non-starters by combining class, stably.
void ReorderMarks(std::vector<char32_t>* text) {
  const ByteMap& ccc = CombiningClassMap();
  for (size_t i = 0; i < text->size();) {
    if (ccc[(*text)[i]] == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < text->size() && ccc[(*text)[end]] != 0) ++end;
    std::stable_sort(text->begin() + static_cast<long>(i), text->begin() + static_cast<long>(end),
                     [&](char32_t a, char32_t b) { return ccc[a] < ccc[b]; });
    i = end;
  }
}

void ComposeInPlace(std::vector<char32_t>* text) {
  const ByteMap& ccc = CombiningClassMap();
  size_t starter = SIZE_MAX, size = 0;
  int last_class = -1;  // of what was kept after the starter; -1: nothing
  for (const char32_t c : *text) {
    const int c_class = ccc[c];
    if (starter != SIZE_MAX && last_class < c_class) {
      if (const char32_t composed = Compose((*text)[starter], c)) {
        (*text)[starter] = composed;
        continue;
      }
    }
    if (c_class == 0) {
      starter = size;
      last_class = -1;
    } else {
      last_class = c_class;
    }
    (*text)[size++] = c;
  }
  text->resize(size);
}

// Where the piece that begins at `offset` ends: the next character that NFC leaves alone whatever stands
// before it. *plain: the piece is its own NFC.
size_t PieceEnd(std::string_view text, size_t offset, bool* plain) {
  DecodedCodepoint d = DecodeUtf8(text, offset);
  size_t end = offset + d.size_bytes;
  *plain = !d.valid || !(CharClass(d.codepoint) & kCharNfcInteracts);
  while (end < text.size()) {
    d = DecodeUtf8(text, end);
    if (!d.valid || !(CharClass(d.codepoint) & kCharNfcInteracts)) break;
    *plain = false;
    end += d.size_bytes;
  }
  return end;
}

// The NFC of one piece. A piece that does not begin with a valid character is a single ill-formed part
// followed by marks: the part is copied, the rest normalized.
void AppendPieceNfc(std::string_view piece, std::string* out) {
  std::vector<char32_t> text;
  for (size_t i = 0; i < piece.size();) {
    const DecodedCodepoint d = DecodeUtf8(piece, i);
    if (d.valid) {
      AppendDecomposed(d.codepoint, &text);
    } else {
      out->append(piece.substr(i, d.size_bytes));
    }
    i += d.size_bytes;
  }
  ReorderMarks(&text);
  ComposeInPlace(&text);
  for (const char32_t c : text) AppendUtf8(c, out);
}

// Number of leading bytes that are ASCII.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

bool Overlaps(const std::vector<ByteRange>& ranges, size_t* hint, ByteRange r) {
  while (*hint < ranges.size() && ranges[*hint].end <= r.begin) ++*hint;
  return *hint < ranges.size() && ranges[*hint].begin < r.end;
}

void AddMark(ByteRange r, std::vector<ByteRange>* marks) {
  if (r.begin == r.end) return;
  if (!marks->empty() && marks->back().end == r.begin) {
    marks->back().end = r.end;
  } else {
    marks->push_back(r);
  }
}

}  // namespace

uint8_t CharClass(char32_t codepoint) {
  static const ByteMap& map = ClassMap();
  return map[codepoint];
}

void AppendNfc(std::string_view text, const std::vector<ByteRange>* marks, std::string* out,
               std::vector<ByteRange>* out_marks) {
  size_t hint = 0;
  out->reserve(out->size() + text.size());
  for (size_t i = 0; i < text.size();) {
    if (marks == nullptr) {
      // ASCII interacts only with a mark after it: leave the last byte of a run to the general path.
      const size_t ascii = AsciiPrefix(text.substr(i));
      const size_t copied = i + ascii == text.size() ? ascii : ascii - (ascii > 0);
      out->append(text.substr(i, copied));
      i += copied;
      if (i == text.size()) break;
    }
    bool plain = false;
    const size_t end = PieceEnd(text, i, &plain);
    const size_t out_begin = out->size();
    if (plain) {
      out->append(text.substr(i, end - i));
    } else {
      AppendPieceNfc(text.substr(i, end - i), out);
    }
    if (marks != nullptr && Overlaps(*marks, &hint, {i, end})) {
      AddMark({out_begin, out->size()}, out_marks);
    }
    i = end;
  }
}

}  // namespace pocketlm
