#include "base/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "base/status.h"

namespace pocketlm {
namespace {

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` differs from `old`: spins for about 20 µs, then sleeps in the kernel.
uint32_t AwaitChange(const std::atomic<uint32_t>& value, uint32_t old) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  while (true) {
    for (int i = 0; i < 64; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      CpuPause();
    }
    if (std::chrono::steady_clock::now() >= deadline) break;
  }
  uint32_t now = value.load(std::memory_order_acquire);
  while (now == old) {
    value.wait(old, std::memory_order_acquire);
    now = value.load(std::memory_order_acquire);
  }
  return now;
}

thread_local const WaitMeter* current_meter = nullptr;

// The first chunk of share `share` of `shares`.
size_t ShareBegin(size_t chunks, size_t shares, size_t share) { return chunks * share / shares; }

}  // namespace

WaitMeter::WaitMeter() : outer_(current_meter) { current_meter = this; }
WaitMeter::~WaitMeter() { current_meter = outer_; }

ThreadPool::ThreadPool(int num_threads) : shares_(static_cast<size_t>(std::max(num_threads, 1))) {
  POCKETLM_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunShare(uint32_t generation, size_t share, int thread) {
  std::atomic<uint64_t>& claimed = shares_[share].next;
  uint64_t next = claimed.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(next >> 32) == generation) {
    const RangeBody* body = body_.load(std::memory_order_acquire);
    const size_t count = count_.load(std::memory_order_acquire);
    const size_t chunk = chunk_.load(std::memory_order_acquire);
    const size_t index = static_cast<size_t>(next & UINT32_MAX);
    if (index >= ShareBegin((count - 1) / chunk + 1, shares_.size(), share + 1)) return;
    // Success means that the caller has not closed the job (see ParallelFor), hence its description is current,
    // and from now on the job is unfinished until this chunk is done.
    if (!claimed.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    (*body)(index * chunk, std::min(count, (index + 1) * chunk), thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    next = claimed.load(std::memory_order_acquire);
  }
}

void ThreadPool::RunChunks(uint32_t generation, int thread) {
  for (size_t i = 0; i < shares_.size(); ++i)
    RunShare(generation, (static_cast<size_t>(thread) + i) % shares_.size(), thread);
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    RunChunks(seen, thread);
  }
}

void ThreadPool::ParallelFor(size_t count, size_t chunk, RangeBody body) {
  POCKETLM_CHECK(chunk >= 1);
  if (count == 0) return;
  std::lock_guard<std::mutex> lock(caller_mutex_);
  if (workers_.empty() || count <= chunk) {
    for (size_t begin = 0; begin < count; begin += chunk)
      body(begin, std::min(count, begin + chunk), 0);
    return;
  }
  const size_t chunks = (count - 1) / chunk + 1;
  POCKETLM_CHECK(chunks < UINT32_MAX);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  // Closes the previous job before its description changes: a worker that still looks for a chunk of it, and
  // already reads the new count (acquire of these releases), then fails to claim.
  for (Share& share : shares_)
    share.next.store(uint64_t{generation} << 32 | UINT32_MAX, std::memory_order_relaxed);
  body_.store(&body, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  chunk_.store(chunk, std::memory_order_release);
  unfinished_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
  for (size_t i = 0; i < shares_.size(); ++i) {
    shares_[i].next.store(uint64_t{generation} << 32 | ShareBegin(chunks, shares_.size(), i),
                          std::memory_order_release);
  }
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  RunChunks(generation, 0);
  AwaitWorkers();
}

void ThreadPool::AwaitWorkers() {
  uint32_t left = unfinished_.load(std::memory_order_acquire);
  if (left == 0) return;
  const auto start = std::chrono::steady_clock::now();
  while (left != 0) left = AwaitChange(unfinished_, left);
  if (current_meter != nullptr) {
    current_meter->ms_ +=
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
}

}  // namespace pocketlm
