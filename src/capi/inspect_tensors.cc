// plm_inspect_tensors.
#include <nlohmann/json.hpp>

#include "capi/internal.h"
#include "compress/tensor_report.h"
#include "pocketlm/measure.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

extern "C" {

plm_status plm_inspect_tensors(const char* path, const char* against, int32_t num_threads,
                               plm_progress_callback progress, void* user, char** json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    POCKETLM_REQUIRE_ARGUMENT(json);
    TensorReportProgress sink;
    if (progress != nullptr)
      sink = [progress, user](double fraction) { return progress(fraction, user); };
    POCKETLM_ASSIGN_OR_RETURN(
        const nlohmann::ordered_json report,
        ReportTensors(path, against != nullptr ? against : "", num_threads, sink));
    return CopyString(report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                      json);
  });
}

}  // extern "C"
