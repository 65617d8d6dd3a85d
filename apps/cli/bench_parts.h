// The measurements of `bench` that need a process of their own, so that nothing else is in it: the program runs itself
// with the hidden flag --part NAME and reads a JSON object.
#pragma once

#include <string>

#include "generation_flags.h"
#include "report.h"

namespace pocketlm::cli {

// "memory"     one request of 1,024 tokens in and 128 out, less where the model's context is shorter: {peak_rss_bytes,
//              anonymous_bytes, file_bytes, swap_bytes, tokens_in, tokens_out, kv_k_type …, memory_plan}: the peak of each, and the
//              session's description
// "startup"    from nothing to the first token: {load_ms, first_token_ms, warm_first_token_ms, tokens_in}: loading
//              and the session; a prompt of 16 tokens the first time, and again with everything resident
// "bandwidth"  {file_bytes_s, buffer_bytes_s}
inline constexpr const char* kBenchParts[] = {"memory", "startup", "bandwidth"};

// Measures in this process and prints the object. `path` is a model file or folder.
void RunBenchPart(const std::string& part, const std::string& path, SessionFlags flags);

// Measures in a process of its own. Throws CliError if that fails.
Json MeasureBenchPart(const std::string& part, const std::string& path, const SessionFlags& flags);

}  // namespace pocketlm::cli
