#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace pocketlm {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
// Words are cut at this size, so that positions fit 32 bits with room to spare.
constexpr size_t kMaxWordBytes = size_t{1} << 30;

void AddMark(ByteRange r, std::vector<ByteRange>* marks) {
  if (!marks->empty() && marks->back().end == r.begin) {
    marks->back().end = r.end;
  } else {
    marks->push_back(r);
  }
}

// Replaces every space by U+2581; marks as in AppendNfc.
void AppendSpaceMarked(std::string_view text, const std::vector<ByteRange>* marks, std::string* out,
                       std::vector<ByteRange>* out_marks) {
  size_t range = 0;
  out->reserve(out->size() + text.size() + text.size() / 2);
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t begin = out->size();
    if (text[i] == ' ') {
      out->append(kSpaceMark);
    } else {
      out->push_back(text[i]);
    }
    if (marks == nullptr) continue;
    while (range < marks->size() && (*marks)[range].end <= i) ++range;
    if (range < marks->size() && (*marks)[range].begin <= i)
      AddMark({begin, out->size()}, out_marks);
  }
}

// The parts of `ranges` inside [begin, end), counted from begin.
std::vector<ByteRange> Clip(const std::vector<ByteRange>& ranges, size_t begin, size_t end) {
  std::vector<ByteRange> out;
  for (auto it = std::lower_bound(ranges.begin(), ranges.end(), begin,
                                  [](const ByteRange&r, size_t b) { return r.end <= b; });
       it != ranges.end() && it->begin < end; ++it) {
    out.push_back({std::max(it->begin, begin) - begin, std::min(it->end, end) - begin});
  }
  return out;
}

}  // namespace

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  return EncodeWith(text, {options.parse_special, nullptr});
}

std::vector<int32_t> Tokenizer::EncodePrompt(std::string_view text,
                                             std::span<const ByteRange> literal) const {
  std::vector<ByteRange> ranges;
  for (const ByteRange& r : literal) {
    if (r.begin < r.end) ranges.push_back(r);
  }
  return EncodeWith(text, {true, &ranges});
}

std::vector<int32_t> Tokenizer::EncodeWith(std::string_view text,
                                           const ControlPolicy& policy) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  Scratch scratch;
  for (const AddedTokenMatcher::Span& span : raw_added_.Split(text, policy)) {
    if (span.id >= 0) {
      ids.push_back(span.id);
      continue;
    }
    const std::string_view segment =
        text.substr(span.range.begin, span.range.end - span.range.begin);
    if (policy.literal == nullptr || normalized_added_.empty()) {
      EncodeSegment(segment, {policy.allowed, nullptr}, &scratch, &ids);
    } else {
      const std::vector<ByteRange> clipped =
          Clip(*policy.literal, span.range.begin, span.range.end);
      EncodeSegment(segment, {policy.allowed, &clipped}, &scratch, &ids);
    }
  }
  return ids;
}

void Tokenizer::EncodeSegment(std::string_view segment, const ControlPolicy& policy,
                              Scratch* scratch, std::vector<int32_t>* out) const {
  const bool as_is = kind_ == TokenizerKind::kByteLevelBpe && !nfc_;
  std::vector<ByteRange> marks;
  std::string normalized;
  if (!as_is) {
    Normalize(segment, policy.literal, &normalized, &marks);
    segment = normalized;
  }
  if (normalized_added_.empty()) {
    EncodePieces(segment, scratch, out);
    return;
  }
  const std::vector<ByteRange>* literal =
      policy.literal == nullptr || as_is ? policy.literal : &marks;
  for (const AddedTokenMatcher::Span& span :
       normalized_added_.Split(segment, {policy.allowed, literal})) {
    if (span.id >= 0) {
      out->push_back(span.id);
    } else {
      EncodePieces(segment.substr(span.range.begin, span.range.end - span.range.begin), scratch,
                   out);
    }
  }
}

void Tokenizer::Normalize(std::string_view text, const std::vector<ByteRange>* marks,
                          std::string* out, std::vector<ByteRange>* out_marks) const {
  if (kind_ == TokenizerKind::kByteLevelBpe) {
    // Without NFC, marks are not asked for: EncodeSegment then works on the text as it is.
    if (nfc_) {
      AppendNfc(text, marks, out, out_marks);
    } else {
      out->append(text);
    }
    return;
  }
  if (add_space_prefix_ && !text.empty()) out->append(kSpaceMark);
  AppendSpaceMarked(text, marks, out, out_marks);
}

