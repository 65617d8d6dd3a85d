// The memory of this process, as the system counts it.
#pragma once

#include <cstdint>
#include <string_view>

namespace pocketlm {

// Bytes. Zeros where the system does not tell.
struct MemoryUsage {
  uint64_t peak_rss_bytes = 0;   // VmHWM: high-water mark of the resident set
  uint64_t anonymous_bytes = 0;  // RssAnon: resident now, not backed by a file
  uint64_t file_bytes = 0;  // RssFile: resident pages of mapped files now, the weights above all
  uint64_t swap_bytes = 0;  // VmSwap: anonymous memory that was swapped out
};

// Source  /proc/self/status (proc(5)). The kernel sums the counters of its CPUs lazily: a figure may be off by
//         some hundred kB.
MemoryUsage ReadMemoryUsage();

namespace internal {
// The figures of a text in the form of /proc/self/status; lines that are missing or malformed count as zero.
MemoryUsage ParseProcStatus(std::string_view text);
}  // namespace internal

}  // namespace pocketlm
