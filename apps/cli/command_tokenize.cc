// pocketlm tokenize: text to token ids, and back.
#include <memory>

#include "cli_error.h"
#include "commands.h"
#include "model_files.h"
#include "platform.h"
#include "pocketlm/pocketlm.hpp"
#include "report.h"

namespace pocketlm::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  std::string text;
  std::string file;
  std::string ids;
  CLI::Option* text_option = nullptr;
  CLI::Option* ids_option = nullptr;
  bool special = false;
  bool bos = false;
  bool json = false;
};

// "1,2,3", also with spaces; may be empty.
std::vector<int32_t> ParseIds(const std::string& text) {
  std::vector<int32_t> ids;
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == ',' || text[i] == ' ' || text[i] == '\n') {
      ++i;
      continue;
    }
    const size_t end = std::min(text.find_first_of(", \n", i), text.size());
    const std::string word = text.substr(i, end - i);
    if (word.size() > 9 || word.find_first_not_of("0123456789") != std::string::npos) {
      FailUsage("tokenize: --ids: expected numbers as in 1,2,3, got \"" + word + "\"");
    }
    ids.push_back(static_cast<int32_t>(std::stol(word)));
    i = end;
  }
  return ids;
}

// A piece in one line of text.
std::string Visible(std::string_view piece) {
  std::string out;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out.push_back(c);
    } else {
      out += Printf("\\x%02x", byte);
    }
  }
  return out;
}

int Decode(const TokenizeFlags& flags, const plm::Tokenizer& tokenizer) {
  const std::string text = tokenizer.Decode(ParseIds(flags.ids));
  if (flags.json) {
    PrintJson({{"text", text}});
  } else {
    WriteStdout(StdoutIsTerminal() ? text + "\n" : text);
  }
  return kExitOk;
}

int Encode(const TokenizeFlags& flags, const plm::Tokenizer& tokenizer, const std::string& text) {
  plm_encode_options options = plm_encode_options_default();
  options.parse_special = flags.special;
  options.add_bos = flags.bos;
  const std::vector<int32_t> ids = tokenizer.Encode(text, &options);
  if (flags.json) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back(std::string(tokenizer.Piece(id)));
    PrintJson({{"ids", ids}, {"pieces", pieces}});
    return kExitOk;
  }
  std::string lines;
  for (const int32_t id : ids)
    lines += std::to_string(id) + "\t" + Visible(tokenizer.Piece(id)) + "\n";
  WriteStdout(lines);
  return kExitOk;
}

int Tokenize(const TokenizeFlags& flags) {
  const bool backwards = flags.ids_option->count() > 0;
  if (backwards &&
      (flags.text_option->count() > 0 || !flags.file.empty() || flags.special || flags.bos)) {
    FailUsage("tokenize: --ids: expected neither text nor --special nor --bos with it");
  }
  if (backwards) ParseIds(flags.ids);
  const std::string text =
      backwards ? "" : TextArgument(flags.text_option->count() > 0, flags.text, flags.file);
  const plm::Tokenizer tokenizer = plm::Tokenizer::Load(ResolveModel(flags.model));
  return backwards ? Decode(flags, tokenizer) : Encode(flags, tokenizer, text);
}

}  // namespace

void AddTokenizeCommand(CLI::App& program, Action* action) {
  CLI::App* command =
      program.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  const auto flags = std::make_shared<TokenizeFlags>();
  command->add_option("MODEL", flags->model, "A model file or name, a folder, or a tokenizer.json")
      ->required();
  flags->text_option = command->add_option("-p,--prompt", flags->text, "The text");
  command->add_option("-f,--file", flags->file,
                      "Read the text (any bytes) from FILE; - is standard input");
  flags->ids_option = command->add_option("--ids", flags->ids, "The way back: ids as in 1,2,3");
  command->add_flag("--special", flags->special,
                    "Control tokens written in the text become their ids");
  command->add_flag("--bos", flags->bos, "Put the begin token in front if the model wants one");
  command->add_flag("--json", flags->json, "Report as JSON: ids, pieces; with --ids: text");
  command->footer(
      "Without --json: a line per token, its id and its spelling in the vocabulary; with --ids the "
      "exact bytes.\n\n"
      "Example:\n  pocketlm tokenize smollm2-135m -p \"Hello world\"");
  command->callback([flags, action] { *action = [flags] { return Tokenize(*flags); }; });
}

}  // namespace pocketlm::cli
