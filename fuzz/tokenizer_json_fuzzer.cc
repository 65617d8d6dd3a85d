// A hostile tokenizer.json, and the tokenizer that comes of it where it is accepted.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A line of three dashes divides the file from tokenizer_config.json.
  const size_t divider = text.find("\n---\n");
  const bool has_config = divider != std::string_view::npos;
  auto spec = pocketlm::ParseTokenizerJson(
      text.substr(0, divider), has_config ? text.substr(divider + 5) : std::string_view());
  if (!spec.ok()) return 0;
  auto tokenizer = pocketlm::Tokenizer::Create(std::move(spec).value());
  if (!tokenizer.ok()) return 0;
  const pocketlm::Tokenizer& t = **tokenizer;
  for (const std::string_view probe :
       {std::string_view("Hello <|a|> ab \xE6\x9C\xA8\xFF  12\n\n"), text.substr(0, 2000)}) {
    for (const bool special : {false, true}) {
      const auto ids = t.Encode(probe, {.parse_special = special});
      for (const int32_t id : ids) {
        if (!t.IsValid(id)) __builtin_trap();
      }
      (void)t.Decode(ids, special);
    }
  }
  return 0;
}
