// How the program fails: one line on standard error and an exit status.
#pragma once

#include <stdexcept>
#include <string>

namespace pocketlm::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the work failed or was cancelled
inline constexpr int kExitUsage = 2;   // the command line is wrong

// Ends the command. The message is "what: where: expected, got; what to do", without the program's name.
class CliError : public std::runtime_error {
 public:
  CliError(int exit_status, const std::string& message)
      : std::runtime_error(message), exit_status_(exit_status) {}
  int exit_status() const { return exit_status_; }

 private:
  int exit_status_;
};

[[noreturn]] void Fail(const std::string& message);       // exit status 1
[[noreturn]] void FailUsage(const std::string& message);  // exit status 2

// The text in one line: control characters become spaces, runs of white space one space.
std::string OneLine(const std::string& text);

// Writes "pocketlm: message" to standard error, as one line.
void PrintError(const std::string& message);
// The same for what the user should know though nothing failed.
void PrintNote(const std::string& message);

}  // namespace pocketlm::cli
