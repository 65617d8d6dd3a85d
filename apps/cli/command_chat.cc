// pocketlm chat: a conversation on the terminal.
#include <memory>

#include "cli_error.h"
#include "commands.h"
#include "download.h"
#include "generation_flags.h"
#include "line_editor.h"
#include "model_files.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"
#include "report.h"

namespace pocketlm::cli {
namespace {

constexpr char kHelp[] =
    "/reset  forget the conversation\n"
    "/help   this text\n"
    "/exit   leave (also Ctrl-D)\n"
    "Ctrl-C ends an answer, or drops the line being typed.\n";

struct ChatFlags {
  std::string model;
  SessionFlags session;
  GenerationFlags generation;
  PromptFlags prompt;
};

class Conversation {
 public:
  Conversation(ChatFlags& flags, plm::Session& session)
      : session_(session),
        system_(flags.prompt.system),
        chat_options_(flags.prompt.Options()),
        generate_options_(flags.generation.Options()) {
    Reset();
  }

  void Reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
    session_.Reset();
  }

  // Answers on standard output. A turn that fails is dropped, and the conversation goes on without it.
  void Say(const std::string& line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    try {
      session_.SetChat(ToJsonText(messages_), &chat_options_);
      const std::string answer = Answer();
      messages_.push_back({{"role", "assistant"}, {"content", answer}});
    } catch (const plm::Error& error) {
      messages_.erase(messages_.size() - 1);
      const bool full = error.status() == PLM_CONTEXT_FULL;
      PrintError(std::string(error.what()) +
                 (full ? "; the message was dropped: send a shorter one, or /reset to start anew"
                       : "; the message was dropped"));
    }
  }

 private:
  std::string Answer() {
    const InterruptScope interrupt(
        [](void* target) { plm_session_cancel(static_cast<plm_session*>(target)); }, session_.get(),
        false);
    bool write_failed = false;
    plm::TextCallback callback = [&](std::string_view piece) {
      write_failed = write_failed || !TryWriteStdout(piece);
      return !write_failed && !interrupt.interrupted();
    };
    const plm::Generation answer = session_.Generate(&generate_options_, callback);
    WriteStdout("\n");
    if (answer.result.finish_reason == PLM_FINISH_CANCELLED) PrintNote("the answer was cancelled");
    const uint64_t used = uint64_t{answer.result.tokens_in} + answer.result.tokens_out;
    if (answer.result.finish_reason == PLM_FINISH_LENGTH && used >= session_.context_length()) {
      PrintNote("the context is full; /reset starts anew");
    }
    return answer.text;
  }

  plm::Session& session_;
  std::string system_;
  plm_chat_options chat_options_;
  plm_generate_options generate_options_;
  Json messages_;
};

// Handles one line; false to leave.
bool HandleLine(const std::string& line, Conversation& conversation) {
  const size_t last = line.find_last_not_of(" \t");
  const std::string text = last == std::string::npos ? "" : line.substr(0, last + 1);
  if (text.empty()) return true;
  if (text == "/exit" || text == "/quit") return false;
  if (text == "/help") {
    WriteStdout(kHelp);
  } else if (text == "/reset") {
    conversation.Reset();
    PrintNote("the conversation was forgotten");
  } else if (text.front() == '/' && text.find(' ') == std::string::npos) {
    PrintError("chat: " + text + ": expected /reset, /help or /exit; other lines go to the model");
  } else {
    conversation.Say(text);
  }
  return true;
}

std::filesystem::path HistoryFile() {
  if (!StdinIsTerminal()) return {};
  MakeFolder(CacheFolder());
  return CacheFolder() / "chat_history";
}

int Chat(ChatFlags& flags) {
  flags.generation.Options();  // usage errors before the model is loaded
  flags.prompt.Options();
  const std::string path = ResolveModel(flags.model);
  const plm_model_options model_options = flags.session.ModelOptions();
  const plm::Model model = plm::Model::Load(path, &model_options);
  if (!model.has_chat_template()) {
    Fail("chat: " + flags.model +
         ": expected a model with a chat template, got one without; use `pocketlm run " +
         flags.model + " -p TEXT`, which continues a text");
  }
  const plm_session_options session_options = flags.session.SessionOptions();
  plm::Session session(model, &session_options);
  Conversation conversation(flags, session);
  LineEditor editor("> ", HistoryFile());
  IgnoreInterrupts();
  if (StdinIsTerminal()) PrintNote("/help lists the commands, Ctrl-D leaves");
  while (true) {
    std::string line;
    const LineEditor::Event event = editor.Read(&line);
    if (event == LineEditor::Event::kEnd) break;
    if (event == LineEditor::Event::kInterrupt) {
      PrintNote("Ctrl-D or /exit leaves");
      continue;
    }
    if (!HandleLine(line, conversation)) return kExitOk;
  }
  if (StdinIsTerminal()) WriteStdout("\n");
  return kExitOk;
}

}  // namespace

void AddChatCommand(CLI::App& program, Action* action) {
  CLI::App* command = program.add_subcommand("chat", "Talk with a model");
  const auto flags = std::make_shared<ChatFlags>();
  command->add_option("MODEL", flags->model, "A model file, a folder, or a name that pull knows")
      ->required();
  flags->prompt.AddTo(*command);
  flags->generation.AddTo(*command);
  flags->session.AddTo(
      *command, "Tokens that the context holds; 0 (default): the model's limit, at most 4096");
  flags->session.AddActivationsTo(*command);
  command->footer(
      "Lines starting with / are commands: /reset, /help, /exit. Ctrl-C ends an answer, Ctrl-D "
      "leaves. Without a\n"
      "terminal each line of standard input is a turn.\n\n"
      "Example:\n  pocketlm chat smollm2-135m --system \"You are a helpful assistant.\"");
  command->callback([flags, action] { *action = [flags] { return Chat(*flags); }; });
}

}  // namespace pocketlm::cli
