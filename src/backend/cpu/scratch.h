// The memory that the ops of the CPU backend share, planned by the sizes of the model.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/aligned_buffer.h"
#include "base/status.h"

namespace pocketlm {

class Scratch {
 public:
  // Rows of a float panel at most.
  static constexpr size_t kPanelRows = 64;
  // Outputs of one row that a thread keeps aside at most.
  static constexpr size_t kMinOutputs = 512;

  // What Reserve allocates.
  static uint64_t Bytes(int num_threads, const BackendLimits& limits);

  // Grows to `limits`, never shrinks. kOutOfMemory.
  Status Reserve(int num_threads, const BackendLimits& limits);

  // Quantized rows: [rows, cols] codes, [rows, cols / 32] of the others.
  int8_t* codes() { return reinterpret_cast<int8_t*>(At(codes_)); }
  float* scales() { return reinterpret_cast<float*>(At(scales_)); }
  float* sums() { return reinterpret_cast<float*>(At(sums_)); }
  int32_t* code_sums() { return reinterpret_cast<int32_t*>(At(code_sums_)); }
  float* normed() { return reinterpret_cast<float*>(At(normed_)); }  // [rows, cols]
  float* gated() { return reinterpret_cast<float*>(At(gated_)); }    // [rows, cols]

  // Of one thread: unpacked weights, one row, and max(rows · kPanelRows, kMinOutputs) outputs.
  std::byte* panel(int thread) { return At(threads_ + static_cast<size_t>(thread) * stride_); }
  float* row(int thread) { return reinterpret_cast<float*>(panel(thread) + row_); }
  float* outputs(int thread) { return reinterpret_cast<float*>(panel(thread) + outputs_); }

 private:
  struct Plan;
  std::byte* At(size_t offset) { return memory_.data() + offset; }

  AlignedBuffer<std::byte> memory_;
  BackendLimits limits_{.rows = 0, .cols = 0};
  size_t codes_ = 0, scales_ = 0, sums_ = 0, code_sums_ = 0, normed_ = 0, gated_ = 0, threads_ = 0;
  size_t stride_ = 0, row_ = 0, outputs_ = 0;
};

}  // namespace pocketlm
