// CPU kernels: bytes give shapes and data; every table that this CPU can run must give the bits of the reference.
//
// The first byte picks a kernel, the next ones shapes; what follows is the data, repeated as needed. Outputs lie in
// memory of their exact size, so that the sanitizer sees what is written or read beyond.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

#include "backend/cpu/kernels.h"
#include "base/cpu_info.h"

namespace {

using namespace pocketlm;

std::vector<const CpuKernels*> UsableTables() {
  std::vector<const CpuKernels*> out;
  [[maybe_unused]] const CpuFeatures& cpu = GetCpuFeatures();
#if defined(POCKETLM_HAVE_X86)
  const bool avx512 = cpu.avx2_fma_f16c && cpu.avx512_vnni;
  if (cpu.avx2_fma_f16c) out.push_back(&kAvx2Kernels);
  if (cpu.avx2_fma_f16c && cpu.avx_vnni) out.push_back(&kAvxVnniKernels);
  if (avx512) out.push_back(&kAvx512VnniKernels);
  if (avx512 && cpu.amx_int8) out.push_back(&kAmxKernels);
#endif
#if defined(POCKETLM_HAVE_NEON)
  if (cpu.neon_dotprod) out.push_back(&kNeonDotprodKernels);
  if (cpu.neon_dotprod && cpu.neon_i8mm) out.push_back(&kNeonI8mmKernels);
#endif
  return out;
}

// Exactly `count` values at a multiple of 64 bytes.
template <typename T>
class Memory {
 public:
  explicit Memory(size_t count)
      : count_(count),
        data_(static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64}))) {}
  Memory(const Memory& other) : Memory(other.count_) {
    std::memcpy(data_, other.data_, count_ * sizeof(T));
  }
  Memory& operator=(const Memory&) = delete;
  ~Memory() { ::operator delete (data_, std::align_val_t{64}); }

  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t count_;
  T* data_;
};

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t Byte() { return size_ == 0 ? 0 : data_[at_++ % size_]; }
  size_t Between(size_t low, size_t high) { return low + Byte() % (high - low + 1); }
  size_t OneOf(std::initializer_list<size_t> values) {
    return values.begin()[Byte() % values.size()];
  }

  // Raw bits: any float, infinite or NaN ones too.
  template <typename T>
  Memory<T> Bits(size_t count) {
    Memory<T> out(count);
    auto* bytes = reinterpret_cast<uint8_t*>(out.data());
    for (size_t i = 0; i < count * sizeof(T); ++i) bytes[i] = Byte();
    return out;
  }
  // Raw bits, or values of ordinary size.
  Memory<float> Floats(size_t count) {
    if (Byte() % 4 == 0) return Bits<float>(count);
    Memory<float> out(count);
    for (size_t i = 0; i < count; ++i) {
      const int high = Byte(), low = Byte();
      out[i] = static_cast<float>(high * 256 + low - 32768) * 0x1p-13f;
    }
    return out;
  }
  // Raw bits, or halves between 2^-14 and 2^2 of either sign.
  Memory<uint16_t> Halves(size_t count) {
    if (Byte() % 4 == 0) return Bits<uint16_t>(count);
    Memory<uint16_t> out(count);
    for (size_t i = 0; i < count; ++i) {
      const int high = Byte(), low = Byte();
      out[i] = static_cast<uint16_t>((high & 0xBF) << 8 | low | 0x0400);
    }
    return out;
  }
  // Codes in -127 … 127.
  Memory<int8_t> Codes(size_t count) {
    Memory<int8_t> out = Bits<int8_t>(count);
    for (size_t i = 0; i < count; ++i) out[i] = std::max<int8_t>(out[i], -127);
    return out;
  }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

