#include "convert_report.h"

#include <algorithm>
#include <atomic>

#include "cli_error.h"
#include "generation_flags.h"
#include "platform.h"
#include "progress.h"

namespace pocketlm::cli {
namespace {

std::string ErrorColumn(const Json& type) {
  if (type.value("exact", false)) return "exact";
  return Printf("RMS error %.3f %%, at most %.3g", 100 * type.value("relative_rms_error", 0.0),
                type.value("max_error", 0.0));
}

std::string Notes(const Json& report) {
  std::string text;
  for (const Json& note : report.value("notes", Json::array()))
    text += "  note: " + OneLine(note.get<std::string>()) + "\n";
  return text;
}

void SetFlag(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

}  // namespace

std::vector<plm_text> TextViews(const std::vector<TextFile>& files) {
  std::vector<plm_text> out;
  for (const TextFile& file : files)
    out.push_back({file.path.c_str(), file.content.data(), file.content.size(), file.set.c_str()});
  return out;
}

void EncodingFlags::AddTo(CLI::App& command, bool from_model) {
  command.add_option("--type", type,
                     "Weights: int4 (default), int8, f16 for .plm; q4_1 (default), q4_0, q8_0, f16 "
                     "for .gguf;\nf16 (default), f32 for a folder");
  command.add_option("--head-type", head_type,
                     "Embedding table and output head; default: as --type, but 8 bits where the "
                     "source has 5 to 8");
  command.add_option("--group-size", group_size,
                     "Weights that share a scale in a .plm: 32, 64 (default), 128");
  command.add_option("--offset", offset,
                     "Offsets of int4 groups in a .plm: zero4 (default), min_f16, none");
  if (from_model) {
    command.add_flag("--requantize", requantize, "Quantize anew what could be kept bit for bit");
    command.add_option(
        "--calibration", calibration,
        "Texts like those that the model will read: files and folders with .txt and "
        ".jsonl, also .gz.\nWhat is rounded to 4 bits is then rounded for them (GPTQ), "
        "which takes minutes");
    command
        .add_option("--target-mb", target_mb,
                    "Size of OUT at most, in MB of 10^6 bytes: each matrix gets the type that "
                    "loses least on the "
                    "calibration texts")
        ->check(NumberIn(0.001, 1e6));
  }
  command.add_option("--threads", num_threads, "Threads; 0 (default): all CPUs of this process")
      ->check(NumberIn(0, 1024));
  command.add_flag("--json", json,
                   "Report as JSON: output, bytes, parameters, bits_per_weight, types, notes");
}

plm_convert_options EncodingFlags::Options() {
  plm_convert_options options = plm_convert_options_default();
  options.type = type.c_str();
  options.head_type = head_type.c_str();
  options.group_size = group_size;
  options.offset = offset.c_str();
  options.requantize = requantize;
  options.num_threads = num_threads;
  options.target_bytes = static_cast<uint64_t>(target_mb * 1e6);
  texts_ = ReadTextFiles(calibration);
  views_ = TextViews(texts_);
  options.calibration = views_.data();
  options.calibration_count = views_.size();
  return options;
}

std::string ConversionText(const Json& report) {
  const auto bytes = report.value("bytes", uint64_t{0});
  if (!report.contains("parameters")) {
    return OneLine(report.value("output", "")) + "  " + Thousands(bytes) + " bytes\n" +
           Notes(report);
  }
  std::string text = Printf("%s  %s bytes (%s), %s parameters, %.3f bits each, %.1f s, verified\n",
                            OneLine(report.value("output", "")).c_str(), Thousands(bytes).c_str(),
                            HumanBytes(static_cast<double>(bytes)).c_str(),
                            Thousands(report.value("parameters", uint64_t{0})).c_str(),
                            report.value("bits_per_weight", 0.0), report.value("seconds", 0.0));
  for (const Json& type : report.value("types", Json::array())) {
    text += Printf("  %-14s %4llu tensors  %9s  %s\n", type.value("type", "").c_str(),
                   static_cast<unsigned long long>(type.value("tensors", uint64_t{0})),
                   HumanBytes(type.value("bytes", 0.0)).c_str(), ErrorColumn(type).c_str());
  }
  return text + Notes(report);
}

Json CallConversion(const std::string& label,
                    const std::function<std::string(const plm::ProgressCallback&)>& work) {
  std::atomic<bool> stop{false};
  const InterruptScope interrupts(SetFlag, &stop, false);
  std::string text;
  {
    Progress bar(label, Progress::Unit::kFraction);
    try {
      text = work([&](double fraction) {
        bar.Update(fraction, 1);
        return !stop;
      });
    } catch (const plm::Error& error) {
      if (error.status() != PLM_INVALID_ARGUMENT) throw;
      FailUsage(std::string(error.what()) + "; see `pocketlm " + label + " --help`");
    }
  }
  const Json report = Json::parse(text, nullptr, false);
  if (!report.is_object()) Fail(label + ": expected a JSON object from the library, got none");
  return report;
}

int RunConversion(const std::string& label, bool json,
                  const std::function<std::string(const plm::ProgressCallback&)>& work) {
  const Json report = CallConversion(label, work);
  if (json) {
    PrintJson(report);
  } else {
    WriteStdout(ConversionText(report));
  }
  return kExitOk;
}

}  // namespace pocketlm::cli
