// What the program needs from the operating system. POSIX; other systems get their own platform.cc.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace pocketlm::cli {

bool StdinIsTerminal();
bool StdoutIsTerminal();
bool StderrIsTerminal();

// Columns of the terminal on standard error; 80 if unknown.
int TerminalWidth();

// Runs this program again with `arguments` and returns its standard output, or nullopt if it could not run or its
// status was not 0. Its standard error is ours.
std::optional<std::string> RunSelf(const std::vector<std::string>& arguments);

// Runs a program with `python3 -c script` (the script must not hold a single quote) and returns its standard
// output, or nullopt if it could not run or its status was not 0. Standard error is dropped.
std::optional<std::string> RunPython(const std::string& script);

// Flushes a file (open for writing) or a folder to the disk. Returns false on failure, errno tells why.
bool SyncFile(std::FILE* file);
bool SyncFolder(const std::filesystem::path& folder);

// An exclusive lock between processes, by a file that exists while the lock is held. The system releases it
// when the process ends, however it ends.
class FileLock {
 public:
  // Waits for the lock; `on_wait` is called once if somebody else holds it. Throws CliError if the file cannot
  // be made.
  FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

// While one lives, Ctrl-C calls `cancel(target)` (async-signal-safe) in place of ending the program. At most one
// lives at a time. With `second_kills`, a second Ctrl-C ends the program at once.
class InterruptScope {
 public:
  InterruptScope(void (*cancel)(void*), void* target, bool second_kills);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Whether Ctrl-C came since this scope began.
  bool interrupted() const;
};

// From now on Ctrl-C does nothing outside an InterruptScope. For `chat`.
void IgnoreInterrupts();

// Reads one line of standard input, without its end ("\n" or "\r\n"). False at the end of the input.
// Interrupts do not end it.
bool ReadStdinLine(std::string* line);

}  // namespace pocketlm::cli