void Require(bool condition) {
  if (!condition) std::abort();
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

void RequireSame(const Memory<float>& got, const Memory<float>& want) {
  for (size_t i = 0; i < want.size(); ++i) Require(SameBits(got[i], want[i]));
}

template <typename T>
void RequireEqual(const Memory<T>& got, const Memory<T>& want) {
  Require(std::equal(want.data(), want.data() + want.size(), got.data()));
}

// Calls body for the reference first, then for every table; body returns what it computed, which `compare` holds
// against the reference's.
template <typename Body, typename Compare>
void ForEachTable(const Body& body, const Compare& compare) {
  static const std::vector<const CpuKernels*> tables = UsableTables();
  const auto want = body(kReferenceKernels);
  for (const CpuKernels* kernels : tables) compare(body(*kernels), want);
}

// Codes of rows with sums that belong to them; scales of any size.
struct Rows {
  Rows(Input* in, size_t rows, size_t cols, size_t group)
      : codes(in->Codes(rows * cols)),
        scales(in->Floats(rows * cols / group)),
        sums(scales.size()),
        code_sums(scales.size()) {
    for (size_t g = 0; g < scales.size(); ++g) {
      code_sums[g] = 0;
      for (size_t i = 0; i < group; ++i) code_sums[g] += codes[g * group + i];
      sums[g] = scales[g] * static_cast<float>(code_sums[g]);
    }
  }
  QuantizedRows view() const {
    return {codes.data(), scales.data(), sums.data(), code_sums.data()};
  }
  Memory<int8_t> codes;
  Memory<float> scales, sums;
  Memory<int32_t> code_sums;
};

void FuzzQuantize(Input* in) {
  const size_t group = 4 * in->Between(1, 64), groups = in->Between(1, 5);
  const Memory<float> x = in->Floats(group * groups);
  struct Out {
    Memory<int8_t> codes;
    Memory<float> scales, sums;
    Memory<int32_t> code_sums;
  };
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Out out{Memory<int8_t>(x.size()), Memory<float>(groups), Memory<float>(groups),
                Memory<int32_t>(groups)};
        kernels.quantize_row(x.data(), x.size(), group, out.codes.data(), out.scales.data(),
                             out.sums.data(), out.code_sums.data());
        return out;
      },
      [](const Out& got, const Out& want) {
        RequireEqual(got.codes, want.codes);
        RequireSame(got.scales, want.scales);
        RequireSame(got.sums, want.sums);
        RequireEqual(got.code_sums, want.code_sums);
      });
}

void FuzzProduct(Input* in) {
  PackedLayout layout;
  layout.group_size = static_cast<uint32_t>(in->OneOf({32, 64, 128}));
  const size_t kind = in->Between(0, 3);
  layout.type = kind == 3 ? PackedType::kI8 : PackedType::kU4;
  layout.offset = kind == 3 ? OffsetType::kNone : static_cast<OffsetType>(kind);
  PackedMatrix w;
  w.layout = layout;
  w.rows = in->Between(1, 48);
  w.cols = layout.group_size * in->Between(1, 5);
  const PackedPlanes planes = *PlaneBytes(layout, w.rows, w.cols);
  const Memory<int8_t> codes = kind == 3 ? in->Codes(planes.codes) : in->Bits<int8_t>(planes.codes);
  const Memory<uint16_t> scales = in->Halves(planes.scales / 2);
  const Memory<uint16_t> offsets = layout.offset == OffsetType::kZero4
                                       ? in->Bits<uint16_t>(planes.offsets / 2)
                                       : in->Halves(planes.offsets / 2);
  w.codes = reinterpret_cast<const std::byte*>(codes.data());
  w.scales = reinterpret_cast<const std::byte*>(scales.data());
  if (offsets.size() > 0) w.offsets = reinterpret_cast<const std::byte*>(offsets.data());

  PackedProductArgs args;
  args.w = &w;
  args.tile_begin = in->Byte() % w.tiles();
  args.tile_end = in->Between(args.tile_begin + 1, w.tiles());
  args.x_rows = in->OneOf({1, 1, 2, 3, 5, 8, 16, 17, 33});
  args.accumulate = in->Byte() % 2 == 0;
  const Rows x(in, args.x_rows, w.cols, layout.group_size);
  args.x = x.view();
  const size_t outputs = std::min(args.tile_end * kTileRows, w.rows) - args.tile_begin * kTileRows;
  args.y_stride = outputs + in->Between(0, 3);
  const Memory<float> before = in->Floats((args.x_rows - 1) * args.y_stride + outputs);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> y(before);
        const Memory<std::byte> panel(PackedPanelBytes(w.cols));
        PackedProductArgs a = args;
        a.y = y.data();
        if (a.x_rows > 1) a.panel = panel.data();
        (a.x_rows == 1 ? kernels.packed_gemv : kernels.packed_gemm)(a);
        return y;
      },
      RequireSame);
}

