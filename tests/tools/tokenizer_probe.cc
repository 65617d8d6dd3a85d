// A tokenizer on standard input and output, for tests that compare it with another implementation.
//
// Usage: tokenizer_probe [--scores] [--write] tokenizer.json [tokenizer_config.json]
//   --scores  the JSON is a list of {"token", "type", "score"} for a SentencePiece vocabulary, as GGUF has it
//   --write   no commands: the tokenizer.json that WriteTokenizerJson makes of it goes to standard output
// Input: commands, each one byte and a uint32 size (little-endian), then that many bytes.
//   'e' text: ids, control tokens as text      's' text: ids, control tokens parsed
//   'd' uint32 ids: decoded text               'i' uint32 ids: the same by IncrementalDetokenizer
//   'b' text: ids by Encode, 20 times, and the throughput in MB/s on standard error
// Output: for each command a uint32 size in bytes and the bytes (ids as uint32).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_writer.h"

namespace {

using pocketlm::Tokenizer;

bool ReadExactly(void* data, size_t size) { return std::fread(data, 1, size, stdin) == size; }

void Write(const void* data, size_t size_bytes) {
  const auto size = static_cast<uint32_t>(size_bytes);
  std::fwrite(&size, 4, 1, stdout);
  std::fwrite(data, 1, size_bytes, stdout);
  std::fflush(stdout);
}

double Seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::vector<int32_t> Ids(const std::string& bytes) {
  std::vector<int32_t> ids(bytes.size() / 4);
  std::memcpy(ids.data(), bytes.data(), ids.size() * 4);
  return ids;
}

std::vector<int32_t> Measure(const Tokenizer& t, const std::string& text) {
  const double start = Seconds();
  std::vector<int32_t> ids;
  for (int i = 0; i < 20; ++i) ids = t.Encode(text);
  std::fprintf(stderr, "encode: %.1f MB/s\n",
               20e-6 * static_cast<double>(text.size()) / (Seconds() - start));
  return ids;
}

void Answer(const Tokenizer& t, char command, const std::string& data) {
  if (command == 'd') {
    const std::string text = t.Decode(Ids(data), false);
    return Write(text.data(), text.size());
  }
  if (command == 'i') {
    pocketlm::IncrementalDetokenizer stream(&t, false);
    std::string text;
    for (const int32_t id : Ids(data)) text += stream.Push(id);
    text += stream.Flush();
    return Write(text.data(), text.size());
  }
  Tokenizer::EncodeOptions options;
  options.parse_special = command == 's';
  const std::vector<int32_t> ids = command == 'b' ? Measure(t, data) : t.Encode(data, options);
  Write(ids.data(), ids.size() * 4);
}

pocketlm::Result<pocketlm::TokenizerSpec> SpecFromScores(const std::string& text) {
  pocketlm::TokenizerSpec spec;
  spec.kind = pocketlm::TokenizerKind::kSentencePieceBpe;
  for (const auto& entry : nlohmann::json::parse(text)) {
    spec.tokens.push_back(entry["token"]);
    spec.types.push_back(static_cast<pocketlm::TokenType>(entry["type"].get<int>() - 1));
    spec.scores.push_back(entry["score"]);
  }
  return spec;
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "tokenizer_probe: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  int first = 1;
  const auto option = [&](const char* name) {
    const bool given = argc > first + 1 && std::strcmp(argv[first], name) == 0;
    first += given;
    return given;
  };
  const bool scores = option("--scores");
  const bool write = option("--write");
  if (argc <= first) return Fail("expected a file");
  auto json = pocketlm::ReadFile(argv[first]);
  if (!json.ok()) return Fail(json.status().message());
  std::string config;
  if (argc > first + 1) {
    auto read = pocketlm::ReadFile(argv[first + 1]);
    if (!read.ok()) return Fail(read.status().message());
    config = *read;
  }
  const double start = Seconds();
  auto spec = scores ? SpecFromScores(*json) : pocketlm::ParseTokenizerJson(*json, config);
  if (!spec.ok()) return Fail(spec.status().message());
  if (write) {
    const auto text = pocketlm::WriteTokenizerJson(*spec);
    if (!text.ok()) return Fail(text.status().message());
    std::fwrite(text->data(), 1, text->size(), stdout);
    return 0;
  }
  const double parsed = Seconds();
  auto tokenizer = Tokenizer::Create(std::move(spec).value());
  if (!tokenizer.ok()) return Fail(tokenizer.status().message());
  std::fprintf(stderr, "parse: %.0f ms, create: %.0f ms\n", 1e3 * (parsed - start),
               1e3 * (Seconds() - parsed));
  char command;
  uint32_t size;
  while (ReadExactly(&command, 1) && ReadExactly(&size, 4)) {
    std::string data(size, '\0');
    if (!ReadExactly(data.data(), size)) return Fail("input ends early");
    Answer(**tokenizer, command, data);
  }
  return 0;
}
