// The kernel tables of this build that its CPU can run, and a fixture that runs a test over each of them.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/cpu_info.h"

namespace pocketlm::testing {

struct IsaTable {
  const CpuKernels* kernels;
  std::string name;
  bool usable;  // on this CPU
};

// All tables of this build other than the reference.
inline std::vector<IsaTable> IsaTables() {
  std::vector<IsaTable> out;
  [[maybe_unused]] const CpuFeatures& cpu = GetCpuFeatures();
#if defined(POCKETLM_HAVE_X86)
  out.push_back({&kAvx2Kernels, "avx2", cpu.avx2_fma_f16c});
  out.push_back({&kAvxVnniKernels, "avxvnni", cpu.avx2_fma_f16c && cpu.avx_vnni});
  const bool avx512 = cpu.avx2_fma_f16c && cpu.avx512_vnni;
  out.push_back({&kAvx512VnniKernels, "avx512vnni", avx512});
  out.push_back({&kAmxKernels, "amx", avx512 && cpu.amx_int8});
#endif
#if defined(POCKETLM_HAVE_NEON)
  out.push_back({&kNeonDotprodKernels, "neon_dotprod", cpu.neon_dotprod});
  out.push_back({&kNeonI8mmKernels, "neon_i8mm", cpu.neon_dotprod && cpu.neon_i8mm});
#endif
  return out;
}

// The tables that can run here, the reference among them.
inline std::vector<const CpuKernels*> UsableTables() {
  std::vector<const CpuKernels*> out = {&kReferenceKernels};
  for (const IsaTable& table : IsaTables()) {
    if (table.usable) out.push_back(table.kernels);
  }
  return out;
}

// Runs over IsaTables(); skips those that this CPU cannot run.
class IsaTest : public ::testing::TestWithParam<IsaTable> {
 protected:
  void SetUp() override {
    if (!GetParam().usable) GTEST_SKIP() << "this CPU has no " << GetParam().name;
    ASSERT_EQ(isa().name, GetParam().name);
  }
  const CpuKernels& isa() const { return *GetParam().kernels; }
  const CpuKernels& reference() const { return kReferenceKernels; }
};

inline void PrintTo(const IsaTable& table, std::ostream* out) { *out << table.name; }

}  // namespace pocketlm::testing

#define POCKETLM_INSTANTIATE_ISA(suite)                                                       \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite);                                       \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::ValuesIn(::pocketlm::testing::IsaTables()), \
                           [](const auto& table) { return table.param.name; })
