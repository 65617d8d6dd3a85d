// Session::Benchmark.
#include "runtime/benchmark.h"

#include <algorithm>
#include <mutex>

#include "base/thread_pool.h"
#include "runtime/session.h"

namespace pocketlm {
namespace {

uint64_t MatrixBytes(const WeightMatrix& w) {
  if (!w.packed) return uint64_t{w.rows} * w.row_bytes();
  const PackedPlanes planes = *PlaneBytes(w.packed->layout, w.rows, w.cols);
  return planes.codes + planes.scales + planes.offsets;
}

}  // namespace

uint64_t WeightBytesPerToken(const ModelWeights& weights) {
  uint64_t bytes = MatrixBytes(weights.lm_head) + weights.norm.size() * sizeof(float);
  for (const LayerWeights& layer : weights.layers) {
    for (const WeightMatrix* w : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj,
                                  &layer.gate_proj, &layer.up_proj, &layer.down_proj}) {
      bytes += MatrixBytes(*w);
    }
    for (const std::vector<float>* norm :
         {&layer.attention_norm, &layer.post_attention_norm, &layer.feedforward_norm,
          &layer.post_feedforward_norm, &layer.q_norm, &layer.k_norm}) {
      bytes += norm->size() * sizeof(float);
    }
  }
  return bytes;
}

uint64_t KvBytesPerToken(const ModelConfig& config, KvType k_type, KvType v_type, size_t position) {
  const size_t dim = config.head_dim;
  const uint64_t per_position =
      config.num_key_value_heads * uint64_t{KvCodeBytes(k_type, dim) + KvScaleBytes(k_type, dim) +
                                            KvCodeBytes(v_type, dim) + KvScaleBytes(v_type, dim)};
  uint64_t positions = 0;
  for (size_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool sliding = config.LayerIsSliding(layer);
    positions += sliding ? std::min<size_t>(position + 1, config.sliding_window) : position + 1;
  }
  return positions * per_position;
}

// Runs one benchmark on a session whose tokens are gone.
class BenchmarkRunner {
 public:
  BenchmarkRunner(Session* session, const BenchmarkOptions& options)
      : session_(*session),
        options_(options),
        sampler_(SamplerOptions(), session->model_->tokenizer().vocab_size()) {}

  Result<BenchmarkResult> Run(const ProgressSink& progress) {
    POCKETLM_RETURN_IF_ERROR(ChooseTokens());
    POCKETLM_RETURN_IF_ERROR(FillCache());
    std::vector<double> run_ms, sampling_ms, sync_ms;
    const uint32_t runs = 1 + options_.repeats + (options_.profile ? 1 : 0);
    BenchmarkResult result;
    for (uint32_t run = 0; run < runs; ++run) {
      const bool profiled = run > options_.repeats;
      DecoderProfile profile;
      session_.decoder_.set_profile(profiled ? &profile : nullptr);
      sampling_ms_ = 0.0;
      const WaitMeter waiting;
      const Stopwatch watch;
      const Status status = RunOnce();
      const double ms = watch.ms();
      session_.decoder_.set_profile(nullptr);
      POCKETLM_RETURN_IF_ERROR(status);
      if (profiled) {
        result.profile_ms = Profile(profile, ms);
      } else if (run > 0) {
        run_ms.push_back(ms);
        sampling_ms.push_back(sampling_ms_);
        sync_ms.push_back(waiting.ms());
      }
      if (progress && !progress(static_cast<double>(run + 1) / runs))
        return Cancelled("benchmark: cancelled by the caller");
    }
    result.run_ms = Summarize(std::move(run_ms));
    result.sampling_ms = Summarize(std::move(sampling_ms)).median;
    result.sync_ms = Summarize(std::move(sync_ms)).median;
    if (options_.phase == BenchmarkPhase::kDecode) CountBytes(&result);
    return result;
  }

 private:
  // Random ids for a prompt; decoding starts from the first.
  Status ChooseTokens() {
    const Tokenizer& tokenizer = session_.model_->tokenizer();
    const size_t count = options_.phase == BenchmarkPhase::kPrefill ? options_.tokens : 1;
    const uint32_t size = static_cast<uint32_t>(tokenizer.vocab_size());
    if (session_.model_->unused_ids().size() >= size)
      return InvalidArgument("benchmark: expected a vocabulary with tokens, got none");
    Pcg32 random(options_.seed);
    ids_.reserve(count);
    while (ids_.size() < count) {
      uint32_t id = random.Next() % size;
      while (!tokenizer.IsValid(static_cast<int32_t>(id))) id = (id + 1) % size;
      ids_.push_back(static_cast<int32_t>(id));
    }
    return OkStatus();
  }

