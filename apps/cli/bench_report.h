// The report of `bench` as people read it.
#pragma once

#include <string>

#include "report.h"

namespace pocketlm::cli {

// The text form of the JSON report that command_bench.cc makes.
std::string BenchText(const Json& report);

}  // namespace pocketlm::cli
