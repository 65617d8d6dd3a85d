// A progress bar on standard error; silent where that is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pocketlm::cli {

class Progress {
 public:
  enum class Unit { kBytes, kFraction };

  // `label` names the work in a few words.
  Progress(std::string label, Unit unit);
  // Erases the bar.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Shows `done` of `total` (0: unknown), at most ten times a second. For kFraction total is 1.
  void Update(double done, double total);

 private:
  std::string Line(double done, double total) const;

  std::string label_;
  Unit unit_;
  bool enabled_;
  bool drawn_ = false;
  double first_done_ = -1;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_;
};

// "92.9 MB", "1.2 GB": powers of ten, for people.
std::string HumanBytes(double bytes);

}  // namespace pocketlm::cli
