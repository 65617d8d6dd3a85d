#include "pip_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli_error.h"
#include "platform.h"

namespace pocketlm::cli {
namespace {

// pip's own parser merges its defaults, files and environment. Its inner interface has kept these names since
// pip 19.3; where they are gone, the help text of `pip download` shows the effective index.
// The current folder is taken off the path, or files lying there could pass for Python's modules.
constexpr char kScript[] = R"PY(
import sys
sys.path = [p for p in sys.path if p]
import json, os, re, subprocess
def from_parser():
    from pip._internal.commands import create_command
    options, _ = create_command("download").parse_args([])
    return options
def from_help():
    class Options: pass
    environment = dict(os.environ, COLUMNS="1000")
    text = subprocess.run([sys.executable, "-m", "pip", "download", "--help"], env=environment,
                          stdout=subprocess.PIPE, check=True).stdout.decode("utf-8", "replace")
    options = Options()
    options.index_url = re.search(r"--index-url.*?\(default:?\s+(\S+?)\)", text, re.S).group(1)
    options.extra_index_urls = os.environ.get("PIP_EXTRA_INDEX_URL", "").split()
    options.find_links = os.environ.get("PIP_FIND_LINKS", "").split()
    options.cert = os.environ.get("PIP_CERT")
    options.proxy = os.environ.get("PIP_PROXY")
    return options
try:
    options = from_parser()
except Exception:
    options = from_help()
def get(name, default):
    value = getattr(options, name, None)
    return default if value is None else value
indexes = [] if get("no_index", False) else [get("index_url", "")] + list(get("extra_index_urls", []))
print("\n" + json.dumps({
    "index_urls": [str(u) for u in indexes if u],
    "find_links": [str(u) for u in get("find_links", [])],
    "trusted_hosts": [str(h) for h in get("trusted_hosts", [])],
    "cert": str(get("cert", "")), "proxy": str(get("proxy", "")),
    "timeout": float(get("timeout", 60) or 60)}))
)PY";

}  // namespace

PipConfig ReadPipConfig() {
  const auto output = RunPython(kScript);
  if (!output) {
    Fail(
        "pull: python3 -m pip: expected a working pip, which tells where packages come from, got "
        "none; install "
        "python3 and pip (Debian: apt install python3-pip)");
  }
  // The report is the last line: pip may print notices before it.
  std::string text = *output;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  const auto report = nlohmann::json::parse(text, nullptr, false);
  if (!report.is_object())
    Fail("pull: python3 -m pip: its configuration could not be read; try `pip config debug`");
  PipConfig config;
  config.index_urls = report.value("index_urls", std::vector<std::string>());
  config.find_links = report.value("find_links", std::vector<std::string>());
  config.http.trusted_hosts = report.value("trusted_hosts", std::vector<std::string>());
  config.http.ca_file = report.value("cert", "");
  config.http.proxy = report.value("proxy", "");
  config.http.timeout_s = static_cast<long>(std::clamp(report.value("timeout", 60.0), 5.0, 600.0));
  return config;
}

}  // namespace pocketlm::cli
