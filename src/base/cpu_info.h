// What the CPU and the operating system give this process.
#pragma once

#include <span>

namespace pocketlm {

// Instruction sets of the running CPU that the kernels know. Compiled without ISA flags, so it is safe
// on the oldest CPU. False for the sets of other architectures.
struct CpuFeatures {
  bool avx2_fma_f16c = false;
  bool avx_vnni = false;
  bool avx512_vnni = false;  // with F, BW, DQ and VL
  bool amx_int8 = false;     // and the operating system lets this process use the tiles
  bool neon_dotprod = false;
  bool neon_i8mm = false;
};

// Detected once; thread-safe.
const CpuFeatures& GetCpuFeatures();

// Fast CPUs this process may use: min(fast ones of the affinity mask, floor(cgroup CPU quota)), at least 1.
// Slow are those with less than half the capacity of the largest (sysfs `cpu_capacity`: phones, hybrid processors).
// The quota is the tightest of the process's cgroup and its ancestors (v2 `cpu.max`, v1 `cpu.cfs_quota_us`).
int AvailableCpus();

namespace internal {
// For tests: the quota in whole CPUs that a cgroup v2 `cpu.max` line grants; 0 if it sets no limit or
// cannot be read. "150000 100000" → 1, "max 100000" → 0.
int CpusFromCpuMax(const char* line);

// For tests: how many of these capacities are at least half of the largest; ≤ 0 is an unknown one, which counts.
int CountFastCpus(std::span<const int> capacities);
}  // namespace internal

}  // namespace pocketlm
