// Every kernel of every table that this CPU can run, on one thread.
//
//   cmake -B build-bench -DPOCKETLM_BUILD_BENCH=ON && cmake --build build-bench --target kernels_bench
//   build-bench/bench/kernels_bench --benchmark_filter='^avx2/packed' --benchmark_repetitions=9
//     --benchmark_report_aggregates_only
//
// Names are table/kernel/what. GB/s counts the stored bytes of weights or of the cache, GMAC/s multiply-adds,
// Mvalues/s the values of element-wise kernels. Shapes are those of the Pocket model: hidden size 896, feed-forward
// 2560, 7 query heads of 64 values a key-value head. Where less than the last-level cache is read, it is read from there.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/aligned_buffer.h"
#include "base/half.h"

namespace pocketlm {
namespace {

constexpr size_t kHidden = 896;
constexpr size_t kIntermediate = 2560;
constexpr size_t kVocabulary = 65536;
constexpr size_t kPrefillRows = 128;
constexpr size_t kBackendGemmTiles = 4;  // what the backend hands to packed_gemm

using Body = std::function<void(benchmark::State&)>;

template <typename T>
class Memory {
 public:
  explicit Memory(size_t count) : buffer_(Allocate(count)) {}
  T* data() { return buffer_.data(); }
  const T* data() const { return buffer_.data(); }
  size_t size() const { return buffer_.size(); }
  T& operator[](size_t i) { return buffer_.data()[i]; }

