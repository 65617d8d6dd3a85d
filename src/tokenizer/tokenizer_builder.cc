#include "tokenizer/tokenizer_builder.h"

#include <algorithm>
#include <numeric>

#include "base/quote.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace pocketlm {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr size_t kMaxTokens = size_t{1} << 24;
constexpr size_t kMaxVocabularyBytes = size_t{1} << 30;
// An added token is searched at every position of a text, so its length bounds the time per byte.
constexpr size_t kMaxAddedTokenBytes = 1024;
// Longer pieces are not looked at as the result of scored merges; real ones have 16 characters, runs of
// spaces up to 93 bytes.
constexpr size_t kMaxScoredPieceBytes = 256;

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = text.find(from, begin)) != std::string_view::npos;
       begin = at + from.size()) {
    out.append(text.substr(begin, at - begin));
    out.append(to);
  }
  out.append(text.substr(begin));
  return out;
}

// Real vocabularies fill the hash tables evenly; see StringIndex::Insert.
Status CollisionError() {
  return DataError("tokenizer: the vocabulary is made to collide in hash tables");
}

// GGUF files write spaces into the user-defined tokens of SentencePiece, which never match as such.
bool HasPlainSpaces(const TokenizerSpec& spec, size_t id) {
  return spec.kind == TokenizerKind::kSentencePieceBpe && spec.added_flags.empty() &&
         id < spec.types.size() && spec.types[id] == TokenType::kUserDefined;
}

bool IsSpecial(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

}  // namespace

std::vector<std::string> MergeTexts(const TokenizerSpec& spec) {
  if (spec.merge_ids.empty()) return spec.merges;
  const auto piece = [&](uint32_t id) {
    const std::string& token = spec.tokens[id];
    return HasPlainSpaces(spec, id) ? Replaced(token, " ", kSpaceMark) : token;
  };
  std::vector<std::string> out;
  out.reserve(spec.merge_ids.size());
  for (const MergeIds& merge : spec.merge_ids) {
    if (merge.left >= spec.tokens.size() || merge.right >= spec.tokens.size()) continue;
    const std::string left = piece(merge.left), right = piece(merge.right);
    const bool has_space = (left + right).find(' ') != std::string::npos;
    out.push_back(left + (has_space ? '\0' : ' ') + right);
  }
  return out;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  return TokenizerBuilder(std::move(spec)).Build();
}

TokenizerBuilder::TokenizerBuilder(TokenizerSpec spec)
    : spec_(std::move(spec)), t_(new Tokenizer()) {}

Result<std::unique_ptr<Tokenizer>> TokenizerBuilder::Build() {
  POCKETLM_RETURN_IF_ERROR(CheckSizes());
  if (spec_.types.empty()) spec_.types.assign(spec_.tokens.size(), TokenType::kNormal);
  t_->kind_ = spec_.kind;
  t_->splitter_ = byte_level() ? spec_.splitter : Splitter::kNone;
  t_->nfc_ = byte_level() && spec_.nfc;
  t_->add_space_prefix_ = spec_.add_space_prefix;
  t_->strips_leading_space_ = spec_.add_space_prefix && !byte_level();
  t_->byte_fallback_ = spec_.byte_fallback;
  t_->fuse_unk_ = spec_.fuse_unk;
  t_->unk_in_text_ = spec_.unk_in_text;
  t_->add_bos_ = spec_.add_bos;
  t_->add_eos_ = spec_.add_eos;
  t_->bos_id_ = spec_.bos_id;
  t_->eos_id_ = spec_.eos_id;
  t_->unk_id_ = spec_.unk_id;
  t_->pad_id_ = spec_.pad_id;
  POCKETLM_RETURN_IF_ERROR(CheckIds());
  POCKETLM_RETURN_IF_ERROR(AddPieces());
  POCKETLM_RETURN_IF_ERROR(FindByteTokens());
  POCKETLM_RETURN_IF_ERROR(AddMerges());
  POCKETLM_RETURN_IF_ERROR(IndexWords());
  POCKETLM_RETURN_IF_ERROR(AddAddedTokens());
  return std::move(t_);
}

