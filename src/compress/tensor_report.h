// What the stored weights of a model look like, and how far they are from those of the model they were made from.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace pocketlm {

// Fraction in [0, 1]; false cancels.
using TensorReportProgress = std::function<bool(double fraction)>;

// Reads all weights of the model at `path`. {tensors: [{name, minimum, maximum, rms, zeros, non_finite, …}]}, in the
// order of a forward pass, under the names of the file; the other members stand in pocketlm/measure.h at
// plm_inspect_tensors. `against` may be "": no comparison. `num_threads` 0: AvailableCpus(). Memory: a few rows a
// thread. The figures do not depend on the threads.
// Errors  those of OpenModelSource; kInvalidArgument: a tensor whose counterpart is missing or has another shape.
//         kCancelled.
Result<nlohmann::ordered_json> ReportTensors(const std::string& path, const std::string& against,
                                             int num_threads, const TensorReportProgress& progress);

}  // namespace pocketlm