 private:
  static AlignedBuffer<T> Allocate(size_t count) {
    auto buffer = AlignedBuffer<T>::Allocate(count, "benchmark");
    if (!buffer.ok()) std::abort();
    return std::move(buffer).value();
  }
  AlignedBuffer<T> buffer_;
};

void FillBytes(std::byte* data, size_t count) {
  std::mt19937_64 rng(1);
  for (size_t i = 0; i + 8 <= count; i += 8) {
    const uint64_t word = rng();
    std::memcpy(data + i, &word, 8);
  }
}

// Floats between -1 and 1.
void FillFloats(float* data, size_t count) {
  std::mt19937 rng(2);
  for (size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>(static_cast<int32_t>(rng())) * 0x1p-31f;
}

// Halves of ordinary size: speed depends on values only where one is subnormal or NaN.
void FillHalves(uint16_t* data, size_t count) {
  std::mt19937 rng(3);
  for (size_t i = 0; i < count; ++i) data[i] = static_cast<uint16_t>((rng() & 0x83FF) | 0x2000);
}

void CountRate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate);
}

// ---- Plain weights ----

// A whole matrix of stored rows; every 16-bit word is a half of ordinary size, so the blocks' scales are, too.
struct StoredMatrix {
  StoredMatrix(DType matrix_type, size_t matrix_rows)
      : type(matrix_type),
        rows(matrix_rows),
        cols(kIntermediate),
        row_bytes(*RowBytes(matrix_type, kIntermediate)),
        data(rows * row_bytes) {
    FillHalves(reinterpret_cast<uint16_t*>(data.data()), data.size() / 2);
  }
  DType type;
  size_t rows, cols, row_bytes;
  Memory<std::byte> data;
};

void Gemv(benchmark::State& state, const CpuKernels& kernels, DType type) {
  const StoredMatrix w(type, kHidden);
  Memory<float> x(w.cols), y(w.rows);
  FillFloats(x.data(), w.cols);
  for (auto _ : state) {
    kernels.gemv(type, w.data.data(), w.rows, w.cols, x.data(), y.data());
    benchmark::ClobberMemory();
  }
  CountRate(state, "GB/s", static_cast<double>(w.data.size()) * 1e-9);
  CountRate(state, "GMAC/s", static_cast<double>(w.rows * w.cols) * 1e-9);
}

void Dequantize(benchmark::State& state, const CpuKernels& kernels, DType type) {
  const StoredMatrix w(type, 16);
  Memory<float> y(w.cols);
  for (auto _ : state) {
    for (size_t n = 0; n < w.rows; ++n)
      kernels.dequantize(type, w.data.data() + n * w.row_bytes, w.cols, y.data());
    benchmark::ClobberMemory();
  }
  CountRate(state, "Mvalues/s", static_cast<double>(w.rows * w.cols) * 1e-6);
}

void Gemm(benchmark::State& state, const CpuKernels& kernels) {
  constexpr size_t kPanelRows = 32;
  Memory<float> panel(kPanelRows * kHidden), x(kPrefillRows * kHidden),
      y(kPrefillRows * kPanelRows);
  FillFloats(panel.data(), panel.size());
  FillFloats(x.data(), x.size());
  for (auto _ : state) {
    kernels.gemm(panel.data(), kPanelRows, kHidden, x.data(), kPrefillRows, y.data(), kPanelRows);
    benchmark::ClobberMemory();
  }
  CountRate(state, "GMAC/s", static_cast<double>(kPanelRows * kHidden * kPrefillRows) * 1e-9);
}

// ---- Packed weights ----

struct Packed {
  Packed(const PackedLayout& layout, size_t rows, size_t cols)
      : planes(*PlaneBytes(layout, rows, cols)),
        codes(planes.codes),
        scales(planes.scales / 2),
        offsets(planes.offsets + 64) {
    FillBytes(codes.data(), codes.size());
    if (layout.type == PackedType::kI8) {
      for (size_t i = 0; i < codes.size(); ++i)
        if (codes[i] == std::byte{0x80}) codes[i] = std::byte{0};
    }
    FillHalves(scales.data(), scales.size());
    FillHalves(reinterpret_cast<uint16_t*>(offsets.data()), offsets.size() / 2);
    matrix = {layout,
              rows,
              cols,
              codes.data(),
              reinterpret_cast<std::byte*>(scales.data()),
              planes.offsets == 0 ? nullptr : offsets.data()};
  }
  double bytes() const {
    return static_cast<double>(planes.codes + planes.scales + planes.offsets);
  }
  PackedPlanes planes;
  Memory<std::byte> codes;
  Memory<uint16_t> scales;
  Memory<std::byte> offsets;
  PackedMatrix matrix;
};

struct Activations {
  Activations(const CpuKernels& kernels, size_t x_rows, size_t cols, size_t group)
      : values(cols),
        codes(x_rows * cols),
        scales(x_rows * cols / group),
        sums(x_rows * cols / group),
        code_sums(x_rows * cols / group) {
    FillFloats(values.data(), cols);
    const size_t groups = cols / group;
    for (size_t r = 0; r < x_rows; ++r) {
      kernels.quantize_row(values.data(), cols, group, codes.data() + r * cols,
                           scales.data() + r * groups, sums.data() + r * groups,
                           code_sums.data() + r * groups);
    }
  }
  QuantizedRows rows() const {
    return {codes.data(), scales.data(), sums.data(), code_sums.data()};
  }
  Memory<float> values;
  Memory<int8_t> codes;
  Memory<float> scales, sums;
  Memory<int32_t> code_sums;
};

void PackedProduct(benchmark::State& state, const CpuKernels& kernels, const PackedLayout& layout,
                   size_t rows, size_t cols, size_t x_rows) {
  const Packed w(layout, rows, cols);
  const Activations x(kernels, x_rows, cols, layout.group_size);
  Memory<float> y(x_rows * rows);
  Memory<std::byte> panel(PackedPanelBytes(cols));
  const size_t step = x_rows == 1 ? w.matrix.tiles() : kBackendGemmTiles;
  PackedProductArgs args;
  args.w = &w.matrix;
  args.x = x.rows();
  args.x_rows = x_rows;
  args.y_stride = rows;
  args.panel = panel.data();
  for (auto _ : state) {
    for (size_t tile = 0; tile < w.matrix.tiles(); tile += step) {
      args.tile_begin = tile;
      args.tile_end = std::min(tile + step, w.matrix.tiles());
      args.y = y.data() + tile * kTileRows;
      (x_rows == 1 ? kernels.packed_gemv : kernels.packed_gemm)(args);
    }
    benchmark::ClobberMemory();
  }
  CountRate(state, "GB/s", w.bytes() * 1e-9);
  CountRate(state, "GMAC/s", static_cast<double>(rows * cols * x_rows) * 1e-9);
}

void QuantizeRow(benchmark::State& state, const CpuKernels& kernels, size_t group) {
  Activations x(kernels, 1, kIntermediate, group);
  for (auto _ : state) {
    kernels.quantize_row(x.values.data(), kIntermediate, group, x.codes.data(), x.scales.data(),
                         x.sums.data(), x.code_sums.data());
    benchmark::ClobberMemory();
  }
  CountRate(state, "Mvalues/s", static_cast<double>(kIntermediate) * 1e-6);
}

// ---- Attention ----

struct Cache {
  Cache(KvType k, KvType v, size_t dim)
      : k_type(k),
        v_type(v),
        head_dim(dim),
        // A block more: kernels may ask for the next one in advance.
        keys(2 * kAttentionBlock * KvCodeBytes(k, dim)),
        values(2 * kAttentionBlock * KvCodeBytes(v, dim)),
        k_scales(kAttentionBlock * dim),
        v_scales(kAttentionBlock * dim) {
    Fill(k, &keys);
    Fill(v, &values);
    FillHalves(k_scales.data(), k_scales.size());
    FillHalves(v_scales.data(), v_scales.size());
  }
  double block_bytes() const {
    return static_cast<double>(kAttentionBlock *
                               (KvCodeBytes(k_type, head_dim) + KvScaleBytes(k_type, head_dim) +
                                KvCodeBytes(v_type, head_dim) + KvScaleBytes(v_type, head_dim)));
  }
  KvType k_type, v_type;
  size_t head_dim;
  Memory<std::byte> keys, values;
  Memory<uint16_t> k_scales, v_scales;

