#include "bench_report.h"

#include "progress.h"

namespace pocketlm::cli {
namespace {

std::string Bytes(const Json& object, const char* key) {
  return HumanBytes(object.value(key, 0.0));
}

std::string Rate(double bytes_s) { return Printf("%.1f GB/s", bytes_s / 1e9); }

std::string HeadLines(const Json& report) {
  std::string flags;
  for (const Json& flag : report["cpu_flags"]) flags += " " + flag.get<std::string>();
  std::string text =
      Printf("model     %s, %s, hash %s\n", report["model"].get<std::string>().c_str(),
             Bytes(report, "file_bytes").c_str(), report["model_hash"].get<std::string>().c_str());
  text += Printf("machine   %s, %d CPUs, kernels %s;%s\n",
                 report["cpu_model"].get<std::string>().c_str(), report["cpus"].get<int>(),
                 report["cpu_variant"].get<std::string>().c_str(), flags.c_str());
  text += Printf(
      "run       %s, pocketlm %s, keys %s, values %s, activations %s, chunk %u; 1 warm-up + %u "
      "runs, "
      "median (min-max)\n",
      report["date"].get<std::string>().c_str(), report["version"].get<std::string>().c_str(),
      report["kv_k"].get<std::string>().c_str(), report["kv_v"].get<std::string>().c_str(),
      report["activations"].get<std::string>().c_str(), report["chunk"].get<uint32_t>(),
      report["repeat"].get<uint32_t>());
  return text;
}

std::string ResultLine(const Json& row) {
  const Json& rate = row["tok_s"];
  const std::string spread =
      Printf("(%.1f-%.1f)", rate["min"].get<double>(), rate["max"].get<double>());
  std::string line =
      Printf("%-8s %7u %7u %8d %10.1f %-19s", row["phase"].get<std::string>().c_str(),
             row["tokens"].get<uint32_t>(), row["depth"].get<uint32_t>(), row["threads"].get<int>(),
             rate["median"].get<double>(), spread.c_str());
  if (row.contains("bandwidth_fraction")) {
    line += Printf(" %8s/tok %5.1f %% of bandwidth, sampling %.1f %%, sync %.1f %%",
                   HumanBytes(row["weight_bytes_per_token"].get<double>() +
                              row["kv_bytes_per_token"].get<double>())
                       .c_str(),
                   100 * row["bandwidth_fraction"].get<double>(),
                   100 * row["sampling_fraction"].get<double>(),
                   100 * row["sync_fraction"].get<double>());
  }
  while (line.back() == ' ') line.pop_back();
  return line + "\n";
}

std::string ProfileLines(const Json& row) {
  if (!row.contains("profile")) return "";
  std::string text = Printf("\nprofile of %s, %u tokens at depth %u, %d threads\n",
                            row["phase"].get<std::string>().c_str(), row["tokens"].get<uint32_t>(),
                            row["depth"].get<uint32_t>(), row["threads"].get<int>());
  for (const auto& [op, figures] : row["profile"].items()) {
    text += Printf("  %-20s %10.2f ms %6.1f %%\n", op.c_str(), figures["ms"].get<double>(),
                   100 * figures["share"].get<double>());
  }
  return text;
}

std::string MemoryLines(const Json& memory) {
  const Json& plan = memory["memory_plan"];
  std::string text =
      Printf("memory of %u tokens in, %u out: peak %s; anonymous %s, mapped file %s, swapped %s\n",
             memory["tokens_in"].get<uint32_t>(), memory["tokens_out"].get<uint32_t>(),
             Bytes(memory, "peak_rss_bytes").c_str(), Bytes(memory, "anonymous_bytes").c_str(),
             Bytes(memory, "file_bytes").c_str(), Bytes(memory, "swap_bytes").c_str());
  text += Printf("planned: %s of weights, %s of keys and values, %s of work space\n",
                 Bytes(plan, "weights_bytes").c_str(), Bytes(plan, "kv_bytes").c_str(),
                 Bytes(plan, "arena_bytes").c_str());
  return text;
}

}  // namespace

std::string BenchText(const Json& report) {
  std::string text = HeadLines(report);
  text += "\nphase     tokens   depth  threads      tok/s\n";
  for (const Json& row : report["results"]) text += ResultLine(row);
  for (const Json& row : report["results"]) text += ProfileLines(row);
  text += "\n";
  for (const Json& measured : report["read_bandwidth"]) {
    text +=
        Printf("read bandwidth, %d threads: %s from the mapped file, %s from a buffer\n",
               measured["threads"].get<int>(), Rate(measured["file_bytes_s"].get<double>()).c_str(),
               Rate(measured["buffer_bytes_s"].get<double>()).c_str());
  }
  const Json& startup = report["startup"];
  text += Printf(
      "load %.1f ms, then the first token of a prompt of %u tokens %.1f ms (%.1f ms the second "
      "time)\n",
      startup["load_ms"]["median"].get<double>(), startup["tokens_in"].get<uint32_t>(),
      startup["first_token_ms"]["median"].get<double>(),
      startup["warm_first_token_ms"]["median"].get<double>());
  return text + MemoryLines(report["memory"]);
}

}  // namespace pocketlm::cli
