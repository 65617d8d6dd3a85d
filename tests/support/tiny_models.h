// The tiny models of tests/goldens and what Transformers computed with them (tools/make_tiny_models.py).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
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

inline std::string TinyModelPath(const std::string& name, const std::string& form) {
  return JoinPath(JoinPath(SourceDir(), "tests/goldens"), name + "/" + form);
}

// Paths of every form of a model that there is: the Hugging Face folder and, for most, a GGUF file.
inline std::vector<std::string> TinyModelForms(const std::string& name) {
  std::vector<std::string> out = {TinyModelPath(name, "hf")};
  if (FileExists(TinyModelPath(name, "model.gguf")))
    out.push_back(TinyModelPath(name, "model.gguf"));
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

// max |a − b| / max |b| over the first min(a.size(), b.size()) values.
inline double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, largest = 0.0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= difference)) difference = d;  // also takes over a NaN
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return largest == 0.0 ? difference : difference / largest;
}

}  // namespace pocketlm::testing
