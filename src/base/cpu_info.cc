#include "base/cpu_info.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/file.h"

namespace pocketlm {
namespace {

#if defined(__linux__)
// Files below /proc and /sys report size 0, so ReadFile cannot serve here.
std::string ReadPseudoFile(const std::string& path) {
  std::string out;
  if (FILE* file = std::fopen(path.c_str(), "r")) {
    char buffer[4096];
    const size_t n = std::fread(buffer, 1, sizeof(buffer), file);
    out.assign(buffer, n);
    std::fclose(file);
  }
  return out;
}

// The fast ones of the affinity mask; 0 if it cannot be read.
int FastAffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
  std::vector<int> capacities;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const std::string text =
        ReadPseudoFile("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity");
    capacities.push_back(static_cast<int>(std::strtol(text.c_str(), nullptr, 10)));
  }
  return internal::CountFastCpus(capacities);
}

// The group path of `controller` in /proc/self/cgroup; the v2 line has an empty controller list.
std::string CgroupPath(const std::string& cgroups, const char* controller) {
  size_t begin = 0;
  while (begin < cgroups.size()) {
    size_t end = cgroups.find('\n', begin);
    if (end == std::string::npos) end = cgroups.size();
    const std::string line = cgroups.substr(begin, end - begin);
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second != std::string::npos) {
      const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
      if (names == std::string(",") + controller + "," ||
          (*controller != '\0' &&
           names.find(std::string(",") + controller + ",") != std::string::npos)) {
        return line.substr(second + 1);
      }
    }
    begin = end + 1;
  }
  return "";
}

void TightenQuota(int cpus, int* quota) {
  if (cpus > 0 && (*quota == 0 || cpus < *quota)) *quota = cpus;
}

// Whole CPUs of the tightest quota on the way from the process's group to the root; 0 for no limit.
int QuotaCpus() {
  const std::string cgroups = ReadPseudoFile("/proc/self/cgroup");
  int quota = 0;
  const auto walk = [&](const std::string& root, std::string path, auto&& read) {
    while (true) {
      TightenQuota(read(root + path), &quota);
      if (path.empty() || path == "/") break;
      const size_t slash = path.rfind('/');
      path = slash == std::string::npos ? "" : path.substr(0, slash);
    }
  };
  walk("/sys/fs/cgroup", CgroupPath(cgroups, ""), [](const std::string& directory) {
    return internal::CpusFromCpuMax(ReadPseudoFile(directory + "/cpu.max").c_str());
  });
  walk("/sys/fs/cgroup/cpu", CgroupPath(cgroups, "cpu"), [](const std::string& directory) {
    const std::string line = ReadPseudoFile(directory + "/cpu.cfs_quota_us") + " " +
                             ReadPseudoFile(directory + "/cpu.cfs_period_us");
    return internal::CpusFromCpuMax(line.c_str());
  });
  return quota;
}
#endif

}  // namespace

namespace internal {
int CpusFromCpuMax(const char* line) {
  long long quota = 0, period = 0;
  if (std::sscanf(line, "%lld %lld", &quota, &period) != 2 || quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::clamp<long long>(quota / period, 1, 1 << 16));
}

int CountFastCpus(std::span<const int> capacities) {
  const int largest =
      capacities.empty() ? 0 : *std::max_element(capacities.begin(), capacities.end());
  return static_cast<int>(std::count_if(
      capacities.begin(), capacities.end(),
      [largest](int capacity) { return capacity <= 0 || capacity >= largest - largest / 2; }));
}
}  // namespace internal

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know "f16c".
static bool CpuHasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Nor does clang 14 know AVX-VNNI's.
bool CpuHasAvxVnni() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

// Linux gives the tiles to a process that asks for them (Documentation/arch/x86/xstate.rst).
bool CanUseAmxInt8() {
#if defined(__linux__)
  constexpr unsigned kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  unsigned eax, ebx, ecx, edx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kAmxTile) == 0 || (edx & kAmxInt8) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool CpuHasAvx512Vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = [] {
    CpuFeatures f;
#if defined(__x86_64__)
    __builtin_cpu_init();
    f.avx2_fma_f16c =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && CpuHasF16c();
    f.avx_vnni = f.avx2_fma_f16c && CpuHasAvxVnni();
    f.avx512_vnni = CpuHasAvx512Vnni();
    f.amx_int8 = f.avx512_vnni && CanUseAmxInt8();
#elif defined(__aarch64__) && defined(__linux__)
    f.neon_dotprod = (getauxval(AT_HWCAP) & (1ul << 20)) != 0;  // HWCAP_ASIMDDP
    f.neon_i8mm = (getauxval(AT_HWCAP2) & (1ul << 13)) != 0;    // HWCAP2_I8MM
#endif
    return f;
  }();
  return features;
}

int AvailableCpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  if (const int fast = FastAffinityCpus(); fast > 0) cpus = fast;
  if (const int quota = QuotaCpus(); quota > 0) cpus = std::min(cpus, quota);
#endif
  return std::max(cpus, 1);
}

}  // namespace pocketlm
