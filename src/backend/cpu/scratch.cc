#include "backend/cpu/scratch.h"

#include <algorithm>
#include <utility>

namespace pocketlm {
namespace {

// Hands out pieces of memory one after the other, each on a cache line of its own.
class Layout {
 public:
  size_t Take(size_t bytes) {
    const size_t at = size_;
    size_ += (bytes + 63) / 64 * 64;
    return at;
  }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

}  // namespace

struct Scratch::Plan {
  Scratch offsets;
  size_t bytes = 0;

  Plan(int num_threads, const BackendLimits& limits) {
    const size_t values = limits.rows * limits.cols;
    const size_t groups = limits.rows * (limits.cols / 32 + 1);
    Layout all;
    offsets.codes_ = all.Take(values);
    offsets.scales_ = all.Take(groups * sizeof(float));
    offsets.sums_ = all.Take(groups * sizeof(float));
    offsets.code_sums_ = all.Take(groups * sizeof(int32_t));
    offsets.normed_ = all.Take(values * sizeof(float));
    offsets.gated_ = all.Take(values * sizeof(float));
    offsets.threads_ = all.size();
    Layout thread;
    thread.Take(std::max(PackedPanelBytes(limits.cols), limits.cols * kPanelRows * sizeof(float)));
    offsets.row_ = thread.Take(limits.cols * sizeof(float));
    offsets.outputs_ = thread.Take(std::max(limits.rows * kPanelRows, kMinOutputs) * sizeof(float));
    // An odd number of cache lines, so that threads do not meet in the same cache sets.
    offsets.stride_ = (thread.size() / 64 | 1) * 64 + 64;
    bytes = offsets.threads_ + static_cast<size_t>(num_threads) * offsets.stride_;
  }
};

uint64_t Scratch::Bytes(int num_threads, const BackendLimits& limits) {
  return Plan(num_threads, limits).bytes;
}

Status Scratch::Reserve(int num_threads, const BackendLimits& limits) {
  if (limits.rows <= limits_.rows && limits.cols <= limits_.cols) return OkStatus();
  BackendLimits wanted = limits_;
  wanted.rows = std::max(wanted.rows, limits.rows);
  wanted.cols = std::max(wanted.cols, limits.cols);
  Plan plan(num_threads, wanted);
  POCKETLM_ASSIGN_OR_RETURN(plan.offsets.memory_,
                            AlignedBuffer<std::byte>::Allocate(plan.bytes, "backend scratch"));
  plan.offsets.limits_ = wanted;
  *this = std::move(plan.offsets);
  return OkStatus();
}

}  // namespace pocketlm
