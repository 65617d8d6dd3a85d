// Streaming reader of tokenizer.json and tokenizer_config.json. Vocabulary and merges go straight into flat
// lists; small sections become JSON values; everything else is passed over. Internal to ParseTokenizerJson.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pocketlm::tokenizer_json {

using Json = nlohmann::json;

struct AddedTokenEntry {
  std::string content;
  int64_t id = -1;
  bool lstrip = false, rstrip = false, single_word = false, normalized = true, special = false;
};

// What a tokenizer.json holds.
struct Document {
  std::map<std::string, Json> sections;  // normalizer, pre_tokenizer, post_processor, decoder
  // Members of "model": type, unk_token, byte_fallback, …; of lists and objects only that they are ones.
  std::map<std::string, Json> model;
  std::vector<std::string> vocab;  // in file order
  std::vector<uint32_t> vocab_ids;
  std::vector<std::string> merges;  // as in TokenizerSpec
  std::vector<AddedTokenEntry> added;
  bool has_model = false;
  bool has_merges = false;
  bool vocab_is_list = false;  // Unigram
};

// Reads a tokenizer.json; see ParseTokenizerJson for limits and errors.
Result<Document> ReadDocument(std::string_view text);

// Reads the members of a JSON object whose names are in `names`; passes over the others.
Result<std::map<std::string, Json>> ReadMembers(std::string_view text,
                                                const std::vector<std::string>& names);

}  // namespace pocketlm::tokenizer_json
