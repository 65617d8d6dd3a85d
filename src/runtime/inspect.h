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
  uint64_t arena = 0;    // scratch of a prefill chunk, and one row of logits
  uint64_t total() const { return weights + kv + arena; }
};

// `options` as resolved by ResolveSessionOptions.
MemoryPlan PlanMemory(const ModelSource& source, const SessionOptions& options);

// {architecture, parameters, file_type counts, tensors [{name, type, shape, bytes}], metadata, memory_plan
// {weights_bytes, kv_bytes, arena_bytes, total_bytes, context_length}}. Long metadata arrays appear as their type and length.
Result<nlohmann::ordered_json> InspectFile(const std::string& path, const SessionOptions& options);

// {architecture, parameters, config …, context_length, num_threads, cpu_variant, end_tokens, has_chat_template}.
nlohmann::ordered_json DescribeModel(Model& model);

}  // namespace pocketlm
