// Lines from the user: with editing and a history on a terminal (libedit), plain otherwise.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace pocketlm::cli {

class LineEditor {
 public:
  enum class Event { kLine, kInterrupt, kEnd };

  // On a terminal the history is read from `history_file` and each line added to it; an unreadable or unwritable file
  // is no error. The prompt is shown on terminals only.
  LineEditor(std::string prompt, std::filesystem::path history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Reads one line, without its end. kInterrupt: Ctrl-C at the prompt, what was typed is dropped. kEnd: Ctrl-D or the
  // end of the input.
  Event Read(std::string* line);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null without a terminal
};

}  // namespace pocketlm::cli
