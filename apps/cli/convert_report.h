// What `convert` and `new` have in common: the options of stored weights, the progress bar, the report.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "pocketlm/pocketlm.hpp"

namespace pocketlm::cli {

// How weights are stored; flags of both commands.
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

// Runs `work` with a progress bar named `label`; Ctrl-C cancels it. Prints the report that it returns. Throws as
// `work` does.
int RunConversion(const std::string& label, bool json,
                  const std::function<std::string(const plm::ProgressCallback&)>& work);

}  // namespace pocketlm::cli
