// What machine a measurement was made on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pocketlm {

struct Machine {
  std::string cpu_model;               // as the system names it; empty if it does not tell
  std::vector<std::string> cpu_flags;  // those that matter to matrix kernels, in a fixed order
  int cpus = 1;                        // AvailableCpus()
};

// Source  /proc/cpuinfo (the first processor).
Machine DescribeMachine();

namespace internal {
// The model and flags of a text in the form of /proc/cpuinfo.
Machine ParseCpuInfo(std::string_view text);
}  // namespace internal

}  // namespace pocketlm
