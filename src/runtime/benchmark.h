// Timed runs of a session: how fast it reads a prompt and how fast it writes an answer.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "meter/timing.h"
#include "model/config.h"
#include "model/weights.h"

namespace pocketlm {

enum class BenchmarkPhase { kPrefill, kDecode };

inline constexpr uint32_t kMaxBenchmarkRepeats = 1000;

struct BenchmarkOptions {
  BenchmarkPhase phase = BenchmarkPhase::kPrefill;
  uint32_t tokens = 512;  // ≥ 1: of the prompt, or of the answer
  // Tokens already in the cache, made up (see Decoder::FillSynthetically).
  uint32_t depth = 0;
  uint32_t repeats = 5;  // timed runs, 1 … kMaxBenchmarkRepeats; one more goes ahead untimed
  uint64_t seed = 0;     // of the random prompt
  bool profile = false;  // one more run, with a clock around every op
};

struct BenchmarkResult {
  // Milliseconds of a run: the forward passes and the sampling, nothing else. Every run computes all of its
  // tokens; nothing comes from a prefix cache.
  Summary run_ms;
  // Milliseconds of a run that went into choosing tokens; the median of the runs. A prefill chooses one.
  double sampling_ms = 0.0;
  // The same for waiting on other threads: waking them, uneven work, barriers.
  double sync_ms = 0.0;
  // What one decoded token reads: all matrices once, the head included, the embedding table only where it is the
  // head; and keys and values, on average over the run. Zero for prefill.
  uint64_t weight_bytes_per_token = 0;
  uint64_t kv_bytes_per_token = 0;
  // Milliseconds per op in the profiled run, largest first, "other" being the rest; empty without profile. An op's
  // time holds its part of the waiting.
  std::vector<std::pair<std::string, double>> profile_ms;
};

// Bytes of all matrices that one decoded token reads.
uint64_t WeightBytesPerToken(const ModelWeights& weights);

// Bytes of keys and values that a token at `position` reads, those of its own position included.
uint64_t KvBytesPerToken(const ModelConfig& config, KvType k_type, KvType v_type, size_t position);

}  // namespace pocketlm