void Tokenizer::EncodePieces(std::string_view text, Scratch* scratch,
                             std::vector<int32_t>* out) const {
  if (text.empty()) return;
  if (kind_ == TokenizerKind::kByteLevelBpe && add_space_prefix_ && text[0] != ' ') {
    scratch->buffer = ' ';
    scratch->buffer.append(text);
    text = scratch->buffer;
  }
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = PieceEnd(splitter_, text, begin);
    for (size_t cut = begin; cut < end; cut += kMaxWordBytes) {
      EncodeWord(text.substr(cut, std::min(kMaxWordBytes, end - cut)), scratch, out);
    }
    begin = end;
  }
}

void Tokenizer::EncodeWord(std::string_view word, Scratch* scratch,
                           std::vector<int32_t>* out) const {
  auto& symbols = scratch->symbols;
  symbols.clear();
  if (kind_ == TokenizerKind::kByteLevelBpe) {
    if (const uint32_t id = words_.Find(bytes_, word); id != StringIndex::kNone) {
      out->push_back(static_cast<int32_t>(id));
      return;
    }
    AppendByteSymbols(word, &symbols);
  } else {
    AppendCharSymbols(word, &symbols);
  }
  scratch->merger.Merge(merges_, &symbols);
  out->insert(out->end(), symbols.begin(), symbols.end());
}

void Tokenizer::ExportTables(TokenizerSpec* spec) const {
  spec->merges.clear();
  spec->merge_ids.clear();
  for (const MergeTable::Entry& entry : merges_.ByRank())
    spec->merge_ids.push_back({entry.left, entry.right, entry.result});
  spec->reachable.clear();
  if (kind_ != TokenizerKind::kByteLevelBpe) return;
  for (uint32_t id = 0; id < pieces_.size(); ++id)
    spec->reachable.push_back(words_.Find(bytes_, bytes_[id]) == id);
}

void Tokenizer::AppendByteSymbols(std::string_view word, std::vector<uint32_t>* symbols) const {
  bool after_unk = false;
  for (const char c : word) {
    const int32_t id = byte_symbols_[static_cast<uint8_t>(c)];
    const bool unk = id < 0;
    if (!unk) symbols->push_back(static_cast<uint32_t>(id));
    if (unk && unk_in_text_ && !(fuse_unk_ && after_unk)) {
      symbols->push_back(static_cast<uint32_t>(unk_id_));
    }
    after_unk = unk;
  }
}

uint32_t Tokenizer::CharSymbol(std::string_view c) const {
  const uint32_t id = by_piece_.Find(pieces_, c);
  return id != StringIndex::kNone && mergeable_[id] ? id : StringIndex::kNone;
}

void Tokenizer::AppendCharSymbols(std::string_view word, std::vector<uint32_t>* symbols) const {
  // An unk is written when the next known character or the end shows where its run stops; byte tokens
  // between do not end it (so does the package, where a vocabulary has some byte tokens and lacks others).
  size_t pending_unk = 0;
  const auto flush_unk = [&] {
    symbols->insert(symbols->end(), pending_unk, static_cast<uint32_t>(unk_id_));
    pending_unk = 0;
  };
  for (size_t i = 0; i < word.size();) {
    const DecodedCodepoint d = DecodeUtf8(word, i);
    const std::string_view c = word.substr(i, d.size_bytes);
    i += d.size_bytes;
    if (const uint32_t id = d.valid ? CharSymbol(c) : StringIndex::kNone;
        id != StringIndex::kNone) {
      flush_unk();
      symbols->push_back(id);
      continue;
    }
    const bool has_bytes = byte_fallback_ && std::all_of(c.begin(), c.end(), [&](char b) {
                             return byte_symbols_[static_cast<uint8_t>(b)] >= 0;
                           });
    if (has_bytes) {
      for (const char b : c) {
        symbols->push_back(static_cast<uint32_t>(byte_symbols_[static_cast<uint8_t>(b)]));
      }
    } else if (unk_in_text_) {
      if (pending_unk > 0 && !fuse_unk_) flush_unk();
      pending_unk = 1;
    }
  }
  flush_unk();
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return InRange(id) ? bytes_[Index(id)] : std::string_view();
}

std::string_view Tokenizer::Piece(int32_t id) const {
  return InRange(id) ? pieces_[Index(id)] : std::string_view();
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view piece) const {
  const uint32_t id = by_piece_.Find(pieces_, piece);
  if (id == StringIndex::kNone || piece.empty()) return std::nullopt;
  return static_cast<int32_t>(id);
}

std::string Tokenizer::DecodeBytes(std::span<const int32_t> ids, bool skip_special) const {
  std::string out;
  for (const int32_t id : ids) {
    if (skip_special && IsControl(id)) continue;
    out.append(TokenBytes(id));
  }
  if (strips_leading_space_ && !out.empty() && out[0] == ' ') out.erase(0, 1);
  return out;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  return ReplaceInvalidUtf8(DecodeBytes(ids, skip_special));
}

}  // namespace pocketlm
