#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace pocketlm {
namespace {

TEST(ThreadPoolTest, CoversEveryIndexOnceInWholeChunks) {
  for (int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (size_t count : {0, 1, 2, 7, 64, 1000}) {
      for (size_t chunk : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> hits(count);
        std::atomic<bool> sound{true};
        pool.ParallelFor(count, chunk, [&](size_t begin, size_t end, int thread) {
          if (begin % chunk != 0 || end <= begin || end - begin > chunk || end > count)
            sound = false;
          if (thread < 0 || thread >= threads) sound = false;
          for (size_t i = begin; i < end; ++i) ++hits[i];
        });
        EXPECT_TRUE(sound);
        for (size_t i = 0; i < count; ++i)
          ASSERT_EQ(hits[i], 1) << count << "/" << chunk << " at " << i;
      }
    }
  }
}

// Plain memory written by one loop is seen by the next, whoever runs it.
TEST(ThreadPoolTest, ThousandsOfSmallLoopsInARow) {
  ThreadPool pool(4);
  std::vector<int> values(97, 0);
  for (int round = 1; round <= 5000; ++round) {
    pool.ParallelFor(values.size(), 5, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; ++i) {
        if (values[i] == round - 1) values[i] = round;
      }
    });
  }
  for (int value : values) ASSERT_EQ(value, 5000);
}

// A worker late out of a short loop must not claim a chunk of the longer loop that follows by its old number.
TEST(ThreadPoolTest, LoopsOfDifferentSizesInARow) {
  ThreadPool pool(4);
  std::vector<int> hits(40, 0);
  for (int round = 0; round < 20000; ++round) {
    const size_t count = round % 2 == 0 ? 2 : hits.size();
    pool.ParallelFor(count, 1, [&](size_t begin, size_t, int) { ++hits[begin]; });
  }
  for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i], i < 2 ? 20000 : 10000) << i;
}

// Each thread number belongs to one thread at a time: per-thread scratch needs no lock.
TEST(ThreadPoolTest, ThreadNumbersAreExclusive) {
  ThreadPool pool(4);
  std::vector<size_t> scratch(4, 0);
  for (int round = 0; round < 500; ++round) {
    pool.ParallelFor(200, 1,
                     [&](size_t, size_t, int thread) { ++scratch[static_cast<size_t>(thread)]; });
  }
  EXPECT_EQ(scratch[0] + scratch[1] + scratch[2] + scratch[3], 100000u);
}

TEST(ThreadPoolTest, ConcurrentCallersTakeTurns) {
  ThreadPool pool(3);
  std::atomic<int> active[3] = {};  // bodies that run now, by caller
  std::atomic<bool> overlapped{false};
  std::atomic<size_t> total{0};
  std::vector<std::thread> callers;
  for (size_t owner = 0; owner < 3; ++owner) {
    callers.emplace_back([&, owner] {
      for (int round = 0; round < 300; ++round) {
        pool.ParallelFor(16, 1, [&](size_t begin, size_t end, int) {
          ++active[owner];
          if (active[(owner + 1) % 3] != 0 || active[(owner + 2) % 3] != 0) overlapped = true;
          total += end - begin;
          --active[owner];
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_FALSE(overlapped);
  EXPECT_EQ(total, 3u * 300 * 16);
}

TEST(ThreadPoolTest, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 200; ++i) ThreadPool pool(1 + i % 5);
}

double ProcessCpuMs() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// THR-D2: a thread on a slow core does less, and the others do its part.
TEST(ThreadPoolTest, ThrD2ASlowThreadDoesLess) {
  ThreadPool pool(3);
  std::atomic<int> slow_chunks{0}, chunks{0};
  pool.ParallelFor(300, 1, [&](size_t, size_t, int thread) {
    if (thread == 1) {
      ++slow_chunks;
      while (chunks < 299) std::this_thread::yield();  // as slow as can be: until all else is done
    }
    ++chunks;
  });
  EXPECT_EQ(chunks, 300);
  EXPECT_LE(slow_chunks, 1);
}

// THR-D2: who waits for a slow thread sleeps.
TEST(ThreadPoolTest, ThrD2WaitingForASlowThreadCostsNoCpu) {
  ThreadPool pool(4);
  const double before = ProcessCpuMs();
  WaitMeter meter;
  // The caller too may be the one that sleeps, so two chunks do.
  pool.ParallelFor(4, 1, [](size_t begin, size_t, int thread) {
    if (begin >= 2 || thread == 1)
      std::this_thread::sleep_for(std::chrono::milliseconds(thread == 0 ? 50 : 300));
  });
  EXPECT_LT(ProcessCpuMs() - before, 60.0);  // a spinning wait would use 250 ms or more
}

TEST(WaitMeterTest, AddsUpTheWaitingOfItsThread) {
  ThreadPool pool(2);
  std::atomic<bool> taken{false};
  // The worker takes one of two chunks and keeps it for 100 ms; the caller waits for that.
  const auto wait_for_worker = [&] {
    taken = false;
    pool.ParallelFor(2, 1, [&](size_t, size_t, int thread) {
      if (thread == 1) {
        taken = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      } else {
        while (!taken) std::this_thread::yield();
      }
    });
  };
  wait_for_worker();
  WaitMeter outer;
  {
    const WaitMeter inner;
    wait_for_worker();
    EXPECT_GT(inner.ms(), 50.0);
    EXPECT_LT(inner.ms(), 5000.0);
  }
  EXPECT_EQ(outer.ms(), 0.0);
  wait_for_worker();
  EXPECT_GT(outer.ms(), 50.0);
}

// Workers sleep soon after a loop: an idle pool must not burn CPU (THR-D2).
TEST(ThreadPoolTest, IdlePoolCostsNoCpu) {
  ThreadPool pool(4);
  pool.ParallelFor(100, 1, [](size_t, size_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = ProcessCpuMs();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(ProcessCpuMs() - before, 30.0);  // three spinning workers would use 300 ms or more
}

}  // namespace
}  // namespace pocketlm