Status TokenizerBuilder::CheckSizes() const {
  const size_t n = spec_.tokens.size();
  if (n == 0) return DataError("tokenizer: the vocabulary is empty");
  if (n > kMaxTokens) {
    return DataError("tokenizer: expected at most " + std::to_string(kMaxTokens) + " tokens, got " +
                     std::to_string(n));
  }
  if (!spec_.types.empty() && spec_.types.size() != n) {
    return DataError("tokenizer: expected " + std::to_string(n) + " token types, got " +
                     std::to_string(spec_.types.size()));
  }
  if (!spec_.reachable.empty() && spec_.reachable.size() != n) {
    return DataError("tokenizer: expected " + std::to_string(n) +
                     " marks of reachable tokens, got " + std::to_string(spec_.reachable.size()));
  }
  const bool scored = !byte_level() && spec_.merges.empty() && spec_.merge_ids.empty();
  if (scored && spec_.scores.size() != n) {
    return DataError("tokenizer: expected " + std::to_string(n) + " token scores, got " +
                     std::to_string(spec_.scores.size()));
  }
  size_t bytes = 0;
  for (const std::string& t : spec_.tokens) bytes += t.size();
  if (bytes > kMaxVocabularyBytes)
    return DataError("tokenizer: the vocabulary has over 1 GiB of text");
  return OkStatus();
}

Status TokenizerBuilder::CheckIds() const {
  const auto check = [&](const char* name, int32_t id) {
    if (id >= -1 && id < static_cast<int32_t>(spec_.tokens.size())) return OkStatus();
    return DataError(std::string("tokenizer: ") + name + " " + std::to_string(id) +
                     " is not an id of the vocabulary of " + std::to_string(spec_.tokens.size()));
  };
  POCKETLM_RETURN_IF_ERROR(check("bos id", spec_.bos_id));
  POCKETLM_RETURN_IF_ERROR(check("eos id", spec_.eos_id));
  POCKETLM_RETURN_IF_ERROR(check("unk id", spec_.unk_id));
  POCKETLM_RETURN_IF_ERROR(check("pad id", spec_.pad_id));
  if (spec_.unk_in_text && spec_.unk_id < 0)
    return DataError("tokenizer: no unk id for unknown text");
  return OkStatus();
}

Status TokenizerBuilder::AddPieces() {
  const auto n = static_cast<uint32_t>(spec_.tokens.size());
  size_t bytes = 0;
  for (const std::string& s : spec_.tokens) bytes += s.size();
  t_->pieces_.Reserve(n, bytes);
  t_->bytes_.Reserve(n, bytes);
  t_->by_piece_ = StringIndex(n);
  t_->mergeable_.assign(n, true);
  for (uint32_t id = 0; id < n; ++id) {
    std::string& piece = spec_.tokens[id];
    const TokenType type = spec_.types[id];
    if (HasPlainSpaces(spec_, id)) piece = Replaced(piece, " ", kSpaceMark);
    t_->pieces_.Add(piece);
    t_->bytes_.Add(DecodedBytes(piece, type));
    if (piece.empty() || IsSpecial(type) || type == TokenType::kByte) t_->mergeable_[id] = false;
    if (piece.empty()) continue;
    const uint32_t found = t_->by_piece_.Insert(t_->pieces_, id);
    if (found == StringIndex::kNone) return CollisionError();
    if (found != id) {
      return DataError("tokenizer: tokens " + std::to_string(found) + " and " + std::to_string(id) +
                       " are both " + Quote(piece));
    }
  }
  for (const AddedTokenFlags& f : spec_.added_flags) {
    if (f.id < 0 || static_cast<uint32_t>(f.id) >= n)
      return DataError("tokenizer: added token out of range");
    if (!f.in_model) t_->mergeable_[static_cast<size_t>(f.id)] = false;
  }
  t_->types_ = spec_.types;
  return OkStatus();
}

std::string TokenizerBuilder::DecodedBytes(std::string_view piece, TokenType type) const {
  if (IsSpecial(type)) return std::string(piece);
  if (byte_level()) {
    std::string bytes;
    if (type == TokenType::kUserDefined || !DecodeByteAlphabet(piece, &bytes)) bytes = piece;
    return bytes;
  }
  const int byte = type == TokenType::kByte ? ParseByteToken(piece) : -1;
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : Replaced(piece, kSpaceMark, " ");
}

