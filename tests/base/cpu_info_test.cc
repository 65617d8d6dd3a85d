#include "base/cpu_info.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <string>
#include <thread>
#include <vector>

namespace pocketlm {
namespace {

using internal::CpusFromCpuMax;

// THR-D1: the container's quota, not the host's CPUs, and at least one.
TEST(CpuInfoTest, QuotaOfCpuMax) {
  EXPECT_EQ(CpusFromCpuMax("200000 100000\n"), 2);
  EXPECT_EQ(CpusFromCpuMax("150000 100000"), 1);
  EXPECT_EQ(CpusFromCpuMax("399999 100000"), 3);
  EXPECT_EQ(CpusFromCpuMax("1600000 100000"), 16);
  EXPECT_EQ(CpusFromCpuMax("50000 100000"), 1);  // half a CPU still runs one thread
  EXPECT_EQ(CpusFromCpuMax("1 1000000"), 1);
}

TEST(CpuInfoTest, NoQuota) {
  EXPECT_EQ(CpusFromCpuMax("max 100000\n"), 0);
  EXPECT_EQ(CpusFromCpuMax("-1 100000"), 0);  // cgroup v1 for unlimited
  EXPECT_EQ(CpusFromCpuMax(""), 0);
  EXPECT_EQ(CpusFromCpuMax("100000"), 0);
  EXPECT_EQ(CpusFromCpuMax("100000 0"), 0);
  EXPECT_EQ(CpusFromCpuMax("0 100000"), 0);
  EXPECT_EQ(CpusFromCpuMax("garbage here"), 0);
}

// A control group below this process's own, with a CPU quota; gone at the end. Needs the rights to make one.
class QuotaGroup {
 public:
  // The folder of the version 1 controller or of version 2, whichever takes a quota of `cpus`.
  explicit QuotaGroup(int cpus) {
    const std::string name = "/pocketlm_test_" + std::to_string(getpid());
    const std::string quota = std::to_string(cpus * 100000);
    for (const std::string root : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup"}) {
      folder_ = root + name;
      if (mkdir(folder_.c_str(), 0755) != 0) continue;
      if (Write("cpu.cfs_quota_us", quota) || Write("cpu.max", quota + " 100000")) return;
      rmdir(folder_.c_str());
    }
    folder_.clear();
  }
  ~QuotaGroup() {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }

  bool made() const { return !folder_.empty(); }

  // What AvailableCpus() says in a process of the group; 0 if it could not join.
  int AvailableCpusInside() const {
    const pid_t child = fork();
    if (child == 0) _exit(Write("cgroup.procs", "0") ? AvailableCpus() : 0);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }

 private:
  bool Write(const char* file, const std::string& text) const {
    const int descriptor = open((folder_ + "/" + file).c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const bool written =
        write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    return close(descriptor) == 0 && written;
  }

  std::string folder_;
};

TEST(CpuInfoTest, ThrD1AQuotaBelowTheCpusOfTheHost) {
  if (AvailableCpus() < 2) GTEST_SKIP() << "one CPU";
  const QuotaGroup group(1);
  if (!group.made()) GTEST_SKIP() << "no right to make a control group with a CPU quota";
  EXPECT_EQ(group.AvailableCpusInside(), 1);
  EXPECT_GE(AvailableCpus(), 2);  // this process stays outside
}

TEST(CpuInfoTest, HugeQuotasStayInRange) {
  EXPECT_GE(CpusFromCpuMax("9223372036854775807 1"), 1);
  EXPECT_GE(CpusFromCpuMax("99999999999999999999999999 1"), 0);
}

// THR-D2: slow cores get no thread of their own by default.
TEST(CpuInfoTest, ThrD2OnlyFastCpusCount) {
  using internal::CountFastCpus;
  EXPECT_EQ(CountFastCpus(std::vector<int>{1024, 1024, 1024, 1024}), 4);
  EXPECT_EQ(CountFastCpus(std::vector<int>{250, 250, 250, 250, 760, 760, 760, 1024}),
            4);  // a phone
  EXPECT_EQ(CountFastCpus(std::vector<int>{1024, 512, 511, 513}), 3);
  EXPECT_EQ(CountFastCpus(std::vector<int>{1023, 512, 511}), 2);
  EXPECT_EQ(CountFastCpus(std::vector<int>{300, 300}),
            2);  // only slow ones: then they are the fast ones
  EXPECT_EQ(CountFastCpus(std::vector<int>{0, 0, 0}), 3);  // the system does not tell
  EXPECT_EQ(CountFastCpus(std::vector<int>{0, 1024, 200}), 2);
  EXPECT_EQ(CountFastCpus(std::vector<int>{INT_MAX, INT_MAX, 1}), 2);
  EXPECT_EQ(CountFastCpus({}), 0);
}

TEST(CpuInfoTest, AffinityLimitsTheCpus) {
  EXPECT_GE(AvailableCpus(), 1);
  cpu_set_t old;
  ASSERT_EQ(sched_getaffinity(0, sizeof(old), &old), 0);
  EXPECT_LE(AvailableCpus(), CPU_COUNT(&old));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &old)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableCpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(old), &old), 0);
}

TEST(CpuInfoTest, FeaturesAreDetectedOnce) { EXPECT_EQ(&GetCpuFeatures(), &GetCpuFeatures()); }

}  // namespace
}  // namespace pocketlm
