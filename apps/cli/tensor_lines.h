// The tensors of a model as inspect prints them.
#pragma once

#include <string>

#include "report.h"

namespace pocketlm::cli {

// Counts and bytes of each type, then a line per tensor, and a second one where plm_inspect_tensors' figures have joined
// the tensor; with them a last line that sums up what looks wrong.
std::string TensorLines(const Json& tensors);

}  // namespace pocketlm::cli
