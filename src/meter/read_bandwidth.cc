#include "meter/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "meter/timing.h"

namespace pocketlm {
namespace {

constexpr size_t kPieceBytes = size_t{256} << 10;  // claimed at once
constexpr size_t kLineBytes = 64;

// The sum of the 64-bit words of `bytes`, read as kStreams streams side by side, each line asked for kAhead bytes
// before its use (0: left to the processor's own prefetching) into the cache of level kLevel. A rest below
// kStreams lines is left out.
template <size_t kStreams, size_t kAhead, int kLevel>
uint64_t SumWords(std::span<const std::byte> bytes) {
  constexpr size_t kWords = kLineBytes / sizeof(uint64_t);
  uint64_t lanes[kWords] = {};
  const size_t stream_bytes = bytes.size() / kStreams / kLineBytes * kLineBytes;
  for (size_t at = 0; at < stream_bytes; at += kLineBytes) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* line = bytes.data() + stream * stream_bytes + at;
      if constexpr (kAhead != 0) __builtin_prefetch(line + kAhead, 0, 4 - kLevel);
      uint64_t words[kWords];
      std::memcpy(words, line, sizeof(words));
      for (size_t i = 0; i < kWords; ++i) lanes[i] += words[i];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

// Which way of reading is the fastest depends on the processor: one stream where its own prefetching is good (AMD), four
// where that is the limit (Intel's servers).
using SumFunction = uint64_t (*)(std::span<const std::byte>);
constexpr SumFunction kPatterns[] = {SumWords<1, 0, 1>, SumWords<1, 4096, 2>, SumWords<4, 1024, 1>};

// Bytes per second of the median pass.
double MedianRate(ThreadPool* pool, std::span<const std::byte> bytes, SumFunction sum_words,
                  int repeats) {
  std::atomic<uint64_t> sink{0};  // keeps the loads alive
  std::vector<double> rates;
  for (int pass = 0; pass <= repeats; ++pass) {
    const Stopwatch watch;
    const size_t pieces = (bytes.size() - 1) / kPieceBytes + 1;
    pool->ParallelFor(pieces, 1, [&](size_t begin, size_t, int) {
      const size_t at = begin * kPieceBytes;
      sink += sum_words(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)));
    });
    if (pass > 0) rates.push_back(static_cast<double>(bytes.size()) / (watch.ms() / 1e3));
  }
  return Summarize(std::move(rates)).median;
}

double BestRate(ThreadPool* pool, std::span<const std::byte> bytes, int repeats) {
  double best = 0.0;
  for (const SumFunction pattern : kPatterns)
    best = std::max(best, MedianRate(pool, bytes, pattern, repeats));
  return best;
}

// Every page differs: the system could share equal ones.
void Fill(ThreadPool* pool, AlignedBuffer<std::byte>* buffer) {
  const size_t pieces = (buffer->size() - 1) / kPieceBytes + 1;
  pool->ParallelFor(pieces, 1, [&](size_t begin, size_t, int) {
    const size_t at = begin * kPieceBytes;
    const size_t count = std::min(kPieceBytes, buffer->size() - at);
    for (size_t i = 0; i < count; ++i)
      buffer->data()[at + i] = static_cast<std::byte>(i ^ i >> 12 ^ begin);
  });
}

}  // namespace

Result<ReadBandwidth> MeasureReadBandwidth(const std::string& path,
                                           const ReadBandwidthOptions& options) {
  if (options.num_threads < 1 || options.num_threads > 1024 || options.buffer_bytes < 1 ||
      options.repeats < 1) {
    return InvalidArgument("bandwidth: expected 1 to 1024 threads, a buffer and a pass, got " +
                           std::to_string(options.num_threads) + " threads, " +
                           std::to_string(options.buffer_bytes) + " bytes, " +
                           std::to_string(options.repeats) + " passes");
  }
  std::unique_ptr<ThreadPool> pool;
  try {
    pool = std::make_unique<ThreadPool>(options.num_threads);
  } catch (const std::exception& error) {
    return Internal("bandwidth: " + std::to_string(options.num_threads) +
                    " threads: " + error.what());
  }
  ReadBandwidth out;
  if (!path.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    if (!file.bytes().empty())
      out.file_bytes_s = BestRate(pool.get(), file.bytes(), options.repeats);
  }
  POCKETLM_ASSIGN_OR_RETURN(
      auto buffer, AlignedBuffer<std::byte>::Allocate(options.buffer_bytes, "bandwidth buffer"));
  Fill(pool.get(), &buffer);
  out.buffer_bytes_s = BestRate(pool.get(), {buffer.data(), buffer.size()}, options.repeats);
  return out;
}

}  // namespace pocketlm
