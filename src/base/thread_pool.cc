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

void ThreadPool::RunChunks(const Job& job, int thread) {
  while (true) {
    const size_t begin = next_.fetch_add(job.chunk, std::memory_order_relaxed);
    if (begin >= job.count) return;
    (*job.body)(begin, std::min(job.count, begin + job.chunk), thread);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitChange(generation_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    RunChunks(job_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ThreadPool::ParallelFor(size_t count, size_t chunk, RangeBody body) {
  POCKETLM_CHECK(chunk >= 1);
  if (count == 0) return;
  std::lock_guard<std::mutex> lock(caller_mutex_);
  if (workers_.empty() || count <= chunk) {
    for (size_t begin = 0; begin < count; begin += chunk) body(begin, std::min(count, begin + chunk), 0);
    return;
  }
  job_ = {&body, count, chunk};
  next_.store(0, std::memory_order_relaxed);
  running_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunChunks(job_, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;) left = AwaitChange(running_, left);
}

}  // namespace pocketlm
