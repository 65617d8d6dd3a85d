// Compact storage of many strings by index, and a hash index from string to number.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace pocketlm {

inline uint64_t MixHash(uint64_t h) {
  h *= 0x9E3779B97F4A7C15u;
  return h ^ (h >> 32);
}

inline uint64_t HashBytes(std::string_view s) {
  uint64_t h = s.size();
  const char* p = s.data();
  size_t n = s.size();
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = MixHash(h ^ word);
  }
  uint64_t tail = 0;
  for (size_t i = 0; i < n; ++i)
    tail |= static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i);
  return MixHash(h ^ tail);
}

// Strings 0, 1, 2, … one after the other in one buffer; at most 4 GiB in all.
class StringArena {
 public:
  void Reserve(size_t count, size_t total_bytes) {
    ends_.reserve(count);
    bytes_.reserve(total_bytes);
  }
  void Add(std::string_view s) {
    bytes_.append(s);
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  size_t size() const { return ends_.size(); }
  size_t total_bytes() const { return bytes_.size(); }
  std::string_view operator[](size_t i) const {
    const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;
};

// Finds the index of a string of an arena. Open addressing over 4-byte slots.
class StringIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Room for `count` strings, with at most half of the slots in use.
  explicit StringIndex(size_t count = 0) {
    size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    slots_.assign(slots, kNone);
  }

  // Adds arena[i]. Returns i, or the index of the equal string that is already there; kNone if the index
  // degenerates, as only strings made to collide can make it.
  uint32_t Insert(const StringArena& arena, uint32_t i) {
    const std::string_view key = arena[i];
    size_t slot = HashBytes(key) & (slots_.size() - 1);
    for (size_t probes = 0; probes < kMaxProbes; ++probes) {
      if (slots_[slot] == kNone) return slots_[slot] = i;
      if (arena[slots_[slot]] == key) return slots_[slot];
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return kNone;
  }

  // The index of `key`, or kNone.
  uint32_t Find(const StringArena& arena, std::string_view key) const {
    size_t slot = HashBytes(key) & (slots_.size() - 1);
    for (size_t probes = 0; probes < kMaxProbes && slots_[slot] != kNone; ++probes) {
      if (arena[slots_[slot]] == key) return slots_[slot];
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return kNone;
  }

 private:
  static constexpr size_t kMaxProbes = 4096;
  std::vector<uint32_t> slots_;
};

}  // namespace pocketlm
