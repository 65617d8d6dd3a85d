#include "download.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <system_error>

#include "cli_error.h"
#include "hash.h"
#include "platform.h"
#include "progress.h"
#include "url.h"

namespace fs = std::filesystem;

namespace pocketlm::cli {
namespace {

constexpr int kTriesWithoutProgress = 3;

fs::path ValidatorPath(const fs::path& part_path) { return part_path.string() + ".etag"; }

std::string ReadValidator(const fs::path& part_path) {
  std::ifstream file(ValidatorPath(part_path));
  std::string line;
  std::getline(file, line);
  return line;
}

void RemovePart(const fs::path& part_path) {
  std::error_code ignored;
  fs::remove(part_path, ignored);
  fs::remove(ValidatorPath(part_path), ignored);
}

// One download: the state between tries.
class Downloader {
 public:
  Downloader(HttpClient& client, const DownloadSpec& spec)
      : client_(client),
        spec_(spec),
        total_(spec.size_bytes),
        progress_(spec.label, Progress::Unit::kBytes) {}

  void Run() {
    PrepareStart();
    const bool has_old_bytes = have_ > 0;
    FetchAll();
    std::string mismatch = Mismatch();
    if (!mismatch.empty() && has_old_bytes) {
      Restart();
      FetchAll();
      mismatch = Mismatch();
    }
    if (!mismatch.empty()) {
      RemovePart(spec_.part_path);
      Fail("download: " + PublicUrl(spec_.url) + ": " + mismatch +
           "; the file was dropped, try another source");
    }
    std::error_code ignored;
    fs::remove(ValidatorPath(spec_.part_path), ignored);
  }

 private:
  void PrepareStart() {
    have_ = FileSizeOrZero(spec_.part_path);
    const bool too_long = total_ && have_ > *total_;
    const bool unknown = spec_.sha256.empty() && ReadValidator(spec_.part_path).empty();
    if (have_ > 0 && (too_long || unknown)) Restart();
  }

  void Restart() {
    RemovePart(spec_.part_path);
    have_ = 0;
  }

  void FetchAll() {
    int idle_tries = 0;
    for (int attempt = 1; !total_ || have_ < *total_ || have_ == 0; ++attempt) {
      const uint64_t before = have_;
      TransferResult result = FetchOnce();
      if (!own_error_.empty()) Fail(own_error_);
      if (result.complete && (!total_ || have_ >= *total_)) return;
      if (result.complete) {  // a server of the old kind, which marks the end by hanging up
        result.transient = true;
        result.error = "the connection ended";
      }
      // What is there is not a beginning of this file. A server that says so twice is not worth a third try.
      if (result.head.status == 416 && have_ > 0 && !refused_range_) {
        refused_range_ = true;
        Restart();
        continue;
      }
      idle_tries = have_ > before ? 1 : idle_tries + 1;
      if (!result.transient || idle_tries >= kTriesWithoutProgress) FailTransfer(result);
      WaitBeforeRetry(idle_tries);
    }
  }

  [[noreturn]] void FailTransfer(const TransferResult& result) {
    std::string message = "download: " + PublicUrl(spec_.url) + ": " + result.error;
    if (have_ > 0) {
      message += " after " + std::to_string(have_) + " bytes";
      if (total_) message += ", expected " + std::to_string(*total_);
    }
    if (result.transient) {
      message += have_ > 0 ? "; run the same command again to go on from there"
                           : "; check the network and try again";
    } else {
      message += "; check the name and the address";
    }
    Fail(message);
  }

  TransferResult FetchOnce() {
    TransferRequest request;
    request.url = spec_.url;
    request.offset = have_;
    request.validator = have_ > 0 ? ReadValidator(spec_.part_path) : "";
    request.on_head = [this](const ResponseHead& head) { return Begin(head); };
    request.on_data = [this](std::string_view piece) { return Append(piece); };
    TransferResult result = client_.Transfer(request);
    if (file_ != nullptr) {
      if (own_error_.empty() && !SyncFile(file_.get())) SetWriteError();
      file_.reset();
    }
    return result;
  }

