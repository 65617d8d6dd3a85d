// What the chat tests share: rendering in one line, the public templates, their goldens.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "chat/chat_template.h"
#include "support/test_support.h"

namespace pocketlm::testing {

using Json = nlohmann::ordered_json;

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  EXPECT_TRUE(file.good()) << "cannot read " << path;
  return out.str();
}

// Renders `source` with `extra` as data; errors become "<code>: <message>".
inline std::string RenderOrError(const std::string& source, const Json& extra = Json::object(),
                                 std::vector<TextRange>* literal = nullptr) {
  auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return ErrorText(parsed);
  RenderInput input;
  input.messages = Json::array();
  input.add_generation_prompt = false;
  input.extra = extra;
  input.now = 1767139200;
  // Small enough for sanitizers.
  input.limits.max_steps = 2'000'000;
  input.limits.max_live_bytes = size_t{64} << 20;
  input.limits.max_output_bytes = size_t{16} << 20;
  auto prompt = parsed->Render(input);
  if (!prompt.ok()) return ErrorText(prompt);
  if (literal != nullptr) *literal = prompt->literal;
  return prompt->text;
}

// The output with its literal bytes between « and ».
inline std::string Marked(const RenderedPrompt& prompt) {
  std::string out;
  size_t at = 0;
  for (const TextRange& range : prompt.literal) {
    out += prompt.text.substr(at, range.begin - at) + "«" +
           prompt.text.substr(range.begin, range.end - range.begin) + "»";
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

// The bytes that the template wrote, with one 0x01 in place of each literal range.
inline std::string TrustedParts(const RenderedPrompt& prompt) {
  std::string out;
  size_t at = 0;
  for (const TextRange& range : prompt.literal) {
    out += prompt.text.substr(at, range.begin - at) + '\x01';
    at = range.end;
  }
  return out + prompt.text.substr(at);
}

inline std::vector<std::pair<std::string, std::string>> PublicTemplates() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(SourceDir() + "/tests/chat/templates")) {
    if (entry.path().extension() == ".jinja")
      out.emplace_back(entry.path().filename().string(), ReadAll(entry.path().string()));
  }
  return out;
}

inline RenderInput InputFromJson(const Json& request) {
  RenderInput input;
  input.messages = request.value("messages", Json::array());
  input.tools = request.value("tools", Json());
  input.add_generation_prompt = request.value("add_generation_prompt", false);
  input.extra = request.value("extra", Json::object());
  input.bos_token = request.value("bos_token", "");
  input.eos_token = request.value("eos_token", "");
  if (request.contains("now")) input.now = request["now"].get<int64_t>();
  return input;
}

}  // namespace pocketlm::testing
