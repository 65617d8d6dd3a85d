// The op contract between the decoder and whatever computes: a CPU instruction set now, a GPU later.
//
// All activations are float, row-major, the last dimension contiguous; a "row" is one token. No op
// allocates per call in steady state, and none checks its arguments: the model loader guarantees the
// shapes once.
//
// Determinism: the result of a row does not depend on the other rows of the call, on the number of threads,
// or on the instruction set. A dot product runs in 16 lanes (element i in lane i mod 16, ascending, one
// fused multiply-add each), then the lanes are summed by the fixed tree
// l[i] += l[i+8]; l[i] += l[i+4]; l[i] += l[i+2]; l[0] + l[1]. Sums (norms, softmax) use the same lanes.
// exp is our own polynomial (SiLU and GELU use it alone), division and square root are exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/packed_layout.h"
#include "base/status.h"

namespace pocketlm {

// A weight matrix in a mapped file: `rows` outputs × `cols` inputs, packed or in rows one after the other.
struct WeightMatrix {
  DType type = DType::kF32;  // of plain rows
  size_t rows = 0;
  size_t cols = 0;
  // rows × RowBytes(type, cols) bytes; not owned; aligned to 2 at least; null if packed
  const std::byte* data = nullptr;
  std::optional<PackedMatrix> packed;

  size_t row_bytes() const { return static_cast<size_t>(*RowBytes(type, cols)); }
};

enum class Activation { kSilu, kGeluTanh };

enum class KvType : uint8_t { kF32, kF16 };

inline constexpr size_t KvValueBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

// The cached keys and values of one layer: [num_kv_heads, capacity, head_dim] each.
struct KvLayer {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  std::byte* k = nullptr;  // not owned, 64-byte aligned
  std::byte* v = nullptr;
  size_t capacity = 0;  // positions
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
};

struct AttentionArgs {
  const float* q = nullptr;  // [rows, num_heads, head_dim], rotated
  float* out = nullptr;      // [rows, num_heads, head_dim]; aliases no input
  size_t rows = 0;
  size_t num_heads = 0;  // a multiple of kv->num_kv_heads
  // Absolute position of row 0. The K and V of all rows are already in the cache.
  size_t first_position = 0;
  size_t window = 0;   // a row sees at most this many positions, itself included; 0 = all
  float scale = 1.0f;  // multiplies q·k
  const KvLayer* kv = nullptr;
};

// How pairs of a head are rotated: (i, i + head_dim/2) as Hugging Face stores Q and K, or (2i, 2i + 1)
// as GGUF files of the llama type store them.
enum class RopeLayout { kHalves, kInterleaved };

// Not thread-safe: one call at a time (sessions that share a backend take turns; see src/runtime).
class Backend {
 public:
  virtual ~Backend() = default;

  // "reference" or "avx2".
  virtual const char* name() const = 0;
  virtual int num_threads() const = 0;

  // out[r] = scale * table[ids[r]], [ids.size(), table.cols]. Every id is in [0, table.rows).
  virtual void Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
                     float* out) = 0;

  // y[r, n] = x[r, n] / sqrt(mean(x[r]²) + eps) * weight[n] for `rows` rows of `cols`. y may be x.
  virtual void RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
                       float* y) = 0;

  // y[r, n] = Σ_k x[r, k] · w[n, k]: x [rows, w.cols], y [rows, w.rows]; y aliases no input.
  virtual void MatMul(const WeightMatrix& w, const float* x, size_t rows, float* y) = 0;

  // Rotates x [rows, heads, head_dim] in place; cos and sin are [rows, head_dim / 2].
  virtual void Rope(float* x, size_t rows, size_t heads, size_t head_dim, const float* cos,
                    const float* sin, RopeLayout layout) = 0;

  // Stores k and v, [rows, num_kv_heads, head_dim] each, at positions first_position … of the cache.
  // Requires first_position + rows ≤ kv.capacity.
  virtual void AppendKv(const KvLayer& kv, const float* k, const float* v, size_t rows,
                        size_t first_position) = 0;

  // Causal attention of the rows over the cache. Keys are read in blocks at absolute multiples of 256
  // positions, each block's softmax merged in ascending order (flash style), so the result of a row does
  // not depend on how a prompt was cut into chunks.
  virtual void Attention(const AttentionArgs& args) = 0;

  // gate[i] = act(gate[i]) * up[i] for `count` values.
  virtual void GatedActivation(Activation activation, float* gate, const float* up,
                               size_t count) = 0;

  // y[i] += x[i].
  virtual void Add(float* y, const float* x, size_t count) = 0;
};

// The best CPU backend of this machine, or the one that environment POCKETLM_CPU names
// (reference | avx2); an unknown or unavailable name is an error. `num_threads` ≥ 1.
Result<std::unique_ptr<Backend>> CreateCpuBackend(int num_threads);

// One row of any type as floats, by the reference path: dst[0, values). Used by loaders and importers.
// Requires RowBytes(type, values).
void DequantizeRow(DType type, const std::byte* src, size_t values, float* dst);

}  // namespace pocketlm