struct State {
  State(size_t heads, size_t dim) : max(heads), sum(heads), out(heads * dim) {}
  State(Input* in, size_t heads, size_t dim)
      : max(in->Floats(heads)), sum(in->Floats(heads)), out(in->Floats(heads * dim)) {}
  AttentionState view() const { return {max.data(), sum.data(), out.data()}; }
  Memory<float> max, sum, out;
};

// The maximum of a head that is NaN may be anything, a zero of either sign.
void RequireSameState(const State& got, const State& want) {
  RequireSame(got.sum, want.sum);
  RequireSame(got.out, want.out);
  for (size_t h = 0; h < want.max.size(); ++h)
    Require(std::isnan(want.sum[h]) || got.max[h] == want.max[h]);
}

size_t FittingDim(Input* in, KvType k_type, KvType v_type) {
  const size_t dim = in->OneOf({8, 12, 16, 20, 24, 32, 40, 64, 80, 96, 100, 128, 192, 256});
  return KvTypeFits(k_type, dim) && KvTypeFits(v_type, dim) ? dim : 64;
}

// The planes of keys or values; codes of -128, which are never stored, are left out.
Memory<uint16_t> CacheCodes(Input* in, KvType type, size_t bytes, bool is_key) {
  if (type == KvType::kF16) return in->Halves(bytes / 2);
  if (type == KvType::kI4) return in->Bits<uint16_t>(bytes / 2);
  Memory<uint16_t> out(bytes / 2);
  if (type == KvType::kF32) {
    std::memcpy(out.data(), in->Floats(bytes / 4).data(), bytes);
    return out;
  }
  const Memory<int8_t> codes = in->Codes(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    const int code = codes[i] + (is_key ? 128 : 0);
    reinterpret_cast<uint8_t*>(out.data())[i] = static_cast<uint8_t>(code);
  }
  return out;
}

void FuzzAttend(Input* in) {
  AttendBlockArgs args;
  args.k_type = static_cast<KvType>(in->Between(0, 3));
  args.v_type = static_cast<KvType>(in->Between(0, 3));
  args.heads = in->Between(1, 9);
  args.head_dim = FittingDim(in, args.k_type, args.v_type);
  args.end = in->Byte() % 4 == 0 ? in->Between(1, 255) + 1 : in->Between(1, 48);
  args.begin = in->Byte() % args.end;
  const size_t positions = (args.end + kKvTile - 1) / kKvTile * kKvTile;
  const Memory<uint16_t> k =
      CacheCodes(in, args.k_type, positions * KvCodeBytes(args.k_type, args.head_dim), true);
  const Memory<uint16_t> v =
      CacheCodes(in, args.v_type, positions * KvCodeBytes(args.v_type, args.head_dim), false);
  const Memory<uint16_t> k_scales =
      in->Halves(positions * KvScaleBytes(args.k_type, args.head_dim) / 2);
  const Memory<uint16_t> v_scales =
      in->Halves(positions * KvScaleBytes(args.v_type, args.head_dim) / 2);
  args.k = reinterpret_cast<const std::byte*>(k.data());
  args.v = reinterpret_cast<const std::byte*>(v.data());
  if (k_scales.size() > 0) args.k_scales = k_scales.data();
  if (v_scales.size() > 0) args.v_scales = v_scales.data();
  const Memory<float> q = in->Floats(args.heads * args.head_dim);
  const Rows codes(in, args.heads, args.head_dim, KvGroup(args.head_dim));
  if (KvIsQuantized(args.k_type)) {
    args.q_codes = codes.codes.data();
    args.q_scales = codes.scales.data();
    args.q_code_sums = codes.code_sums.data();
  } else {
    args.q = q.data();
  }
  ForEachTable(
      [&](const CpuKernels& kernels) {
        State state(args.heads, args.head_dim);
        kernels.attend_block(args, state.view());
        return state;
      },
      RequireSameState);
}

