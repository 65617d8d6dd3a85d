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

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  POCKETLM_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { WorkerLoop(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::RunChunks(uint32_t generation, int thread) {
  uint64_t next = next_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(next >> 32) == generation) {
    const RangeBody* body = body_.load(std::memory_order_acquire);
    const size_t count = count_.load(std::memory_order_acquire);
    const size_t chunk = chunk_.load(std::memory_order_acquire);
    const size_t begin = static_cast<size_t>(next & UINT32_MAX) * chunk;
    if (begin >= count) return;
    // Success means that the caller has not closed the job (see ParallelFor), hence its description is current,
    // and from now on the job is unfinished until this chunk is done.
    if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    (*body)(begin, std::min(count, begin + chunk), thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    next = next_.load(std::memory_order_acquire);
  }
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
  next_.store(uint64_t{generation} << 32 | UINT32_MAX, std::memory_order_relaxed);
  body_.store(&body, std::memory_order_release);
  count_.store(count, std::memory_order_release);
  chunk_.store(chunk, std::memory_order_release);
  unfinished_.store(static_cast<uint32_t>(chunks), std::memory_order_relaxed);
  next_.store(uint64_t{generation} << 32, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  generation_.notify_all();
  RunChunks(generation, 0);
  for (uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;) {
    left = AwaitChange(unfinished_, left);
  }
}

}  // namespace pocketlm
