#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "tokenizer/string_index.h"

namespace pocketlm {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kEnd = UINT32_MAX;
// Up to here a scan for the lowest rank beats a heap.
constexpr size_t kShortWord = 40;

}  // namespace

MergeTable::MergeTable(size_t count) {
  size_t slots = 16;
  while (slots < count + count / 2) slots *= 2;
  entries_.resize(slots);
}

std::vector<MergeTable::Entry> MergeTable::ByRank() const {
  std::vector<Entry> out;
  for (const Entry& entry : entries_) {
    if (entry.left != UINT32_MAX) out.push_back(entry);
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
  return out;
}

size_t MergeTable::Slot(uint32_t left, uint32_t right) const {
  return MixHash(MixHash(left) + right) & (entries_.size() - 1);
}

bool MergeTable::Insert(uint32_t left, uint32_t right, uint32_t rank, uint32_t result) {
  size_t slot = Slot(left, right);
  for (size_t probes = 0; probes < kMaxProbes; ++probes) {
    Entry& e = entries_[slot];
    if (e.left == UINT32_MAX || (e.left == left && e.right == right)) {
      e = {left, right, rank, result};
      return true;
    }
    slot = (slot + 1) & (entries_.size() - 1);
  }
  return false;
}

void BpeMerger::Merge(const MergeTable& table, std::vector<uint32_t>* symbols) {
  if (symbols->size() < 2) return;
  if (symbols->size() <= kShortWord) {
    MergeShort(table, symbols);
  } else {
    MergeLong(table, symbols);
  }
}

void BpeMerger::SetPair(const MergeTable& table, const std::vector<uint32_t>& symbols,
                        uint32_t left, uint32_t right) {
  const MergeTable::Entry* e = table.Find(symbols[left], symbols[right]);
  ranks_[left] = e ? e->rank : kNoRank;
  results_[left] = e ? e->result : 0;
}

void BpeMerger::MergeShort(const MergeTable& table, std::vector<uint32_t>* symbols) {
  auto& s = *symbols;
  ranks_.assign(s.size(), kNoRank);
  results_.assign(s.size(), 0);
  for (uint32_t i = 0; i + 1 < s.size(); ++i) SetPair(table, s, i, i + 1);
  while (true) {
    const auto lowest = std::min_element(ranks_.begin(), ranks_.end());
    if (*lowest == kNoRank) break;
    const auto i = static_cast<uint32_t>(lowest - ranks_.begin());
    s[i] = results_[i];
    s.erase(s.begin() + i + 1);
    ranks_.erase(ranks_.begin() + i + 1);
    results_.erase(results_.begin() + i + 1);
    ranks_[i] = kNoRank;
    if (i + 1 < s.size()) SetPair(table, s, i, i + 1);
    if (i > 0) SetPair(table, s, i - 1, i);
  }
}

void BpeMerger::MergeLong(const MergeTable& table, std::vector<uint32_t>* symbols) {
  auto& s = *symbols;
  const auto n = static_cast<uint32_t>(s.size());
  ranks_.assign(n, kNoRank);
  results_.assign(n, 0);
  next_.resize(n);
  previous_.resize(n);
  heap_.clear();
  const auto push = [&](uint32_t i) {
    if (ranks_[i] != kNoRank) heap_.push_back(static_cast<uint64_t>(ranks_[i]) << 32 | i);
  };
  for (uint32_t i = 0; i < n; ++i) {
    next_[i] = i + 1 < n ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
    if (i + 1 < n) SetPair(table, s, i, i + 1);
    push(i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto i = static_cast<uint32_t>(heap_.back());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    if (ranks_[i] != rank) continue;  // the pair has changed since
    const uint32_t right = next_[i];
    s[i] = results_[i];
    ranks_[right] = kNoRank;
    s[right] = kEnd;
    next_[i] = next_[right];
    ranks_[i] = kNoRank;
    for (const uint32_t left : {previous_[i], i}) {
      if (left == kEnd || next_[left] == kEnd) continue;
      previous_[next_[left]] = left;
      SetPair(table, s, left, next_[left]);
      if (ranks_[left] == kNoRank) continue;
      push(left);
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }
  s.erase(std::remove(s.begin(), s.end(), kEnd), s.end());
}

}  // namespace pocketlm