Status TokenizerBuilder::FindByteTokens() {
  t_->byte_symbols_.fill(-1);
  if (byte_level()) {
    for (size_t b = 0; b < 256; ++b) {
      std::string character;
      AppendByteCharacter(static_cast<unsigned char>(b), &character);
      const uint32_t id = t_->by_piece_.Find(t_->pieces_, character);
      if (id != StringIndex::kNone && t_->mergeable_[id])
        t_->byte_symbols_[b] = static_cast<int32_t>(id);
    }
    return OkStatus();
  }
  for (size_t id = 0; id < spec_.types.size(); ++id) {
    if (spec_.types[id] != TokenType::kByte) continue;
    const int byte = ParseByteToken(spec_.tokens[id]);
    if (byte < 0) {
      return DataError("tokenizer: byte token " + std::to_string(id) +
                       ": expected <0x00> to <0xFF>, got " + Quote(spec_.tokens[id]));
    }
    t_->byte_symbols_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  return OkStatus();
}

Status TokenizerBuilder::AddMerges() {
  if (!spec_.merge_ids.empty()) return AddMergesByIds();
  if (!byte_level() && spec_.merges.empty()) return AddMergesFromScores();
  t_->merges_ = MergeTable(spec_.merges.size());
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    POCKETLM_RETURN_IF_ERROR(AddMerge(rank, spec_.merges[rank]));
  }
  spec_.merges = {};
  return OkStatus();
}

Status TokenizerBuilder::AddMergesByIds() {
  const size_t n = spec_.tokens.size();
  t_->merges_ = MergeTable(spec_.merge_ids.size());
  for (size_t rank = 0; rank < spec_.merge_ids.size(); ++rank) {
    const auto [left, right, result] = spec_.merge_ids[rank];
    bool fits = left < n && right < n && result < n;
    if (fits) {
      const std::string_view first = t_->pieces_[left], second = t_->pieces_[right];
      const std::string_view whole = t_->pieces_[result];
      fits = !first.empty() && !second.empty() && whole.size() == first.size() + second.size() &&
             whole.substr(0, first.size()) == first && whole.substr(first.size()) == second;
    }
    if (!fits) {
      return DataError("tokenizer: merge " + std::to_string(rank) + ": tokens " +
                       std::to_string(left) + " and " + std::to_string(right) +
                       " do not make token " + std::to_string(result));
    }
    if (IsSpecial(spec_.types[result])) continue;
    if (!t_->merges_.Insert(left, right, static_cast<uint32_t>(rank), result)) {
      return CollisionError();
    }
  }
  spec_.merge_ids = {};
  return OkStatus();
}

Result<uint32_t> TokenizerBuilder::MergePart(size_t rank, std::string_view piece) const {
  const uint32_t id = t_->by_piece_.Find(t_->pieces_, piece);
  if (id != StringIndex::kNone && !piece.empty()) return id;
  return DataError("tokenizer: merge " + std::to_string(rank) + ": " + Quote(piece) +
                   " is not in the vocabulary");
}

Status TokenizerBuilder::AddMerge(size_t rank, std::string_view text) {
  size_t separator = text.find('\0');
  if (separator == std::string_view::npos) separator = text.find(' ', 1);
  if (separator == std::string_view::npos) {
    return DataError("tokenizer: merge " + std::to_string(rank) + ": expected two tokens, got " +
                     Quote(text));
  }
  std::string left_text(text.substr(0, separator)), right_text(text.substr(separator + 1));
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t left, MergePart(rank, left_text));
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t right, MergePart(rank, right_text));
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t result, MergePart(rank, left_text + right_text));
  if (IsSpecial(spec_.types[result])) return OkStatus();
  if (!t_->merges_.Insert(left, right, static_cast<uint32_t>(rank), result)) {
    return CollisionError();
  }
  return OkStatus();
}

void TokenizerBuilder::CollectSplits(uint32_t id, std::vector<ScoredMerge>* group) const {
  const std::string_view piece = t_->pieces_[id];
  if (!t_->mergeable_[id] || piece.size() > kMaxScoredPieceBytes) return;
  uint32_t total_chars = 0;
  for (const char c : piece) total_chars += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  uint32_t chars = 0;
  for (size_t cut = 1; cut < piece.size(); ++cut) {
    if ((static_cast<uint8_t>(piece[cut]) & 0xC0) == 0x80) continue;
    ++chars;
    const uint32_t left = t_->CharSymbol(piece.substr(0, cut));
    if (left == StringIndex::kNone) continue;
    const uint32_t right = t_->CharSymbol(piece.substr(cut));
    if (right == StringIndex::kNone) continue;
    group->push_back({left, right, id, chars, total_chars - chars});
  }
}

