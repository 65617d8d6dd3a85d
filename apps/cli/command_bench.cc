// pocketlm bench: how fast a model reads and writes here, how much memory that takes, and how near the machine's
// limit it is.
#include <algorithm>
#include <ctime>
#include <memory>

#include "bench_parts.h"
#include "bench_report.h"
#include "cli_error.h"
#include "commands.h"
#include "generation_flags.h"
#include "model_files.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"
#include "progress.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

constexpr uint32_t kMostTokens = 1 << 24;

struct BenchFlags {
  std::string model;
  std::string prompts = "512,1024";
  std::string answers = "128";
  std::string depths = "0";
  std::string threads = "0";
  uint32_t repeats = 5;
  bool profile = false;
  bool json = false;
  std::string part;
  CLI::Option* prompts_option = nullptr;
  CLI::Option* answers_option = nullptr;
  SessionFlags session;
};

// One line of the report.
struct Row {
  plm_benchmark_phase phase;
  uint32_t tokens;
  uint32_t depth;
};

// "512,1024" as numbers in [0, most]. Throws CliError (usage).
std::vector<uint32_t> ParseList(const char* flag, const std::string& text, uint32_t most) {
  std::vector<uint32_t> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const bool digits = !item.empty() && item.size() <= 9 &&
                        item.find_first_not_of("0123456789") == std::string::npos;
    const uint32_t value = digits ? static_cast<uint32_t>(std::stoul(item)) : 0;
    if (!digits || value > most) {
      FailUsage(std::string("bench: ") + flag + ": expected numbers from 0 to " +
                std::to_string(most) + " with commas between them, got \"" + text.substr(0, 100) +
                "\"");
    }
    out.push_back(value);
    begin = end + 1;
  }
  return out;
}

// The rows in the order of the report. Lengths that nobody asked for give way to a short context.
std::vector<Row> PlanRows(const BenchFlags& flags, uint32_t context_limit) {
  const std::vector<uint32_t> depths = ParseList("-d", flags.depths, kMostTokens);
  std::vector<Row> rows;
  const auto add = [&](plm_benchmark_phase phase, const char* name, const std::string& list,
                       bool asked) {
    for (const uint32_t depth : depths) {
      for (uint32_t tokens : ParseList(name, list, kMostTokens)) {
        if (tokens == 0) continue;
        if (depth + tokens > context_limit) {
          if (asked || depth >= context_limit) {
            Fail(Printf(
                "bench: %u tokens at depth %u: expected at most %u together, the limit of the "
                "model; choose smaller ones",
                tokens, depth, context_limit));
          }
          tokens = context_limit - depth;
        }
        const auto same = [&](const Row& row) {
          return row.phase == phase && row.tokens == tokens && row.depth == depth;
        };
        if (std::none_of(rows.begin(), rows.end(), same)) rows.push_back({phase, tokens, depth});
      }
    }
  };
  add(PLM_BENCHMARK_PREFILL, "-p", flags.prompts, flags.prompts_option->count() > 0);
  add(PLM_BENCHMARK_DECODE, "-n", flags.answers, flags.answers_option->count() > 0);
  if (rows.empty()) FailUsage("bench: expected something to measure, got -p 0 and -n 0");
  return rows;
}

Json Spread(double median, double min, double max) {
  return {{"median", median}, {"min", min}, {"max", max}};
}

Json Spread(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t count = samples.size();
  return Spread(0.5 * (samples[(count - 1) / 2] + samples[count / 2]), samples.front(),
                samples.back());
}

// {op: {ms, share}} of the profile.
Json ProfileJson(const std::string& profile) {
  const Json by_op = Json::parse(profile, nullptr, false);
  double total = 0;
  for (const Json& ms : by_op) total += ms.get<double>();
  Json out = Json::object();
  for (const auto& [op, ms] : by_op.items()) {
    out[op] = {{"ms", ms}, {"share", total > 0 ? ms.get<double>() / total : 0.0}};
  }
  return out;
}

Json RowJson(const Row& row, int threads, const plm::Benchmark& timed, double read_bandwidth,
             bool profiled) {
  const plm_benchmark_result& result = timed.result;
  const double thousands = row.tokens * 1e3;
  const double tok_s = thousands / result.median_ms;
  const bool decode = row.phase == PLM_BENCHMARK_DECODE;
  Json out = {{"phase", decode ? "decode" : "prefill"},
              {"tokens", row.tokens},
              {"depth", row.depth},
              {"threads", threads},
              {"tok_s", Spread(tok_s, thousands / result.max_ms, thousands / result.min_ms)},
              {"ms", Spread(result.median_ms, result.min_ms, result.max_ms)},
              {"sampling_fraction", result.sampling_ms / result.median_ms},
              {"sync_fraction", result.sync_ms / result.median_ms}};
  if (decode) {
    const double bytes =
        static_cast<double>(result.weight_bytes_per_token + result.kv_bytes_per_token);
    out["weight_bytes_per_token"] = result.weight_bytes_per_token;
    out["kv_bytes_per_token"] = result.kv_bytes_per_token;
    out["bandwidth_fraction"] = read_bandwidth > 0 ? bytes * tok_s / read_bandwidth : 0.0;
  }
  if (profiled) out["profile"] = ProfileJson(timed.profile_json);
  return out;
}

