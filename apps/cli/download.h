// Downloads that can be cut at any byte and resumed, and become visible only when they are whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "http_client.h"

namespace pocketlm::cli {

struct DownloadSpec {
  std::string url;    // http or https
  std::string label;  // for messages and the progress bar
  // Where the bytes go. Beside it lies "<part_path>.etag" while there is something to resume.
  std::filesystem::path part_path;
  // Expected; if absent the server must tell it, or sha256 be given.
  std::optional<uint64_t> size_bytes;
  std::string sha256;  // expected, lower-case hexadecimal; empty: unknown
};

// Leaves the whole file, checked and flushed to the disk, at part_path.
//   Resume   From part_path if it has a beginning of the file: with If-Range where the server gave a validator,
//            else only if sha256 is known. A server that ignores ranges sends everything again.
//   Retries  Up to 3 tries in a row without a new byte.
//   Errors   CliError. A broken connection leaves part_path for the next run; a wrong size or checksum removes it
//            (after one more try from the start, if the beginning was an older one).
void Download(HttpClient& client, const DownloadSpec& spec);

// Renames a finished file to its final name, on the same file system, and flushes the folder.
void MoveIntoPlace(const std::filesystem::path& from, const std::filesystem::path& to);

// Throws CliError unless `folder`'s file system has this many free bytes.
void RequireFreeSpace(const std::filesystem::path& folder, uint64_t bytes);

// Makes a folder and its parents; throws CliError if that cannot be.
void MakeFolder(const std::filesystem::path& folder);

// Size of a file, 0 if there is none.
uint64_t FileSizeOrZero(const std::filesystem::path& path);

}  // namespace pocketlm::cli
