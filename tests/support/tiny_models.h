// The tiny models of tests/goldens and what Transformers computed with them (tools/make_tiny_models.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/test_support.h"

namespace pocketlm::testing {

// Folder names below tests/goldens.
inline const std::vector<std::string>& TinyModelNames() {
  static const std::vector<std::string> names = {"tiny_qwen3",  "tiny_llama",  "tiny_llama_untied",
                                                 "tiny_llama3", "tiny_gemma3", "tiny_gemma3_vlm"};
  return names;
}

// The names but one, for what one model cannot show.
inline std::vector<std::string> TinyModelNamesWithout(const std::string& name) {
  std::vector<std::string> out = TinyModelNames();
  POCKETLM_CHECK(std::erase(out, name) == 1);
  return out;
}

// The one model that has no GGUF file: what it tests is a form of config.json.
inline constexpr char kFolderOnlyModel[] = "tiny_gemma3_vlm";

inline std::string TinyModelPath(const std::string& name, const std::string& form) {
  return JoinPath(JoinPath(SourceDir(), "tests/goldens"), name + "/" + form);
}

// Paths of every form of a model: the Hugging Face folder and, but for kFolderOnlyModel, the GGUF file.
inline std::vector<std::string> TinyModelForms(const std::string& name) {
  std::vector<std::string> out = {TinyModelPath(name, "hf")};
  if (name != kFolderOnlyModel) out.push_back(TinyModelPath(name, "model.gguf"));
  return out;
}

// The golden figures of one model.
class TinyGolden {
 public:
  explicit TinyGolden(const std::string& name) {
    std::ifstream text(TinyModelPath(name, "expected.json"));
    POCKETLM_CHECK(text.good());
    document_ = nlohmann::json::parse(text);
    std::ifstream binary(TinyModelPath(name, "expected.bin"), std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(binary)),
                            std::istreambuf_iterator<char>());
    floats_.resize(bytes.size() / sizeof(float));
    std::memcpy(floats_.data(), bytes.data(), floats_.size() * sizeof(float));
  }

  std::vector<std::vector<int32_t>> prompts() const {
    return document_.at("prompts").get<std::vector<std::vector<int32_t>>>();
  }
  const nlohmann::json& perplexity() const { return document_.at("perplexity"); }

  // The array `what` of a prompt: "logits" [vocab_size], "all_logits" [tokens, vocab_size], "hidden.N"
  // [tokens, hidden_size] before layer N. Empty if there is none.
  std::vector<float> Array(const std::string& what, size_t prompt) const {
    for (const nlohmann::json& array : document_.at("arrays")) {
      if (array.at("what") != what || array.at("prompt") != prompt) continue;
      size_t size = 1;
      for (const nlohmann::json& dimension : array.at("shape")) size *= dimension.get<size_t>();
      const size_t offset = array.at("offset").get<size_t>();
      POCKETLM_CHECK(offset + size <= floats_.size());
      return {floats_.begin() + static_cast<ptrdiff_t>(offset),
              floats_.begin() + static_cast<ptrdiff_t>(offset + size)};
    }
    return {};
  }

 private:
  nlohmann::json document_;
  std::vector<float> floats_;
};

// max |a − b| / max |b| over the values of `a`; `b` may be longer (logits of padding rows). Infinite if `a` is
// empty or longer than `b`, or if a value is NaN.
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  constexpr double kNotComparable = std::numeric_limits<double>::infinity();
  if (a.empty() || a.size() > b.size()) return kNotComparable;
  double difference = 0.0, largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(d)) return kNotComparable;
    difference = std::max(difference, d);
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return largest == 0.0 ? difference : difference / largest;
}

}  // namespace pocketlm::testing
