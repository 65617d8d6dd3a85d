#include "platform.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli_error.h"

namespace pocketlm::cli {

bool StdinIsTerminal() { return isatty(STDIN_FILENO) != 0; }
bool StdoutIsTerminal() { return isatty(STDOUT_FILENO) != 0; }
bool StderrIsTerminal() { return isatty(STDERR_FILENO) != 0; }

int TerminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::optional<std::string> RunSelf(const std::vector<std::string>& arguments) {
  std::vector<char*> words = {const_cast<char*>("pocketlm")};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const bool started =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, words.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  std::string output;
  char buffer[4096];
  while (started) {
    const ssize_t count = read(pipe_ends[0], buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.append(buffer, static_cast<size_t>(count));
  }
  close(pipe_ends[0]);
  if (!started) return std::nullopt;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return output;
}

std::optional<std::string> RunPython(const std::string& script) {
  std::FILE* pipe = popen(("python3 -c '" + script + "' 2>/dev/null </dev/null").c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string output;
  char buffer[4096];
  size_t count = 0;
  while ((count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) output.append(buffer, count);
  if (pclose(pipe) != 0) return std::nullopt;
  return output;
}

bool SyncFile(std::FILE* file) { return std::fflush(file) == 0 && fsync(fileno(file)) == 0; }

bool SyncFolder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool synced = fsync(descriptor) == 0;
  close(descriptor);
  return synced;
}

FileLock::FileLock(const std::filesystem::path& path, const std::function<void()>& on_wait)
    : path_(path) {
  bool told = false;
  while (true) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) {
      Fail("lock: " + path_.string() + ": expected a folder that can be written, got \"" +
           std::strerror(errno) + "\"; set POCKETLM_HOME to a folder of yours");
    }
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (!told) on_wait();
      told = true;
      while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    // The former holder may have removed the file in between: then the lock is on nothing.
    struct stat mine {};
    struct stat there {};
    const bool current = fstat(descriptor_, &mine) == 0 && stat(path_.c_str(), &there) == 0 &&
                         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
    if (current) return;
    close(descriptor_);
  }
}

FileLock::~FileLock() {
  unlink(path_.c_str());
  close(descriptor_);
}

namespace {

std::atomic<void (*)(void*)> g_cancel{nullptr};
std::atomic<void*> g_target{nullptr};
std::atomic<bool> g_second_kills{false};
std::atomic<bool> g_interrupted{false};

void OnInterrupt(int signal_number) {
  const int saved_errno = errno;
  if (g_interrupted.exchange(true) && g_second_kills) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
  const auto cancel = g_cancel.load();
  if (cancel != nullptr) cancel(g_target.load());
  errno = saved_errno;
}

void InstallHandler(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

bool g_ignore_outside = false;

}  // namespace

InterruptScope::InterruptScope(void (*cancel)(void*), void* target, bool second_kills) {
  g_interrupted = false;
  g_second_kills = second_kills;
  g_target = target;
  g_cancel = cancel;
  InstallHandler(OnInterrupt);
}

InterruptScope::~InterruptScope() {
  g_cancel = nullptr;
  g_target = nullptr;
  g_second_kills = false;
  if (!g_ignore_outside) InstallHandler(SIG_DFL);
}

bool InterruptScope::interrupted() const { return g_interrupted; }

void IgnoreInterrupts() {
  g_ignore_outside = true;
  InstallHandler(OnInterrupt);
}

bool ReadStdinLine(std::string* line) {
  static std::string buffer;
  static size_t begin = 0;
  static bool ended = false;
  while (true) {
    const size_t end = buffer.find('\n', begin);
    if (end != std::string::npos || (ended && begin < buffer.size())) {
      *line = buffer.substr(begin, end == std::string::npos ? end : end - begin);
      begin = end == std::string::npos ? buffer.size() : end + 1;
      if (!line->empty() && line->back() == '\r') line->pop_back();
      return true;
    }
    if (ended) return false;
    buffer.erase(0, begin);
    begin = 0;
    char chunk[4096];
    const ssize_t count = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      ended = true;
    } else {
      buffer.append(chunk, static_cast<size_t>(count));
    }
  }
}

}  // namespace pocketlm::cli
