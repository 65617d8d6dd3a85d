// Finds the smallest packed layout that holds given codes exactly.
#pragma once

#include <optional>

#include "compress/row_codes.h"

namespace pocketlm {

// Looks at every row of a matrix, then answers. Rows may be divided among scans that are merged afterwards.
//
//   group size  the stored one, or twice or four times that (up to 128) if scale and min of the groups that join
//               are bit-equal in the whole matrix
//   offset      none if every min is half(-8 · scale); else zero4 if every min is half(-(scale · z)) for an integer
//               z in 0 … 15 (a zero of either sign counts as zero); else min_f16
class EncodingScan {
 public:
  // All rows of a scan have the same layout and length.
  void Add(const RowCodes& row);
  void Merge(const EncodingScan& other);

  // False if a scale or min is infinite or NaN.
  bool finite() const { return finite_; }

  // nullopt if no packed layout is exact: i8 with the code -128, values that are not finite, no row at all.
  std::optional<PackedLayout> Smallest() const;

 private:
  void AddGroups(const RowCodes& row);

  std::optional<PackedLayout> stored_;
  bool finite_ = true;
  bool codes_fit_ = true;  // i8: no -128
  bool none_ = true;
  bool zero4_ = true;
  bool joins2_ = true;  // pairs of groups
  bool joins4_ = true;
};

}  // namespace pocketlm
