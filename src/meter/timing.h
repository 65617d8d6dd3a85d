// Time, and the summary of repeated measurements.
#pragma once

#include <chrono>
#include <vector>

namespace pocketlm {

// Wall-clock time since construction or the last Restart.
class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
  }
  void Restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

struct Summary {
  double median = 0.0;  // of an even number of samples: the mean of the two in the middle
  double min = 0.0;
  double max = 0.0;
};

// Zeros for no samples.
Summary Summarize(std::vector<double> samples);

}  // namespace pocketlm