  Status FillCache() {
    std::lock_guard<std::mutex> lock(session_.model_->compute_mutex());
    return session_.decoder_.FillSynthetically(options_.depth, &session_.cache_);
  }

  // What a run writes into the cache lies from `depth` on: the next one finds the cache as this one did.
  Status RunOnce() { return options_.phase == BenchmarkPhase::kPrefill ? Prefill() : Decode(); }

  Status Prefill() {
    const size_t max_rows = session_.decoder_.max_rows();
    for (size_t begin = 0; begin < ids_.size(); begin += max_rows) {
      const size_t rows = std::min(max_rows, ids_.size() - begin);
      const bool last = begin + rows == ids_.size();
      POCKETLM_RETURN_IF_ERROR(
          session_.ComputeRows(std::span(ids_).subspan(begin, rows), options_.depth + begin, last));
    }
    int32_t id = 0;
    return Sample(&id);
  }

  Status Decode() {
    int32_t id = ids_.front();
    for (uint32_t i = 0; i < options_.tokens; ++i) {
      POCKETLM_RETURN_IF_ERROR(session_.ComputeRows({&id, 1}, options_.depth + i, true));
      POCKETLM_RETURN_IF_ERROR(Sample(&id));
    }
    return OkStatus();
  }

  Status Sample(int32_t* id) {
    const Stopwatch watch;
    POCKETLM_ASSIGN_OR_RETURN(*id, sampler_.Sample(session_.logits_));
    sampling_ms_ += watch.ms();
    return OkStatus();
  }

  std::vector<std::pair<std::string, double>> Profile(const DecoderProfile& profile,
                                                      double run_ms) const {
    std::vector<std::pair<std::string, double>> out = {{"sampling", sampling_ms_}};
    double rest = run_ms - sampling_ms_;
    for (int op = 0; op < kNumDecoderOps; ++op) {
      const double ms = profile.seconds[op] * 1e3;
      if (ms > 0.0) out.emplace_back(DecoderOpName(static_cast<DecoderOp>(op)), ms);
      rest -= ms;
    }
    out.emplace_back("other", std::max(rest, 0.0));
    std::stable_sort(out.begin(), out.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return out;
  }

  void CountBytes(BenchmarkResult* result) const {
    const SessionOptions& session = session_.options_;
    result->weight_bytes_per_token = WeightBytesPerToken(session_.model_->weights());
    uint64_t kv = 0;
    for (uint32_t i = 0; i < options_.tokens; ++i) {
      kv += KvBytesPerToken(session_.model_->config(), session.kv_k_type, session.kv_v_type,
                            size_t{options_.depth} + i);
    }
    result->kv_bytes_per_token = kv / options_.tokens;
  }

  Session& session_;
  const BenchmarkOptions& options_;
  Sampler sampler_;
  std::vector<int32_t> ids_;
  double sampling_ms_ = 0.0;  // of the current run
};

Result<BenchmarkResult> Session::Benchmark(const BenchmarkOptions& options,
                                           const ProgressSink& progress) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  cancel_.store(false, std::memory_order_relaxed);
  if (options.tokens < 1 || options.repeats < 1 || options.repeats > kMaxBenchmarkRepeats) {
    return InvalidArgument("benchmark: expected at least 1 token and 1 to " +
                           std::to_string(kMaxBenchmarkRepeats) + " runs, got " +
                           std::to_string(options.tokens) + " tokens and " +
                           std::to_string(options.repeats) + " runs");
  }
  if (uint64_t{options.depth} + options.tokens > context_length()) {
    return ContextFull("benchmark: " + std::to_string(options.tokens) + " tokens at depth " +
                       std::to_string(options.depth) +
                       ": expected a context that holds them, got " +
                       std::to_string(context_length()) + " tokens");
  }
  // The made-up keys and values must serve no prompt.
  Truncate(0);
  logits_valid_ = false;
  return BenchmarkRunner(this, options).Run(progress);
}

}  // namespace pocketlm