 private:
  static void Fill(KvType type, Memory<std::byte>* to) {
    auto* data = to->data();
    if (type == KvType::kF32)
      return FillFloats(reinterpret_cast<float*>(data), to->size() / sizeof(float));
    if (type == KvType::kF16)
      return FillHalves(reinterpret_cast<uint16_t*>(data), to->size() / sizeof(uint16_t));
    FillBytes(data, to->size());
  }
};

void AttendBlock(benchmark::State& state, const CpuKernels& kernels, KvType k, KvType v,
                 size_t heads, size_t dim) {
  const Cache cache(k, v, dim);
  const size_t group = KvGroup(dim);
  const Activations q(kernels, heads, dim, group);
  Memory<float> q_values(heads * dim), max(heads), sum(heads), out(heads * dim);
  FillFloats(q_values.data(), q_values.size());
  AttendBlockArgs args;
  args.q = q_values.data();
  args.q_codes = q.codes.data();
  args.q_scales = q.scales.data();
  args.q_code_sums = q.code_sums.data();
  args.heads = heads;
  args.head_dim = dim;
  args.k_type = k;
  args.v_type = v;
  args.k = cache.keys.data();
  args.v = cache.values.data();
  args.k_scales = cache.k_scales.data();
  args.v_scales = cache.v_scales.data();
  args.end = kAttentionBlock;
  for (auto _ : state) {
    kernels.attend_block(args, {max.data(), sum.data(), out.data()});
    benchmark::ClobberMemory();
  }
  CountRate(state, "GB/s", cache.block_bytes() * 1e-9);
  CountRate(state, "GMAC/s", static_cast<double>(2 * heads * dim * kAttentionBlock) * 1e-9);
}

void MergeAttention(benchmark::State& state, const CpuKernels& kernels) {
  constexpr size_t kHeads = 7, kDim = 64;
  Memory<float> floats(2 * (kHeads * kDim + 2 * kHeads));
  FillFloats(floats.data(), floats.size());
  float* next = floats.data();
  AttentionState states[2];
  for (AttentionState& s : states) {
    s = {next, next + kHeads, next + 2 * kHeads};
    next += 2 * kHeads + kHeads * kDim;
  }
  for (auto _ : state) {
    kernels.merge_attention(states[0], kHeads, kDim, states[1]);
    benchmark::ClobberMemory();
  }
  CountRate(state, "Mvalues/s", static_cast<double>(kHeads * kDim) * 1e-6);
}

// ---- Element-wise ----

// Runs body(x, y, count) on rows of `count` floats; x is renewed each time, so that values stay ordinary.
template <typename Kernel>
void ElementWise(benchmark::State& state, size_t count, const Kernel& kernel) {
  Memory<float> first(count), x(count), y(count);
  FillFloats(first.data(), count);
  FillFloats(y.data(), count);
  for (auto _ : state) {
    std::memcpy(x.data(), first.data(), count * sizeof(float));
    kernel(x.data(), y.data(), count);
    benchmark::ClobberMemory();
  }
  CountRate(state, "Mvalues/s", static_cast<double>(count) * 1e-6);
}

// ---- Registration ----

class Registry {
 public:
  explicit Registry(const CpuKernels& kernels) : kernels_(kernels) {}

  void All() {
    for (int i = 0; i < kNumDTypes; ++i) StoredType(static_cast<DType>(i));
    Add("gemm/f32", [&k = kernels_](auto& state) { Gemm(state, k); });
    for (size_t group : {32, 64, 128}) {
      Add("quantize_row/g" + std::to_string(group),
          [&k = kernels_, group](auto& state) { QuantizeRow(state, k, group); });
      for (OffsetType offset : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16})
        Packed({PackedType::kU4, offset, static_cast<uint32_t>(group)});
    }
    Packed({PackedType::kI8, OffsetType::kNone, 32});
    Packed({PackedType::kI8, OffsetType::kNone, 64});
    Attention();
    ElementWiseKernels();
  }

 private:
  void Add(const std::string& name, const Body& body) {
    benchmark::RegisterBenchmark((std::string(kernels_.name) + "/" + name).c_str(), body);
  }

