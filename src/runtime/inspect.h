// What a model file holds, and the memory a session on it will take, without loading it for work.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/status.h"
#include "model/model.h"
#include "runtime/session.h"

namespace pocketlm {

// Bytes, known before the first token.
struct MemoryPlan {
  uint64_t weights = 0;  // mapped from the file, resident as they are read
  uint64_t kv = 0;       // of a full context
  uint64_t arena = 0;  // scratch of a prefill chunk, of decoder and backend, and one row of logits
  uint64_t total() const { return weights + kv + arena; }
};

// `options` as resolved by ResolveSessionOptions.
MemoryPlan PlanMemory(const ModelSource& source, const SessionOptions& options,
                      const BackendOptions& backend);

// {architecture, parameters, config (ConfigToPlmJson), memory_plan {weights_bytes, kv_bytes, arena_bytes, total_bytes,
// context_length, num_threads, kv_k_type, kv_v_type}, metadata, tensors [{name, type, shape, bytes}]}. The plan is for
// AvailableCpus() threads. Long metadata arrays appear as their type and length.
Result<nlohmann::ordered_json> InspectFile(const std::string& path, const SessionOptions& options);

// {context_length, prefill_chunk, kv_k_type, kv_v_type, num_threads, memory_plan {weights_bytes, kv_bytes, arena_bytes,
// total_bytes}} of a session as it runs.
nlohmann::ordered_json DescribeSession(const Session& session);

// {architecture, parameters, config (ConfigToPlmJson), context_length, num_threads, cpu_variant, activations, end_tokens,
// has_chat_template}.
nlohmann::ordered_json DescribeModel(Model& model);

}  // namespace pocketlm
