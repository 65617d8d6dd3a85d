// plm_session_benchmark and the rest of pocketlm/measure.h.
#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "capi/internal.h"
#include "meter/machine.h"
#include "meter/memory_usage.h"
#include "meter/model_identity.h"
#include "meter/read_bandwidth.h"
#include "pocketlm/measure.h"
#include "runtime/inspect.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

namespace {

Result<BenchmarkOptions> ReadBenchmarkOptions(const plm_benchmark_options* options) {
  POCKETLM_ASSIGN_OR_RETURN(const plm_benchmark_options read,
                            ReadOptions(options, plm_benchmark_options_default()));
  BenchmarkOptions out;
  if (read.phase != PLM_BENCHMARK_PREFILL && read.phase != PLM_BENCHMARK_DECODE) {
    return InvalidArgument(
        "benchmark: phase: expected a value of plm_benchmark_phase (0, 1), got " +
        std::to_string(static_cast<int>(read.phase)));
  }
  out.phase =
      read.phase == PLM_BENCHMARK_PREFILL ? BenchmarkPhase::kPrefill : BenchmarkPhase::kDecode;
  out.tokens = read.tokens;
  out.depth = read.depth;
  out.repeats = read.repeats;
  out.seed = read.seed;
  out.profile = read.profile;
  return out;
}

plm_benchmark_result ToCResult(const BenchmarkResult& result) {
  return {sizeof(plm_benchmark_result),
          result.run_ms.median,
          result.run_ms.min,
          result.run_ms.max,
          result.sampling_ms,
          result.sync_ms,
          result.weight_bytes_per_token,
          result.kv_bytes_per_token};
}

std::string ProfileJson(const BenchmarkResult& result) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [op, ms] : result.profile_ms) out[op] = ms;
  return out.dump();
}

}  // namespace

extern "C" {

plm_benchmark_options plm_benchmark_options_default(void) {
  const BenchmarkOptions defaults;
  return {sizeof(plm_benchmark_options),
          PLM_BENCHMARK_PREFILL,
          defaults.tokens,
          defaults.depth,
          defaults.repeats,
          defaults.seed,
          defaults.profile};
}

plm_status plm_session_benchmark(plm_session* session, const plm_benchmark_options* options,
                                 plm_progress_callback progress, void* user,
                                 plm_benchmark_result* result, char** profile_json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(result);
    POCKETLM_ASSIGN_OR_RETURN(const BenchmarkOptions read, ReadBenchmarkOptions(options));
    POCKETLM_RETURN_IF_ERROR(WriteResult(plm_benchmark_result{}, result));
    ProgressSink sink;
    if (progress != nullptr)
      sink = [progress, user](double fraction) { return progress(fraction, user); };
    POCKETLM_ASSIGN_OR_RETURN(const BenchmarkResult timed, session->session->Benchmark(read, sink));
    if (profile_json != nullptr)
      POCKETLM_RETURN_IF_ERROR(CopyString(ProfileJson(timed), profile_json));
    return WriteResult(ToCResult(timed), result);
  });
}

plm_status plm_session_describe(const plm_session* session, char** json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(json);
    return CopyString(DescribeSession(*session->session).dump(), json);
  });
}

plm_status plm_measure_memory(plm_memory_usage* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(result);
    const MemoryUsage usage = ReadMemoryUsage();
    return WriteResult(plm_memory_usage{sizeof(plm_memory_usage), usage.peak_rss_bytes,
                                        usage.anonymous_bytes, usage.file_bytes, usage.swap_bytes},
                       result);
  });
}

plm_status plm_measure_read_bandwidth(const char* path, int32_t num_threads,
                                      plm_read_bandwidth* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(result);
    POCKETLM_RETURN_IF_ERROR(WriteResult(plm_read_bandwidth{}, result));
    ReadBandwidthOptions options;
    options.num_threads = num_threads == 0 ? AvailableCpus() : num_threads;
    std::string file;
    if (path != nullptr) {
      POCKETLM_ASSIGN_OR_RETURN(const ModelIdentity identity, IdentifyModel(path));
      file = identity.largest_file;
    }
    POCKETLM_ASSIGN_OR_RETURN(const ReadBandwidth measured, MeasureReadBandwidth(file, options));
    return WriteResult(plm_read_bandwidth{sizeof(plm_read_bandwidth), measured.file_bytes_s,
                                          measured.buffer_bytes_s},
                       result);
  });
}

plm_status plm_describe_machine(char** json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(json);
    const Machine machine = DescribeMachine();
    const nlohmann::ordered_json report = {
        {"cpu_model", machine.cpu_model}, {"cpu_flags", machine.cpu_flags}, {"cpus", machine.cpus}};
    return CopyString(report.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace),
                      json);
  });
}

plm_status plm_identify_model(const char* path, plm_model_identity* result) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(path);
    POCKETLM_REQUIRE_ARGUMENT(result);
    POCKETLM_ASSIGN_OR_RETURN(const ModelIdentity identity, IdentifyModel(path));
    plm_model_identity out = {sizeof(plm_model_identity), identity.file_bytes, {}};
    identity.hash.copy(out.hash, sizeof(out.hash) - 1);
    return WriteResult(out, result);
  });
}

}  // extern "C"