// What is measured with one number of threads.
class ThreadRun {
 public:
  ThreadRun(const BenchFlags& flags, const std::string& path, uint32_t threads)
      : flags_(flags), path_(path), session_flags_(flags.session) {
    session_flags_.threads = static_cast<int32_t>(threads);
    const plm_model_options options = session_flags_.ModelOptions();
    model_ = std::make_unique<plm::Model>(plm::Model::Load(path, &options));
    description_ = Json::parse(model_->Describe(), nullptr, false);
    if (!description_.is_object()) Fail("bench: " + path + ": expected a description, got none");
    session_flags_.threads = description_.value("num_threads", 1);
  }

  const Json& description() const { return description_; }
  int threads() const { return session_flags_.threads; }
  // With the number of threads that 0 stands for.
  const SessionFlags& session_flags() const { return session_flags_; }

  // Appends the rows and the read bandwidth: the better of one measurement before and one after them, since other
  // work on the machine only ever takes some away.
  void Measure(const std::vector<Row>& rows, Json* results, Json* bandwidths) {
    Json bandwidth = MeasureBenchPart("bandwidth", path_, session_flags_);
    for (const Row& row : rows)
      session_flags_.context_length =
          std::max(session_flags_.context_length, row.depth + row.tokens);
    const plm_session_options options = session_flags_.SessionOptions();
    plm::Session session(*model_, &options);
    std::vector<plm::Benchmark> timed;
    for (const Row& row : rows) timed.push_back(Time(&session, row));
    const Json after = MeasureBenchPart("bandwidth", path_, session_flags_);
    double best = 0;
    for (const char* key : {"file_bytes_s", "buffer_bytes_s"}) {
      bandwidth[key] = std::max(bandwidth.value(key, 0.0), after.value(key, 0.0));
      best = std::max(best, bandwidth.value(key, 0.0));
    }
    bandwidth.update({{"threads", threads()}, {"best_bytes_s", best}});
    bandwidths->push_back(bandwidth);
    for (size_t i = 0; i < rows.size(); ++i)
      results->push_back(RowJson(rows[i], threads(), timed[i], best, flags_.profile));
  }

 private:
  plm::Benchmark Time(plm::Session* session, const Row& row) const {
    plm_benchmark_options options = plm_benchmark_options_default();
    options.phase = row.phase;
    options.tokens = row.tokens;
    options.depth = row.depth;
    options.repeats = flags_.repeats;
    options.profile = flags_.profile;
    Progress bar(
        Printf("%s %u at %u, %d threads", row.phase == PLM_BENCHMARK_PREFILL ? "prefill" : "decode",
               row.tokens, row.depth, threads()),
        Progress::Unit::kFraction);
    return session->Time(&options, [&bar](double fraction) {
      bar.Update(fraction, 1);
      return true;
    });
  }

  const BenchFlags& flags_;
  const std::string& path_;
  SessionFlags session_flags_;
  std::unique_ptr<plm::Model> model_;
  Json description_;
};

