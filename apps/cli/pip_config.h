// Where pip would look for packages on this machine.
#pragma once

#include <string>
#include <vector>

#include "http_client.h"

namespace pocketlm::cli {

struct PipConfig {
  std::vector<std::string> index_urls;  // index-url, then extra-index-urls; empty with no-index
  std::vector<std::string> find_links;  // folders, file: or http(s): pages
  HttpSettings http;                    // cert, proxy, trusted hosts, timeout
};

// Asks pip itself (its defaults, configuration files and environment), through python3. This program knows no
// index of its own. Throws CliError if there is no working python3 with pip.
PipConfig ReadPipConfig();

}  // namespace pocketlm::cli
