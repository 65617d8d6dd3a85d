// A type for every matrix, so that the model fits a size and loses least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace pocketlm {

// One of the ways to store something.
struct SizeChoice {
  uint64_t bytes = 0;
  double loss = 0.0;  // of any measure that adds up
};

// One choice of each list, as its index, so that the bytes sum to `budget` at most and the losses are small: from the smallest choices
// on, the steps along the lower convex hull of each list that save most loss a byte. Within one step of the
// least loss that is possible. Lists are not empty.
// kInvalidArgument if the smallest choices are more than the budget.
Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<SizeChoice>> lists,
                                               uint64_t budget);

}  // namespace pocketlm