Json MeasureStartup(const std::string& path, const SessionFlags& flags, uint32_t repeats) {
  std::vector<double> load, first, warm;
  uint32_t tokens_in = 0;
  for (uint32_t run = 0; run <= repeats; ++run) {
    const Json measured = MeasureBenchPart("startup", path, flags);
    tokens_in = measured.value("tokens_in", 0u);
    if (run == 0) continue;  // brings the file into the page cache
    load.push_back(measured.value("load_ms", 0.0));
    first.push_back(measured.value("first_token_ms", 0.0));
    warm.push_back(measured.value("warm_first_token_ms", 0.0));
  }
  return {{"load_ms", Spread(std::move(load))},
          {"first_token_ms", Spread(std::move(first))},
          {"warm_first_token_ms", Spread(std::move(warm))},
          {"tokens_in", tokens_in}};
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

Json Report(const BenchFlags& flags, const std::string& path) {
  const std::vector<uint32_t> threads = ParseList("--threads", flags.threads, 1024);
  ParseList("-d", flags.depths, kMostTokens);
  const plm_model_identity identity = plm::IdentifyModel(path);
  const std::string date = Now();
  Json results = Json::array(), bandwidths = Json::array(), description, startup, memory;
  for (size_t i = 0; i < threads.size(); ++i) {
    ThreadRun run(flags, path, threads[i]);
    const std::vector<Row> rows = PlanRows(flags, run.description().value("context_length", 0u));
    if (i == 0) {
      description = run.description();
      startup = MeasureStartup(path, run.session_flags(), flags.repeats);
      memory = MeasureBenchPart("memory", path, run.session_flags());
    }
    run.Measure(rows, &results, &bandwidths);
  }
  const auto decode = std::find_if(results.begin(), results.end(),
                                   [](const Json& row) { return row["phase"] == "decode"; });
  const Json& first_row = decode != results.end() ? *decode : results.front();
  const auto bandwidth = std::find_if(
      bandwidths.begin(), bandwidths.end(),
      [&](const Json& measured) { return measured["threads"] == first_row["threads"]; });
  const plm_session_options session = flags.session.SessionOptions();
  Json report = {{"model", path},
                 {"architecture", description["architecture"]},
                 {"parameters", description["parameters"]},
                 {"file_bytes", identity.file_bytes},
                 {"model_hash", identity.hash},
                 {"version", plm_version()},
                 {"date", date},
                 {"cpu_variant", description["cpu_variant"]}};
  report.update(Json::parse(plm::DescribeMachine()));
  report.update({{"kv_k", memory["kv_k_type"]},
                 {"kv_v", memory["kv_v_type"]},
                 {"activations", flags.session.activations},
                 {"chunk", session.prefill_chunk},
                 {"repeat", flags.repeats},
                 {"results", results},
                 {"read_bandwidth_bytes_s", (*bandwidth)["best_bytes_s"]},
                 {"read_bandwidth", bandwidths},
                 {"bandwidth_fraction",
                  decode != results.end() ? (*decode)["bandwidth_fraction"] : Json(nullptr)},
                 {"startup", startup},
                 {"memory", memory}});
  return report;
}

int Bench(BenchFlags& flags) {
  if (!flags.part.empty()) {
    flags.session.threads = static_cast<int32_t>(ParseList("--threads", flags.threads, 1024)[0]);
    RunBenchPart(flags.part, ResolveModel(flags.model), flags.session);
    return kExitOk;
  }
  PlanRows(flags, kMostTokens * 2);  // usage errors before the work
  const Json report = Report(flags, ResolveModel(flags.model));
  if (flags.json) {
    PrintJson(report);
  } else {
    WriteStdout(BenchText(report));
  }
  return kExitOk;
}

}  // namespace

void AddBenchCommand(CLI::App& program, Action* action) {
  CLI::App* command = program.add_subcommand(
      "bench", "Measure speed, memory and distance from the machine's limit");
  const auto flags = std::make_shared<BenchFlags>();
  command->add_option("MODEL", flags->model, "A model file, a folder, or a name that pull knows")
      ->required();
  flags->prompts_option =
      command->add_option("-p", flags->prompts,
                          "Lengths of prompts to read, at each depth (default 512,1024); 0: none");
  flags->answers_option = command->add_option(
      "-n", flags->answers, "Lengths of answers to write, at each depth (default 128); 0: none");
  command->add_option("-d", flags->depths,
                      "Tokens in the cache before, made up (default 0), as in 0,4096,32000");
  command->add_option("--threads", flags->threads,
                      "Numbers of threads, as in 1,2; 0 (default): what this machine grants");
  flags->session.AddCacheFlagsTo(*command);
  flags->session.AddActivationsTo(*command);
  command->add_option("--repeat", flags->repeats, "Timed runs, after one more (default 5)")
      ->check(NumberIn(1, 1000));
  command->add_flag("--profile", flags->profile, "Also show the time of each op");
  command->add_flag("--json", flags->json, "Report as one JSON object");
  command->add_option("--part", flags->part, "")
      ->group("")  // hidden: what runs in a process of its own
      ->check(CLI::IsMember({"memory", "startup", "bandwidth"}));
  command->footer(
      "Prompts are random tokens; nothing comes from a prefix cache, and only forward passes and "
      "sampling are "
      "timed. Memory,\n"
      "start-up and the read bandwidth are measured in processes of their own. The fraction of the "
      "bandwidth counts "
      "the\n"
      "weights, keys and values that a token reads.\n\n"
      "Example:\n  pocketlm bench smollm2-135m -p 512 -n 64 -d 0,4096 --threads 1,2 --json");
  command->callback([flags, action] { *action = [flags] { return Bench(*flags); }; });
}

}  // namespace pocketlm::cli
