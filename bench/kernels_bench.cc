// Matrix products of every stored type at decode (1 row) and prefill (128 rows).
//
//   cmake -B build -DPOCKETLM_BUILD_BENCH=ON && cmake --build build --target kernels_bench
//   POCKETLM_CPU=avx2 build/bench/kernels_bench --benchmark_repetitions=9 --benchmark_report_aggregates_only
//
// Environment POCKETLM_THREADS sets the number of threads (default: the CPUs of this process).
// GB/s counts the stored bytes of the weights, GFLOPS two operations per multiply-add.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu_info.h"

namespace pocketlm {
namespace {

constexpr size_t kHidden = 576;  // SmolLM2-135M
constexpr size_t kIntermediate = 1536;

Backend& SharedBackend() {
  static std::unique_ptr<Backend> backend = [] {
    const char* threads = std::getenv("POCKETLM_THREADS");
    auto created = CreateCpuBackend(threads != nullptr ? std::atoi(threads) : AvailableCpus());
    if (!created.ok()) {
      std::fprintf(stderr, "%s\n", created.status().message().c_str());
      std::exit(1);
    }
    return std::move(created).value();
  }();
  return *backend;
}

// Random codes; the halves in front of each block may be anything, since speed does not depend on
// values as long as none is subnormal or NaN: every 16-bit word is forced into the exponents of
// ordinary numbers.
std::vector<std::byte> RandomWeights(DType type, size_t rows, size_t cols) {
  std::mt19937 rng(1);
  std::vector<std::byte> data(rows * *RowBytes(type, cols));
  for (size_t i = 0; i + 1 < data.size(); i += 2) {
    const uint16_t word = static_cast<uint16_t>((rng() & 0x83FF) | 0x2C00);
    std::memcpy(data.data() + i, &word, sizeof(word));
  }
  return data;
}

void MatMul(benchmark::State& state, DType type, size_t out, size_t in, size_t rows) {
  // Several matrices, so that decode reads memory and not the second-level cache.
  constexpr size_t kMatrices = 8;
  in = in / GetDTypeInfo(type).block_values * GetDTypeInfo(type).block_values;
  const auto data = RandomWeights(type, kMatrices * out, in);
  const WeightMatrix all{type, out, in, data.data()};
  std::vector<float> x(rows * in, 0.5f), y(rows * out);
  size_t next = 0;
  for (auto _ : state) {
    WeightMatrix w = all;
    w.data += next * out * w.row_bytes();
    next = (next + 1) % kMatrices;
    SharedBackend().MatMul(w, x.data(), rows, y.data());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  const double bytes = static_cast<double>(out * all.row_bytes());
  const double flops = 2.0 * static_cast<double>(out * in * rows);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, rate);
  state.counters["GFLOPS"] = benchmark::Counter(flops * 1e-9, rate);
}

void RegisterAll() {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    for (const size_t rows : {size_t{1}, size_t{128}}) {
      const std::string name =
          std::string("MatMul/") + GetDTypeInfo(type).name + "/rows:" + std::to_string(rows);
      benchmark::RegisterBenchmark(name.c_str(), MatMul, type, kIntermediate, kHidden, rows)
          ->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace pocketlm

int main(int argc, char** argv) {
  pocketlm::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("backend", pocketlm::SharedBackend().name());
  benchmark::AddCustomContext("threads", std::to_string(pocketlm::SharedBackend().num_threads()));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
