// Texts for commands that read many: files and folders of them, compressed or not.
#pragma once

#include <string>
#include <vector>

namespace pocketlm::cli {

struct TextFile {
  std::string path;  // without ".gz"
  std::string set;   // what it is reported as
  std::string content;
};

// The file at `path`, or all .txt and .jsonl files below a folder in order of their names; each may be gzip-compressed
// (.gz). The set of a file is its own name; below a folder it is the name of the folder that it lies in.
// Throws CliError if a path cannot be read, a folder has no such file, or compressed data is damaged.
std::vector<TextFile> ReadTextFiles(const std::vector<std::string>& paths);

}  // namespace pocketlm::cli