  void StoredType(DType type) {
    const std::string name = GetDTypeInfo(type).name;
    Add("dequantize/" + name, [&k = kernels_, type](auto& state) { Dequantize(state, k, type); });
    Add("gemv/" + name, [&k = kernels_, type](auto& state) { Gemv(state, k, type); });
  }

  void Packed(const PackedLayout& layout) {
    struct Shape {
      size_t rows, cols;
    };
    const std::string type = std::string(PackedTypeName(layout.type)) + "_" +
                             OffsetTypeName(layout.offset) + "_g" +
                             std::to_string(layout.group_size);
    const auto add = [&](Shape shape, size_t x_rows) {
      const std::string name = (x_rows == 1 ? "packed_gemv/" : "packed_gemm/") + type + "/" +
                               std::to_string(shape.rows) + "x" + std::to_string(shape.cols) +
                               (x_rows == 1 ? "" : "/rows:" + std::to_string(x_rows));
      Add(name, [&k = kernels_, layout, shape, x_rows](auto& state) {
        PackedProduct(state, k, layout, shape.rows, shape.cols, x_rows);
      });
    };
    const Shape body[] = {{kHidden, kHidden}, {kIntermediate, kHidden}, {kHidden, kIntermediate}};
    for (const Shape& shape : body) {
      for (size_t x_rows : {size_t{1}, size_t{4}, size_t{16}, kPrefillRows}) add(shape, x_rows);
    }
    add({kVocabulary, kHidden}, 1);
  }

  void Attention() {
    const struct {
      KvType type;
      const char* name;
    } types[] = {
        {KvType::kF32, "f32"}, {KvType::kF16, "f16"}, {KvType::kI8, "int8"}, {KvType::kI4, "int4"}};
    const struct {
      size_t heads, dim;
    } shapes[] = {{7, 64}, {3, 64}, {4, 256}};  // Pocket, SmolLM2, Gemma 3 270M
    for (const auto& k_type : types) {
      for (const auto& v_type : types) {
        for (const auto& shape : shapes) {
          Add(std::string("attend_block/") + k_type.name + "_" + v_type.name + "/" +
                  std::to_string(shape.heads) + "x" + std::to_string(shape.dim),
              [&k = kernels_, k_type, v_type, shape](auto& state) {
                AttendBlock(state, k, k_type.type, v_type.type, shape.heads, shape.dim);
              });
        }
      }
    }
    Add("merge_attention/7x64", [&k = kernels_](auto& state) { MergeAttention(state, k); });
  }

  template <typename Kernel>
  void AddElementWise(const std::string& name, size_t count, const Kernel& kernel) {
    Add(name + "/" + std::to_string(count), [&k = kernels_, count, kernel](auto& state) {
      ElementWise(state, count, [&](float* x, float* y, size_t n) { kernel(k, x, y, n); });
    });
  }

  void ElementWiseKernels() {
    using K = const CpuKernels&;
    constexpr size_t kDim = 64;
    AddElementWise("rotate_groups/g64", kHidden,
                   [](K k, float* x, float*, size_t n) { k.rotate_groups(x, n, 64); });
    AddElementWise("rms_norm", kHidden,
                   [](K k, float* x, float* y, size_t n) { k.rms_norm(x, n, y, 1e-6f, x); });
    AddElementWise("rope_halves", kHidden, [](K k, float* x, float* y, size_t n) {
      k.rope_halves(x, n / kDim, kDim, y, y + kDim / 2);
    });
    AddElementWise("rope_interleaved", kHidden, [](K k, float* x, float* y, size_t n) {
      k.rope_interleaved(x, n / kDim, kDim, y, y + kDim / 2);
    });
    AddElementWise("floats_to_halves", kHidden, [](K k, float* x, float* y, size_t n) {
      k.floats_to_halves(x, n, reinterpret_cast<uint16_t*>(y));
    });
    AddElementWise("silu_mul", kIntermediate,
                   [](K k, float* x, float* y, size_t n) { k.silu_mul(x, y, n); });
    AddElementWise("gelu_mul", kIntermediate,
                   [](K k, float* x, float* y, size_t n) { k.gelu_mul(x, y, n); });
    AddElementWise("add", kHidden, [](K k, float* x, float* y, size_t n) { k.add(x, y, n); });
    AddElementWise("scale", kHidden, [](K k, float* x, float*, size_t n) { k.scale(x, 1.25f, n); });
  }

  const CpuKernels& kernels_;
};

}  // namespace
}  // namespace pocketlm

int main(int argc, char** argv) {
  for (const char* name :
       {"reference", "avx2", "avxvnni", "avx512vnni", "amx", "neon_dotprod", "neon_i8mm"}) {
    const auto kernels = pocketlm::SelectCpuKernels(name);
    if (kernels.ok()) pocketlm::Registry(*kernels.value()).All();
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
