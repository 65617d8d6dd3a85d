#include "compress/synthetic_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "tokenizer/byte_alphabet.h"

namespace pocketlm {
namespace {

struct AddedName {
  const char* text;
  TokenType type;
};

constexpr TokenType kControl = TokenType::kControl;
constexpr TokenType kUser = TokenType::kUserDefined;

// Qwen3's added tokens in the order of their ids.
constexpr AddedName kAddedNames[] = {{"<|endoftext|>", kControl},
                                     {"<|im_start|>", kControl},
                                     {"<|im_end|>", kControl},
                                     {"<|object_ref_start|>", kControl},
                                     {"<|object_ref_end|>", kControl},
                                     {"<|box_start|>", kControl},
                                     {"<|box_end|>", kControl},
                                     {"<|quad_start|>", kControl},
                                     {"<|quad_end|>", kControl},
                                     {"<|vision_start|>", kControl},
                                     {"<|vision_end|>", kControl},
                                     {"<|vision_pad|>", kControl},
                                     {"<|image_pad|>", kControl},
                                     {"<|video_pad|>", kControl},
                                     {"<tool_call>", kUser},
                                     {"</tool_call>", kUser},
                                     {"<|fim_prefix|>", kUser},
                                     {"<|fim_middle|>", kUser},
                                     {"<|fim_suffix|>", kUser},
                                     {"<|fim_pad|>", kUser},
                                     {"<|repo_name|>", kUser},
                                     {"<|file_sep|>", kUser},
                                     {"<tool_response>", kUser},
                                     {"</tool_response>", kUser},
                                     {"<think>", kUser},
                                     {"</think>", kUser}};
constexpr uint32_t kNumAdded = static_cast<uint32_t>(std::size(kAddedNames));
constexpr uint32_t kNumMarkers = 3;
constexpr uint32_t kNumBytes = 256;

// Common bytes of English text, then of Chinese in UTF-8, then the rest: earlier ones join more merges.
std::vector<uint8_t> BytesByUse() {
  constexpr std::string_view kCommon =
      " etaoinshrdlcumwfgypbvkTASIMCWBHPDNEFLROGxjqz.,0123456789-'\n\"";
  std::vector<uint8_t> out(kCommon.begin(), kCommon.end());
  const auto add = [&out](int byte) {
    const auto value = static_cast<uint8_t>(byte);
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  };
  for (int byte = 0xE4; byte <= 0xE9; ++byte) add(byte);
  for (int byte = 0x80; byte <= 0xBF; ++byte) add(byte);
  for (int byte = 0; byte < static_cast<int>(kNumBytes); ++byte) add(byte);
  return out;
}

// Adds `count` merges and their tokens. Tokens number i and j of the list so far, from 1, are joined in the order of
// i · j, which favours what is common, as a trained vocabulary does.
void AddMerges(uint32_t count, TokenizerSpec* spec) {
  std::vector<uint32_t> ranked;
  for (const uint8_t byte : BytesByUse()) ranked.push_back(byte);
  std::unordered_set<std::string> taken(spec->tokens.begin(), spec->tokens.end());
  spec->merges.reserve(count);
  const auto merge = [&](size_t left, size_t right) {
    if (std::max(left, right) > ranked.size() || spec->merges.size() == count) return;
    const std::string& a = spec->tokens[ranked[left - 1]];
    const std::string& b = spec->tokens[ranked[right - 1]];
    std::string joined = a + b;
    if (!taken.insert(joined).second) return;
    spec->merges.push_back(a + " " + b);
    ranked.push_back(static_cast<uint32_t>(spec->tokens.size()));
    spec->tokens.push_back(std::move(joined));
  };
  for (size_t product = 1; spec->merges.size() < count; ++product) {
    for (size_t left = 1; left * left <= product; ++left) {
      if (product % left != 0) continue;
      merge(left, product / left);
      if (left * left != product) merge(product / left, left);
    }
  }
}

}  // namespace

TokenizerSpec MakeSyntheticTokenizer(uint32_t vocab_size, std::optional<uint32_t> pad_id) {
  uint32_t added = vocab_size >= kNumBytes + kNumAdded ? kNumAdded : kNumMarkers;
  uint32_t first_added = vocab_size - added;
  if (pad_id && *pad_id >= kNumBytes && *pad_id + kNumMarkers <= vocab_size) {
    first_added = *pad_id;
    added = vocab_size - first_added >= kNumAdded ? kNumAdded : kNumMarkers;
  }
  TokenizerSpec spec;
  spec.splitter = Splitter::kGpt2;
  spec.tokens.reserve(first_added + added);
  for (uint32_t byte = 0; byte < kNumBytes; ++byte)
    AppendByteCharacter(static_cast<unsigned char>(byte), &spec.tokens.emplace_back());
  AddMerges(first_added - kNumBytes, &spec);
  spec.types.assign(first_added, TokenType::kNormal);
  for (uint32_t i = 0; i < added; ++i) {
    spec.tokens.emplace_back(kAddedNames[i].text);
    spec.types.push_back(kAddedNames[i].type);
  }
  spec.pad_id = static_cast<int32_t>(first_added);
  spec.eos_id = static_cast<int32_t>(first_added + 2);
  return spec;
}

std::string ChatMlTemplate() {
  return "{%- for message in messages -%}\n"
         "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + "
         "'<|im_end|>\\n' -}}\n"
         "{%- endfor -%}\n"
         "{%- if add_generation_prompt -%}\n"
         "{{- '<|im_start|>assistant\\n' -}}\n"
         "{%- endif -%}\n";
}

}  // namespace pocketlm
