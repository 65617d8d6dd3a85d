// What the commands that write models have in common: the options of stored weights, the progress bar, the report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "pocketlm/pocketlm.hpp"
#include "report.h"
#include "text_files.h"

namespace pocketlm::cli {

// The texts as the library takes them; they must outlive the result.
std::vector<plm_text> TextViews(const std::vector<TextFile>& files);

// How weights are stored; flags of these commands.
struct EncodingFlags {
  std::string type, head_type, offset;
  uint32_t group_size = 0;
  int32_t num_threads = 0;
  bool requantize = false;
  bool json = false;
  std::vector<std::string> calibration;  // paths
  double target_mb = 0;

  // Adds the flags; --requantize and --calibration only where the weights come from a model, and
  // --target-mb with them.
  void AddTo(CLI::App& command, bool from_model);
  // Reads the calibration texts. Valid until the next call and while the flags live. Throws CliError.
  plm_convert_options Options();

 private:
  std::vector<TextFile> texts_;
  std::vector<plm_text> views_;
};

// Runs `work` with a progress bar named `label`; Ctrl-C cancels it. Returns the report that it gives. Throws as `work`
// does.
Json CallConversion(const std::string& label,
                    const std::function<std::string(const plm::ProgressCallback&)>& work);

// The part of a report that tells of the file, for people.
std::string ConversionText(const Json& report);

// Both, and prints the report.
int RunConversion(const std::string& label, bool json,
                  const std::function<std::string(const plm::ProgressCallback&)>& work);

}  // namespace pocketlm::cli