void FuzzMerge(Input* in) {
  const size_t heads = in->Between(1, 9), dim = in->Between(1, 130);
  const State block(in, heads, dim), before(in, heads, dim);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        State into(before);
        kernels.merge_attention(block.view(), heads, dim, into.view());
        return into;
      },
      RequireSameState);
}

void FuzzRotate(Input* in) {
  const size_t group = size_t{1} << in->Between(0, 8);
  const Memory<float> x = in->Floats(group * in->Between(1, 5));
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> y(x);
        kernels.rotate_groups(y.data(), y.size(), group);
        return y;
      },
      RequireSame);
}

// A stored row of any type: raw bytes, as a file may hold them.
void FuzzRow(Input* in) {
  const auto type = static_cast<DType>(in->Between(0, kNumDTypes - 1));
  const DTypeInfo& info = GetDTypeInfo(type);
  const size_t blocks = info.block_values == 1 ? in->Between(1, 200) : in->Between(1, 5);
  const size_t cols = blocks * info.block_values, rows = in->Between(1, 4);
  const size_t row_bytes = static_cast<size_t>(*RowBytes(type, cols));
  const Memory<std::byte> w = in->Bits<std::byte>(rows * row_bytes);
  const Memory<float> x = in->Floats(cols);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> row(cols);
        kernels.dequantize(type, w.data(), cols, row.data());
        return row;
      },
      RequireSame);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> y(rows);
        kernels.gemv(type, w.data(), rows, cols, x.data(), y.data());
        return y;
      },
      RequireSame);
}

void FuzzGemm(Input* in) {
  const size_t panel_rows = in->Between(1, 7), x_rows = in->Between(1, 11);
  const size_t cols = in->Between(1, 200), stride = panel_rows + in->Between(0, 2);
  const Memory<float> panel = in->Floats(panel_rows * cols), x = in->Floats(x_rows * cols);
  const Memory<float> before = in->Floats((x_rows - 1) * stride + panel_rows);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> y(before);
        kernels.gemm(panel.data(), panel_rows, cols, x.data(), x_rows, y.data(), stride);
        return y;
      },
      RequireSame);
}

void FuzzElementwise(Input* in) {
  const size_t kind = in->Between(0, 6), half = in->Between(1, 70), count = 2 * half;
  const Memory<float> x = in->Floats(count), other = in->Floats(count);
  ForEachTable(
      [&](const CpuKernels& kernels) {
        Memory<float> y(x);
        switch (kind) {
          case 0:
            kernels.rms_norm(x.data(), count, other.data(), 1e-6f, y.data());
            break;
          case 1:
            kernels.rope_halves(y.data(), 1, count, other.data(), other.data() + half);
            break;
          case 2:
            kernels.rope_interleaved(y.data(), 1, count, other.data(), other.data() + half);
            break;
          case 3:
            kernels.silu_mul(y.data(), other.data(), count);
            break;
          case 4:
            kernels.gelu_mul(y.data(), other.data(), count);
            break;
          case 5:
            kernels.add(y.data(), other.data(), count);
            break;
          default:
            kernels.scale(y.data(), other[0], count);
        }
        return y;
      },
      RequireSame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 65536) return 0;
  Input in(data, size);
  switch (in.Byte() % 8) {
    case 0:
      FuzzQuantize(&in);
      break;
    case 1:
    case 2:
      FuzzProduct(&in);
      break;
    case 3:
    case 4:
      FuzzAttend(&in);
      break;
    case 5:
      in.Byte() % 2 == 0 ? FuzzMerge(&in) : FuzzRotate(&in);
      break;
    case 6:
      in.Byte() % 2 == 0 ? FuzzRow(&in) : FuzzGemm(&in);
      break;
    default:
      FuzzElementwise(&in);
  }
  return 0;
}