  // Decides by the answer's head where its body goes.
  bool Begin(const ResponseHead& head) {
    std::optional<uint64_t> total;
    const bool resumed = head.status == 206 && have_ > 0;
    if (resumed) {
      if (head.range_begin != have_) {
        own_error_ = "download: " + PublicUrl(spec_.url) + ": expected the bytes from " +
                     std::to_string(have_) + " on, got another range; remove " +
                     spec_.part_path.string() + " and try again";
        return false;
      }
      total = head.range_total;
    } else {
      have_ = 0;
      total = head.content_length;
    }
    if (spec_.size_bytes && total && *total != *spec_.size_bytes) {
      own_error_ = "download: " + PublicUrl(spec_.url) + ": expected " +
                   std::to_string(*spec_.size_bytes) + " bytes, the server offers " +
                   std::to_string(*total) + "; try another source";
      return false;
    }
    if (!spec_.size_bytes) total_ = total;
    if (!total_ && spec_.sha256.empty()) {
      own_error_ = "download: " + PublicUrl(spec_.url) +
                   ": expected a Content-Length, got none, so a cut transfer would not be noticed; "
                   "give --sha256";
      return false;
    }
    return OpenPart(resumed, head.validator);
  }

  bool OpenPart(bool resumed, const std::string& validator) {
    file_.reset(std::fopen(spec_.part_path.c_str(), resumed ? "ab" : "wb"));
    if (file_ == nullptr) {
      SetWriteError();
      return false;
    }
    std::ofstream(ValidatorPath(spec_.part_path), std::ios::trunc) << validator << "\n";
    return true;
  }

  bool Append(std::string_view piece) {
    if (total_ && piece.size() > *total_ - have_) {
      own_error_ = "download: " + PublicUrl(spec_.url) + ": expected " + std::to_string(*total_) +
                   " bytes, the server sends more; try another source";
      return false;
    }
    if (std::fwrite(piece.data(), 1, piece.size(), file_.get()) != piece.size()) {
      SetWriteError();
      return false;
    }
    have_ += piece.size();
    progress_.Update(static_cast<double>(have_), static_cast<double>(total_.value_or(0)));
    return true;
  }

  void SetWriteError() {
    own_error_ = "write: " + spec_.part_path.string() + ": " + std::strerror(errno) +
                 "; free space there or set POCKETLM_HOME to another folder";
  }

  // Empty if the file is what was asked for.
  std::string Mismatch() const {
    const uint64_t size = FileSizeOrZero(spec_.part_path);
    if (total_ && size != *total_) {
      return "expected " + std::to_string(*total_) + " bytes, got " + std::to_string(size);
    }
    if (spec_.sha256.empty()) return "";
    const std::string sha256 = Sha256OfFile(spec_.part_path);
    return sha256 == spec_.sha256 ? "" : "expected SHA-256 " + spec_.sha256 + ", got " + sha256;
  }

  HttpClient& client_;
  const DownloadSpec& spec_;
  uint64_t have_ = 0;
  bool refused_range_ = false;
  std::optional<uint64_t> total_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
  std::string own_error_;
  Progress progress_;
};

}  // namespace

void Download(HttpClient& client, const DownloadSpec& spec) { Downloader(client, spec).Run(); }

void MoveIntoPlace(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) Fail("rename: " + to.string() + ": " + error.message());
  SyncFolder(to.parent_path());
}

void RequireFreeSpace(const fs::path& folder, uint64_t bytes) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available >= bytes) return;
  Fail("download: " + folder.string() + ": expected " + HumanBytes(static_cast<double>(bytes)) +
       " of free space, got " + HumanBytes(static_cast<double>(space.available)) +
       "; free some or set POCKETLM_HOME to another folder");
}

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    Fail("create folder: " + folder.string() + ": " + error.message() +
         "; set POCKETLM_HOME to a folder of yours");
  }
}

uint64_t FileSizeOrZero(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace pocketlm::cli
