// What the commands that write models have in common: the options of stored weights, the progress bar, the report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "pocketlm/pocketlm.hpp"
#include "report.h"

namespace pocketlm::cli {

// How weights are stored; flags of these commands.
struct EncodingFlags {
  std::string type, head_type, offset;
  uint32_t group_size = 0;
  int32_t num_threads = 0;
  bool requantize = false;
  bool json = false;

  // Adds the flags; --requantize only where there is something to requantize.
  void AddTo(CLI::App& command, bool with_requantize);
  // Valid while the flags live.
  plm_convert_options Options() const;
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
