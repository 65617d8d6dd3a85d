#include "compress/exact.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace pocketlm {
namespace {

bool HalfIsFinite(uint16_t half) { return (half & 0x7C00u) != 0x7C00u; }

// Whether min is half(-(scale · z)) for an integer z in 0 … 15.
bool IsZero4(uint16_t scale_half, uint16_t min_half) {
  const float scale = HalfToFloat(scale_half);
  const float min = HalfToFloat(min_half);
  if (min == 0.0f) return true;
  if (scale == 0.0f) return false;
  const float guess = std::clamp(std::round(-min / scale), 0.0f, 15.0f);
  for (const float z : {guess - 1.0f, guess, guess + 1.0f}) {
    if (z < 0.0f || z > 15.0f) continue;
    if (MinOfZero(scale_half, static_cast<uint8_t>(z)) == min_half) return true;
  }
  return false;
}

// Whether runs of `count` groups have one scale and one min each.
bool GroupsJoin(const RowCodes& row, size_t count) {
  if (row.groups() % count != 0) return false;
  for (size_t g = 0; g < row.groups(); ++g) {
    const size_t first = g / count * count;
    if (row.scales[g] != row.scales[first]) return false;
    if (!row.mins.empty() && row.mins[g] != row.mins[first]) return false;
  }
  return true;
}

}  // namespace

void EncodingScan::AddGroups(const RowCodes& row) {
  for (size_t g = 0; g < row.groups(); ++g) {
    finite_ = finite_ && HalfIsFinite(row.scales[g]);
    if (row.mins.empty()) continue;
    finite_ = finite_ && HalfIsFinite(row.mins[g]);
    if (!finite_) return;
    none_ = none_ && row.mins[g] == MinOfNone(row.scales[g]);
    zero4_ = zero4_ && IsZero4(row.scales[g], row.mins[g]);
  }
}

void EncodingScan::Add(const RowCodes& row) {
  stored_ = row.layout;
  AddGroups(row);
  joins2_ = joins2_ && GroupsJoin(row, 2);
  joins4_ = joins4_ && joins2_ && GroupsJoin(row, 4);
  if (row.layout.type == PackedType::kI8 && codes_fit_) {
    codes_fit_ = std::find(row.codes.begin(), row.codes.end(), uint8_t{0x80}) == row.codes.end();
  }
}

void EncodingScan::Merge(const EncodingScan& other) {
  if (!stored_) stored_ = other.stored_;
  finite_ = finite_ && other.finite_;
  codes_fit_ = codes_fit_ && other.codes_fit_;
  none_ = none_ && other.none_;
  zero4_ = zero4_ && other.zero4_;
  joins2_ = joins2_ && other.joins2_;
  joins4_ = joins4_ && other.joins4_;
}

std::optional<PackedLayout> EncodingScan::Smallest() const {
  if (!stored_ || !finite_ || !codes_fit_) return std::nullopt;
  PackedLayout layout = *stored_;
  for (const bool joins : {joins2_, joins4_}) {
    if (joins && layout.group_size < 128) layout.group_size *= 2;
  }
  if (layout.type == PackedType::kU4) {
    layout.offset = none_ ? OffsetType::kNone : zero4_ ? OffsetType::kZero4 : OffsetType::kMinF16;
  }
  return layout;
}

}  // namespace pocketlm
