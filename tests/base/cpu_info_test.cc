#include "base/cpu_info.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

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

TEST(CpuInfoTest, HugeQuotasStayInRange) {
  EXPECT_GE(CpusFromCpuMax("9223372036854775807 1"), 1);
  EXPECT_GE(CpusFromCpuMax("99999999999999999999999999 1"), 0);
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
