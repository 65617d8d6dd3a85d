// How fast this machine reads memory: the bound of decoding.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace pocketlm {

struct ReadBandwidth {
  double file_bytes_s = 0.0;    // the mapped file, in the page cache; 0 if none was given
  double buffer_bytes_s = 0.0;  // an anonymous buffer
  double best() const { return file_bytes_s > buffer_bytes_s ? file_bytes_s : buffer_bytes_s; }
};

struct ReadBandwidthOptions {
  int num_threads = 1;                      // 1 … 1,024
  size_t buffer_bytes = size_t{512} << 20;  // ≥ 1
  int repeats = 5;                          // ≥ 1, after one pass that makes all pages resident
};

// Reads the file `path` (empty: no file) and the buffer with `num_threads` threads that claim pieces in turn; medians
// of `repeats` passes. The loops sum 64-bit words in three ways (one forward stream, plain and prefetched; four streams
// side by side), and the fastest counts: a bound for kernels, not a picture of one.
// Allocates the buffer: run it in a process of its own where memory is measured too.
// kInvalidArgument, kNotFound, kIoError, kOutOfMemory.
Result<ReadBandwidth> MeasureReadBandwidth(const std::string& path,
                                           const ReadBandwidthOptions& options);

}  // namespace pocketlm
