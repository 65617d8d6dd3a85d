#include "tokenizer/vocabulary_cut.h"

#include <algorithm>
#include <queue>
#include <string>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/bpe.h"

namespace pocketlm {
namespace {

constexpr size_t kMaxSymbols = 256;

bool IsAdded(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

// "<unused7>", "[unused7]", "<|reserved_special_token_7|>": rows without a meaning so far.
bool IsPlaceholder(std::string_view piece) {
  const bool named = piece.find("unused") != std::string_view::npos ||
                     piece.find("reserved") != std::string_view::npos;
  return named &&
         std::any_of(piece.begin(), piece.end(), [](char c) { return c >= '0' && c <= '9'; });
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

TokenType TypeOf(const TokenizerSpec& spec, size_t id) {
  return spec.types.empty() ? TokenType::kNormal : spec.types[id];
}

// Merges of one token's text by the table, step by step.
class Deriver {
 public:
  explicit Deriver(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    TokenizerSpec tables;
    tokenizer.ExportTables(&tables);
    table_ = MergeTable(tables.merge_ids.size());
    for (size_t rank = 0; rank < tables.merge_ids.size(); ++rank) {
      const MergeIds& merge = tables.merge_ids[rank];
      table_.Insert(merge.left, merge.right, static_cast<uint32_t>(rank), merge.result);
    }
  }

  // The derivation of a token that is not added.
  TokenDerivation Derive(int32_t id) {
    TokenDerivation out;
    if (!Symbols(tokenizer_.Piece(id))) return out;
    while (symbols_.size() > 1) {
      const MergeTable::Entry* best = nullptr;
      size_t place = 0;
      for (size_t i = 0; i + 1 < symbols_.size(); ++i) {
        const MergeTable::Entry* entry = table_.Find(symbols_[i], symbols_[i + 1]);
        if (entry != nullptr && (best == nullptr || entry->rank < best->rank)) {
          best = entry;
          place = i;
        }
      }
      if (best == nullptr) return out;
      symbols_[place] = best->result;
      symbols_.erase(symbols_.begin() + static_cast<ptrdiff_t>(place) + 1);
      out.left = static_cast<int32_t>(best->left);
      out.right = static_cast<int32_t>(best->right);
    }
    out.reachable = symbols_.front() == static_cast<uint32_t>(id);
    if (!out.reachable) out.left = out.right = -1;
    return out;
  }

 private:
  // The characters of a piece as tokens; false if one is no token or there are too many.
  bool Symbols(std::string_view piece) {
    symbols_.clear();
    for (size_t i = 0; i < piece.size() && symbols_.size() <= kMaxSymbols;) {
      const DecodedCodepoint decoded = DecodeUtf8(piece, i);
      const auto id = tokenizer_.FindToken(piece.substr(i, decoded.size_bytes));
      if (!id || tokenizer_.IsControl(*id)) return false;
      symbols_.push_back(static_cast<uint32_t>(*id));
      i += decoded.size_bytes;
    }
    return !symbols_.empty() && symbols_.size() <= kMaxSymbols;
  }

  const Tokenizer& tokenizer_;
  MergeTable table_;
  std::vector<uint32_t> symbols_;
};

// The choice of the tokens to keep.
class Elimination {
 public:
  Elimination(const TokenizerSpec& spec, const Tokenizer& tokenizer,
              const VocabularyCutOptions& options)
      : spec_(spec),
        tokenizer_(tokenizer),
        size_(options.size),
        weights_(options.weights),
        derivations_(DeriveTokens(tokenizer)),
        kept_(spec.tokens.size(), false),
        forced_(spec.tokens.size(), false),
        uses_(spec.tokens.size(), 0) {
    weights_.resize(spec.tokens.size(), 0.0);
    for (const double weight : weights_) total_ += weight;
    for (const int32_t id : options.keep) Force(id);
    for (const int32_t id : {spec.bos_id, spec.eos_id, spec.unk_id, spec.pad_id}) Force(id);
    for (size_t id = 0; id < kept_.size(); ++id) {
      if (IsForced(static_cast<int32_t>(id))) Force(static_cast<int32_t>(id));
      const bool has_use =
          derivations_[id].reachable || (spec.ignore_merges && !spec.tokens[id].empty());
      kept_[id] = forced_[id] || (has_use && !IsIdle(id));
    }
    for (size_t id = 0; id < kept_.size(); ++id) {
      if (kept_[id]) AddUses(id, 1);
    }
  }

  size_t forced() const {
    return static_cast<size_t>(std::count(forced_.begin(), forced_.end(), true));
  }
  const std::vector<bool>& kept() const { return kept_; }
  double increase() const { return total_ > 0.0 ? cost_ / total_ : 0.0; }

  Status Run() {
    auto count = static_cast<size_t>(std::count(kept_.begin(), kept_.end(), true));
    using Item =
        std::pair<double, int64_t>;  // cost, negative id: of equals the highest id goes first
    std::priority_queue<Item, std::vector<Item>, std::greater<>> queue;
    const auto offer = [&](int32_t id) {
      const auto i = static_cast<size_t>(id);
      if (kept_[i] && uses_[i] == 0 && !forced_[i]) queue.push({Cost(i), -int64_t{id}});
    };
    for (size_t id = 0; id < kept_.size(); ++id) offer(static_cast<int32_t>(id));
    while (count > size_ && !queue.empty()) {
      const auto [cost, negative] = queue.top();
      queue.pop();
      const auto id = static_cast<size_t>(-negative);
      if (!kept_[id]) continue;
      kept_[id] = false;
      --count;
      cost_ += cost;
      AddUses(id, -1);
      const TokenDerivation& made = derivations_[id];
      if (made.left < 0) continue;
      weights_[static_cast<size_t>(made.left)] += weights_[id];
      weights_[static_cast<size_t>(made.right)] += weights_[id];
      offer(made.left);
      if (made.right != made.left) offer(made.right);
    }
    if (count <= size_) return OkStatus();
    return InvalidArgument("vocabulary: size: expected at least " + std::to_string(count) +
                           ", the bytes, single characters and added tokens, got " +
                           std::to_string(size_));
  }

 private:
  void Force(int32_t id) {
    if (tokenizer_.IsValid(id)) forced_[static_cast<size_t>(id)] = true;
  }

  // Rows that no text needs.
  bool IsIdle(size_t id) const {
    const TokenType type = TypeOf(spec_, id);
    return type == TokenType::kUnused || (IsAdded(type) && IsPlaceholder(spec_.tokens[id]));
  }

  bool IsForced(int32_t id) const {
    const auto i = static_cast<size_t>(id);
    if (!tokenizer_.IsValid(id) || IsIdle(i)) return false;
    const TokenType type = TypeOf(spec_, i);
    if (IsAdded(type) || type == TokenType::kByte) return true;
    if (CountCharacters(tokenizer_.Piece(id)) != 1) return false;
    const bool ascii =
        tokenizer_.TokenBytes(id).size() == 1;  // a byte, where the vocabulary is of bytes
    return ascii || spec_.kind == TokenizerKind::kByteLevelBpe || !spec_.byte_fallback;
  }

  void AddUses(size_t id, int change) {
    const TokenDerivation& made = derivations_[id];
    if (made.left < 0) return;
    uses_[static_cast<size_t>(made.left)] += change;
    uses_[static_cast<size_t>(made.right)] += change;
  }

  // Tokens that text gains without this one. A single character becomes its bytes.
  double Cost(size_t id) const {
    const bool merged = derivations_[id].left >= 0;
    const size_t bytes = tokenizer_.TokenBytes(static_cast<int32_t>(id)).size();
    return weights_[id] * (merged || bytes < 2 ? 1.0 : static_cast<double>(bytes - 1));
  }

  const TokenizerSpec& spec_;
  const Tokenizer& tokenizer_;
  size_t size_;
  std::vector<double> weights_;  // grow as what is merged from a token goes
  std::vector<TokenDerivation> derivations_;
  std::vector<bool> kept_, forced_;
  std::vector<int> uses_;  // kept tokens that are merged from this one
  double total_ = 0.0, cost_ = 0.0;
};

int32_t NewId(const VocabularyCut& cut, int32_t id) {
  return id >= 0 ? cut.new_ids[static_cast<size_t>(id)] : -1;
}

// The kept part of `spec` under the new ids.
void RenumberSpec(const TokenizerSpec& spec, const Tokenizer& tokenizer, VocabularyCut* cut) {
  TokenizerSpec& out = cut->spec;
  out = spec;
  out.tokens.clear();
  out.types.clear();
  out.scores.clear();
  for (const int32_t old : cut->old_ids) {
    const auto id = static_cast<size_t>(old);
    out.tokens.push_back(spec.tokens[id]);
    if (!spec.types.empty()) out.types.push_back(spec.types[id]);
    if (!spec.scores.empty()) out.scores.push_back(spec.scores[id]);
  }
  const bool by_scores = spec.kind == TokenizerKind::kSentencePieceBpe && spec.merges.empty() &&
                         spec.merge_ids.empty();
  if (!by_scores) {
    tokenizer.ExportTables(&out);
    out.reachable.clear();
    std::vector<MergeIds> merges;
    for (const MergeIds& merge : out.merge_ids) {
      const int32_t left = cut->new_ids[merge.left], right = cut->new_ids[merge.right];
      const int32_t result = cut->new_ids[merge.result];
      if (left < 0 || right < 0 || result < 0) continue;
      merges.push_back({static_cast<uint32_t>(left), static_cast<uint32_t>(right),
                        static_cast<uint32_t>(result)});
    }
    out.merge_ids = std::move(merges);
  }
  out.added_flags.clear();
  for (AddedTokenFlags flags : spec.added_flags) {
    flags.id = NewId(*cut, flags.id);
    if (flags.id >= 0) out.added_flags.push_back(flags);
  }
  for (int32_t* id : {&out.bos_id, &out.eos_id, &out.unk_id, &out.pad_id}) *id = NewId(*cut, *id);
}

}  // namespace

std::vector<TokenDerivation> DeriveTokens(const Tokenizer& tokenizer) {
  std::vector<TokenDerivation> out(static_cast<size_t>(tokenizer.vocab_size()));
  Deriver deriver(tokenizer);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    TokenDerivation& derivation = out[static_cast<size_t>(id)];
    if (!tokenizer.IsValid(id)) continue;
    if (tokenizer.IsControl(id)) {
      derivation.reachable = true;
    } else {
      derivation = deriver.Derive(id);
    }
  }
  return out;
}

Result<VocabularyCut> CutVocabulary(const TokenizerSpec& spec, const Tokenizer& tokenizer,
                                    const VocabularyCutOptions& options) {
  const auto before = static_cast<size_t>(tokenizer.vocab_size());
  if (options.size == 0 || options.size >= before) {
    return InvalidArgument("vocabulary: size: expected 1 to " + std::to_string(before - 1) +
                           ", below the number of tokens, got " + std::to_string(options.size));
  }
  Elimination elimination(spec, tokenizer, options);
  POCKETLM_RETURN_IF_ERROR(elimination.Run());
  VocabularyCut cut;
  cut.forced = elimination.forced();
  cut.expected_increase = elimination.increase();
  cut.new_ids.assign(before, -1);
  for (size_t id = 0; id < before; ++id) {
    if (!elimination.kept()[id]) continue;
    cut.new_ids[id] = static_cast<int32_t>(cut.old_ids.size());
    cut.old_ids.push_back(static_cast<int32_t>(id));
  }
  RenumberSpec(spec, tokenizer, &cut);
  return cut;
}

}  // namespace pocketlm
