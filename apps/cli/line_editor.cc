#include "line_editor.h"

#include <histedit.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "cli_error.h"
#include "platform.h"

namespace pocketlm::cli {
namespace {

constexpr int kHistoryLines = 1000;

}  // namespace

struct LineEditor::Impl {
  std::string prompt;
  std::string history_file;
  EditLine* editor = nullptr;
  History* history = nullptr;
  bool interrupted = false;

  static Impl* Of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return static_cast<Impl*>(data);
  }
  static char* Prompt(EditLine* editor) { return Of(editor)->prompt.data(); }
  // Bound to Ctrl-C: leaves el_gets as at the end of input.
  static unsigned char OnInterrupt(EditLine* editor, int /*key*/) {
    Of(editor)->interrupted = true;
    return CC_EOF;
  }

  static unsigned char OnSuspend(EditLine* editor, int /*key*/) {
    el_set(editor, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(editor, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  Impl(std::string prompt_text, std::string file)
      : prompt(std::move(prompt_text)), history_file(std::move(file)) {
    editor = el_init("pocketlm", stdin, stdout, stderr);
    history = history_init();
    if (editor == nullptr || history == nullptr)
      Fail("chat: terminal: line editing cannot be started; check TERM");
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kHistoryLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::history(history, &event, H_LOAD, history_file.c_str());
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &Prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 1);
    el_set(editor, EL_HIST, ::history, history);
    el_set(editor, EL_ADDFN, "pocketlm-interrupt", "Drop the line", &OnInterrupt);
    el_set(editor, EL_BIND, "^C", "pocketlm-interrupt", nullptr);
    el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(editor, EL_ADDFN, "pocketlm-suspend", "Stop the program", &OnSuspend);
    el_set(editor, EL_BIND, "^Z", "pocketlm-suspend", nullptr);
    // While a line is edited, Ctrl-C is a key like any other; outside it is the signal that ends the answer.
    el_set(editor, EL_SETTY, "-d", "-isig", nullptr);
    el_source(editor, nullptr);  // the user's ~/.editrc
  }
  // el_end() would lose the names of the functions added above. There is one editor in a process; it stays.
  ~Impl() {
    static EditLine* kept = nullptr;
    kept = editor;
    if (kept != nullptr) el_set(kept, EL_HIST, nullptr, nullptr);
    if (history != nullptr) history_end(history);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Event Read(std::string* line) {
    interrupted = false;
    int count = 0;
    el_set(editor, EL_PREP_TERM,
           1);  // before the prompt shows, or keys typed at once would go another way
    const char* text = el_gets(editor, &count);
    const bool signalled =
        text == nullptr && count < 0 && errno == EINTR;  // kill -INT from elsewhere
    if (interrupted || signalled) {
      std::fputs("^C\n", stdout);
      el_reset(editor);
      return Event::kInterrupt;
    }
    if (text == nullptr || count <= 0) return Event::kEnd;
    line->assign(text, static_cast<size_t>(count));
    while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
    if (!line->empty()) {
      HistEvent event;
      ::history(history, &event, H_ENTER, line->c_str());
      ::history(history, &event, H_SAVE, history_file.c_str());
    }
    return Event::kLine;
  }
};

LineEditor::LineEditor(std::string prompt, std::filesystem::path history_file) {
  if (!StdinIsTerminal() || !StdoutIsTerminal()) return;
  impl_ = std::make_unique<Impl>(std::move(prompt), history_file.string());
}

LineEditor::~LineEditor() = default;

LineEditor::Event LineEditor::Read(std::string* line) {
  if (impl_ != nullptr) return impl_->Read(line);
  return ReadStdinLine(line) ? Event::kLine : Event::kEnd;
}

}  // namespace pocketlm::cli
