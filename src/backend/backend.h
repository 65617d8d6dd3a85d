// The op contract between the decoder and whatever computes: a CPU instruction set now, a GPU later.
//
// All activations are float, row-major, the last dimension contiguous; a "row" is one token. No op
// allocates, and none checks its arguments: the model loader guarantees the
// shapes once.
//
// Packed weights (base/packed_layout.h) are multiplied with activations that the backend quantizes to int8, per
// row and group; plain weights, and all weights if BackendOptions::float_activations is set, with floats.
//
// Determinism: the result of a row does not depend on the other rows of the call, on the number of threads,
// or on the instruction set. backend/cpu/kernels.h spells out the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/kv_layout.h"
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

// The cached keys and values of one layer: for each key-value head one plane of codes and, for quantized types,
// one of scales, laid out as kv_layout.h says.
struct KvLayer {
  KvType k_type = KvType::kF16;
  KvType v_type = KvType::kF16;
  std::byte* k =
      nullptr;  // [num_kv_heads][capacity] codes; not owned, 64-byte aligned, as the next three
  std::byte* v = nullptr;
  uint16_t* k_scales = nullptr;
  uint16_t* v_scales = nullptr;
  size_t capacity = 0;  // positions, a multiple of kKvTile
  size_t num_kv_heads = 0;
  size_t head_dim = 0;
};

// How pairs of a head are rotated: (i, i + head_dim/2) as Hugging Face stores Q and K, or (2i, 2i + 1)
// as GGUF files of the llama type store them.
enum class RopeLayout { kHalves, kInterleaved };

// `rows` rows that enter a matrix product, normalized first if norm_weight is set:
// x[r, n] / sqrt(mean(x[r]²) + norm_eps) * norm_weight[n].
struct MatMulInput {
  const float* x = nullptr;
  size_t rows = 0;
  const float* norm_weight = nullptr;  // [cols]
  float norm_eps = 0.0f;
};

// One product of several with the same input: y [rows, w->rows]; y aliases no input.
struct MatMulOutput {
  const WeightMatrix* w = nullptr;
  float* y = nullptr;
};

// What happens between the projections and attention.
struct RopeAppendArgs {
  float* q = nullptr;  // [rows, num_heads, head_dim]: normalized and rotated in place
  float* k = nullptr;  // [rows, num_kv_heads, head_dim]: normalized and rotated, then stored
  float* v = nullptr;  // as k, stored; k and v hold nothing of use afterwards
  size_t rows = 0;
  size_t num_heads = 0;
  const float* q_norm = nullptr;  // [head_dim], RMSNorm over each head; null for none, as k_norm
  const float* k_norm = nullptr;
  float norm_eps = 0.0f;
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  RopeLayout layout = RopeLayout::kHalves;
  // Row r goes to position first_position + r. Requires first_position + rows ≤ kv->capacity.
  const KvLayer* kv = nullptr;
  size_t first_position = 0;
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

// The largest sizes that a model brings.
struct BackendLimits {
  size_t rows = 1;       // of one call
  size_t cols = 0;       // inputs of a matrix, and outputs of a gated product
  size_t num_heads = 1;  // of attention, exactly, as the next two
  size_t num_kv_heads = 1;
  size_t head_dim = 0;   // at most 1024
  size_t positions = 0;  // that a row of attention sees
};

// Not thread-safe: one call at a time (sessions that share a backend take turns; see src/runtime).
class Backend {
 public:
  virtual ~Backend() = default;

  // The instruction set: "reference", "avx2", "avxvnni", "avx512vnni", "amx", "neon_dotprod", "neon_i8mm".
  virtual const char* name() const = 0;
  virtual int num_threads() const = 0;

  // Makes room for the ops below within these limits; without it they must not be called. What earlier calls made
  // room for in rows, cols and positions stays, as long as the heads are the same. kOutOfMemory.
  virtual Status Reserve(const BackendLimits& limits) = 0;

  // out[r] = scale * table[ids[r]], [ids.size(), table.cols]. Every id is in [0, table.rows).
  virtual void Embed(const WeightMatrix& table, std::span<const int32_t> ids, float scale,
                     float* out) = 0;

  // y[r, n] = x[r, n] / sqrt(mean(x[r]²) + eps) * weight[n] for `rows` rows of `cols`. y may be x.
  virtual void RmsNorm(const float* x, size_t rows, size_t cols, const float* weight, float eps,
                       float* y) = 0;

  // For each output y[r, n] = Σ_k x[r, k] · w[n, k], or y += that. All weights have the same cols.
  virtual void MatMul(const MatMulInput& input, std::span<const MatMulOutput> outputs,
                      bool accumulate) = 0;

  // y[r, n] = act(Σ_k x[r, k] · gate[n, k]) * Σ_k x[r, k] · up[n, k]; gate and up have the same shape.
  virtual void GatedMatMul(const MatMulInput& input, const WeightMatrix& gate,
                           const WeightMatrix& up, Activation activation, float* y) = 0;

  virtual void RopeAppend(const RopeAppendArgs& args) = 0;

  // Causal attention of the rows over the cache. Keys are read in blocks at absolute multiples of 256
  // positions, each block's softmax merged in ascending order (flash style), so the result of a row does
  // not depend on how a prompt was cut into chunks.
  virtual void Attention(const AttentionArgs& args) = 0;

  // y[i] += x[i].
  virtual void Add(float* y, const float* x, size_t count) = 0;
};

struct BackendOptions {
  int num_threads = 1;
  bool float_activations =
      false;  // packed weights, too, meet float activations; slow, for accuracy studies
};

// The best CPU backend of this machine, or the one that environment POCKETLM_CPU names (see Backend::name); an
// unknown or unavailable name is an error, as is num_threads < 1.
Result<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options);

// Bytes of scratch that a backend holds after Reserve(limits).
uint64_t CpuBackendScratchBytes(const BackendOptions& options, const BackendLimits& limits);

// One row of any type as floats, by the reference path: dst[0, values). Used by loaders and importers.
// Requires RowBytes(type, values).
void DequantizeRow(DType type, const std::byte* src, size_t values, float* dst);

// One row of packed weights as floats: dst[0, w.cols).
void UnpackRow(const PackedMatrix& w, size_t row, float* dst);

}  // namespace pocketlm
