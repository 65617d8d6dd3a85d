// Byte pair encoding over token ids: a table of ranked merges, and the merging itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pocketlm {

// (left, right) -> (rank, result). Immutable after the last Insert.
class MergeTable {
 public:
  struct Entry {
    uint32_t left = UINT32_MAX;  // UINT32_MAX: empty
    uint32_t right = 0;
    uint32_t rank = 0;
    uint32_t result = 0;
  };

  // Room for `count` merges.
  explicit MergeTable(size_t count = 0);

  // Adds a merge; of two for the same pair the later counts. False if the table degenerates, as only ids
  // made to collide can make it.
  bool Insert(uint32_t left, uint32_t right, uint32_t rank, uint32_t result);

  // The merge of a pair, or nullptr.
  const Entry* Find(uint32_t left, uint32_t right) const {
    size_t slot = Slot(left, right);
    for (size_t probes = 0; probes < kMaxProbes && entries_[slot].left != UINT32_MAX; ++probes) {
      if (entries_[slot].left == left && entries_[slot].right == right) return &entries_[slot];
      slot = (slot + 1) & (entries_.size() - 1);
    }
    return nullptr;
  }

  // All merges in order of rank.
  std::vector<Entry> ByRank() const;

 private:
  static constexpr size_t kMaxProbes = 4096;
  size_t Slot(uint32_t left, uint32_t right) const;

  std::vector<Entry> entries_;
};

// Merges symbols as byte pair encoding does: again and again the pair of lowest rank, the leftmost of
// equals. Holds scratch memory, so one object serves many words; not thread-safe.
// Time O(n log n) for n symbols; no recursion.
class BpeMerger {
 public:
  // Replaces *symbols (token ids, fewer than 2^32 - 1) by the merged ones.
  void Merge(const MergeTable& table, std::vector<uint32_t>* symbols);

 private:
  void MergeShort(const MergeTable& table, std::vector<uint32_t>* symbols);
  void MergeLong(const MergeTable& table, std::vector<uint32_t>* symbols);
  void SetPair(const MergeTable& table, const std::vector<uint32_t>& symbols, uint32_t left,
               uint32_t right);

  std::vector<uint32_t> ranks_, results_;  // of the pair that begins at a symbol
  std::vector<uint32_t> next_, previous_;
  std::vector<uint64_t> heap_;  // rank << 32 | position, smallest first
};

}  // namespace pocketlm