Status TokenizerBuilder::AddMergesFromScores() {
  const size_t n = spec_.tokens.size();
  // A user-defined token has no trained score; sentencepiece gives it 0, above all others.
  const auto score = [&](uint32_t id) {
    const float s = spec_.scores[id];
    return spec_.types[id] == TokenType::kUserDefined || !(s < 0) ? 0.0f : s;
  };
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return score(a) > score(b); });
  std::vector<ScoredMerge> merges;
  merges.reserve(2 * n);
  for (size_t i = 0; i < n;) {
    const size_t group = merges.size();
    const float group_score = score(order[i]);
    for (; i < n && score(order[i]) == group_score; ++i) CollectSplits(order[i], &merges);
    std::stable_sort(merges.begin() + static_cast<long>(group), merges.end(),
                     [](const ScoredMerge& a, const ScoredMerge& b) {
                       return a.left_chars != b.left_chars ? a.left_chars > b.left_chars
                                                           : a.right_chars > b.right_chars;
                     });
  }
  t_->merges_ = MergeTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const ScoredMerge& m = merges[rank];
    if (!t_->merges_.Insert(m.left, m.right, static_cast<uint32_t>(rank), m.result)) {
      return CollisionError();
    }
  }
  return OkStatus();
}

bool TokenizerBuilder::IsReachable(uint32_t id, std::string_view bytes, BpeMerger* merger,
                                   std::vector<uint32_t>* symbols) const {
  if (spec_.ignore_merges) return true;
  if (!spec_.reachable.empty()) return spec_.reachable[id];
  symbols->clear();
  t_->AppendByteSymbols(bytes, symbols);
  merger->Merge(t_->merges_, symbols);
  return symbols->size() == 1 && symbols->front() == id;
}

Status TokenizerBuilder::IndexWords() {
  if (!byte_level()) return OkStatus();
  t_->words_ = StringIndex(spec_.tokens.size());
  BpeMerger merger;
  std::vector<uint32_t> symbols;
  std::string bytes;
  for (uint32_t id = 0; id < spec_.tokens.size(); ++id) {
    if (spec_.types[id] != TokenType::kNormal || !t_->mergeable_[id]) continue;
    bytes.clear();
    if (!DecodeByteAlphabet(spec_.tokens[id], &bytes)) continue;
    if (!IsReachable(id, bytes, &merger, &symbols)) continue;
    if (t_->words_.Insert(t_->bytes_, id) == StringIndex::kNone) {
      return CollisionError();
    }
  }
  return OkStatus();
}

Status TokenizerBuilder::AddAddedTokens() {
  std::vector<AddedTokenFlags> flags(spec_.added_flags);
  std::sort(flags.begin(), flags.end(),
            [](const AddedTokenFlags& a, const AddedTokenFlags& b) { return a.id < b.id; });
  std::vector<AddedToken> raw, normalized;
  auto next_flags = flags.begin();
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    while (next_flags != flags.end() && static_cast<size_t>(next_flags->id) < id) ++next_flags;
    const bool special = IsSpecial(spec_.types[id]);
    if ((!special && spec_.types[id] != TokenType::kUserDefined) || spec_.tokens[id].empty())
      continue;
    if (spec_.tokens[id].size() > kMaxAddedTokenBytes) {
      return Unsupported("tokenizer: added token " + std::to_string(id) + ": expected at most " +
                         std::to_string(kMaxAddedTokenBytes) + " bytes, got " +
                         std::to_string(spec_.tokens[id].size()));
    }
    AddedToken token{static_cast<int32_t>(id), spec_.tokens[id], special};
    bool normalize = false;
    if (next_flags != flags.end() && static_cast<size_t>(next_flags->id) == id) {
      token.lstrip = next_flags->lstrip;
      token.rstrip = next_flags->rstrip;
      token.single_word = next_flags->single_word;
      normalize = next_flags->normalized;
    }
    if (normalize) {
      std::string content;
      t_->Normalize(token.content, nullptr, &content, nullptr);
      token.content = std::move(content);
    }
    (normalize ? normalized : raw).push_back(std::move(token));
  }
  t_->raw_added_ = AddedTokenMatcher(std::move(raw));
  t_->normalized_added_ = AddedTokenMatcher(std::move(normalized));
  return OkStatus();
}

}  // namespace pocketlm
