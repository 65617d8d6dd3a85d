#include "meter/machine.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/cpu_info.h"

namespace pocketlm {
namespace {

constexpr std::string_view kFlags[] = {
    "sse4_2",   "avx",      "f16c",        "fma",         "avx2",        "avx_vnni", "avx512f",
    "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8",
    "asimd",    "asimdhp",  "asimddp",     "i8mm",        "bf16",        "sve",      "sve2"};

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// The value of the first line "name : value" of one of two names; empty if there is none.
std::string_view Value(std::string_view text, std::string_view name, std::string_view other_name) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trimmed(line.substr(0, colon));
    if (key == name || key == other_name) return Trimmed(line.substr(colon + 1));
  }
  return {};
}

bool HasWord(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' '))
      return true;
  }
  return false;
}

}  // namespace

namespace internal {
Machine ParseCpuInfo(std::string_view text) {
  Machine machine;
  machine.cpu_model = std::string(Value(text, "model name", "Hardware"));
  const std::string_view flags = Value(text, "flags", "Features");
  for (const std::string_view flag : kFlags) {
    if (HasWord(flags, flag)) machine.cpu_flags.emplace_back(flag);
  }
  return machine;
}
}  // namespace internal

Machine DescribeMachine() {
  std::ifstream info("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(info)), std::istreambuf_iterator<char>());
  Machine machine = internal::ParseCpuInfo(text);
  machine.cpus = AvailableCpus();
  return machine;
}

}  // namespace pocketlm
