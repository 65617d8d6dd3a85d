// A persistent pool of worker threads for data-parallel loops.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace pocketlm {

// A non-owning reference to a callable void(size_t begin, size_t end, int thread).
class RangeBody {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, RangeBody>>>
  RangeBody(F&& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, size_t begin, size_t end, int thread) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end, thread);
        }) {}
  void operator()(size_t begin, size_t end, int thread) const {
    call_(object_, begin, end, thread);
  }

 private:
  void* object_;
  void (*call_)(void*, size_t, size_t, int);
};

// While one lives on a thread, it adds up how long that thread waits for workers at the end of its ParallelFor
// calls: waking, uneven work and the barrier. They may nest; the innermost counts.
class WaitMeter {
 public:
  WaitMeter();
  ~WaitMeter();
  WaitMeter(const WaitMeter&) = delete;
  WaitMeter& operator=(const WaitMeter&) = delete;

  double ms() const { return ms_; }

 private:
  friend class ThreadPool;
  const WaitMeter* outer_;
  mutable double ms_ = 0.0;  // the pool adds to it, also where the meter is declared const
};

// Workers spin for about 20 µs after a loop and then sleep, so an idle pool costs no CPU.
class ThreadPool {
 public:
  // `num_threads` ≥ 1 counts the calling thread; num_threads − 1 workers are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end, thread) until [0, count) is covered, in chunks of `chunk` ≥ 1; `thread` is in
  // [0, num_threads()). Each thread walks forwards through an equal share of the range, and then helps those that are
  // not done: memory is read in few long streams, and slow cores do less. Returns when all is done. The body must
  // not throw or call ParallelFor. Callable from any thread: concurrent calls run one after the other.
  void ParallelFor(size_t count, size_t chunk, RangeBody body);

 private:
  void WorkerLoop(int thread);
  // Waits until all chunks of the current job are done.
  void AwaitWorkers();
  // Claims and runs chunks of job `generation` until none is left or another job has begun.
  void RunChunks(uint32_t generation, int thread);

  // Where the next chunk of a thread's share is claimed; on a cache line of its own.
  struct alignas(64) Share {
    std::atomic<uint64_t> next{0};  // generation << 32 | first chunk not yet claimed
  };

  // Claims and runs chunks of one share.
  void RunShare(uint32_t generation, size_t share, int thread);

  std::vector<Share> shares_;  // one per thread
  std::vector<std::thread> workers_;
  std::mutex caller_mutex_;
  // The current job. Workers may read it while the caller writes the next one: what they read counts only if
  // the claim that follows succeeds.
  std::atomic<const RangeBody*> body_{nullptr};
  std::atomic<size_t> count_{0};
  std::atomic<size_t> chunk_{1};
  std::atomic<uint32_t> generation_{0};  // one more for each job; what sleeping workers wait on
  std::atomic<uint32_t> unfinished_{0};  // chunks of the current job that are not done
  std::atomic<bool> stop_{false};
};

}  // namespace pocketlm
