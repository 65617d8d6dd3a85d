// Writes a bigram model (support/bigram_model.h) from a JSON description, for tests of the program:
//
//   make_bigram_model SPEC.json OUT.gguf
//
// {"vocabulary": "byte_level" | "sentencepiece",
//  "tokens":    [{"text": "<|im_end|>", "control": true}, {"text": "red"}, …],
//  "eos": "<|im_end|>", "eot": …, "bos": …, "add_bos": false,
//  "scripts":   [{"from": "x", "texts": ["red", "gre", 195], "then": "<|im_end|>"}, …],
//  "logits":    [["x", "a", 3.5], …],
//  "chat_template": "…", "context_length": 256, "nan_norm": false}
//
// All keys are optional. A token is given by its text, or a byte by its number. Missing tokens of a script
// are added; the tokens of a script must be distinct. Prints the ids of all added tokens as a JSON object.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "support/bigram_model.h"

namespace {

using nlohmann::json;
using pocketlm::testing::BigramModel;

std::string TokenText(const json& token) {
  if (token.is_number_integer()) return std::string(1, static_cast<char>(token.get<int>()));
  return token.get<std::string>();
}

int32_t FindOrAdd(BigramModel* model, const json& token) {
  const std::string text = TokenText(token);
  const int32_t id = model->Id(text);
  return id >= 0 ? id : model->AddToken(text);
}

BigramModel Build(const json& spec) {
  const bool sentencepiece = spec.value("vocabulary", "byte_level") == "sentencepiece";
  BigramModel model(sentencepiece ? BigramModel::Vocabulary::kSentencePiece
                                  : BigramModel::Vocabulary::kByteLevel);
  for (const json& token : spec.value("tokens", json::array())) {
    const bool control = token.value("control", false);
    model.AddToken(TokenText(token.at("text")),
                   control ? BigramModel::TokenKind::kControl : BigramModel::TokenKind::kNormal);
  }
  if (spec.contains("eos")) model.set_eos(FindOrAdd(&model, spec["eos"]));
  if (spec.contains("eot")) model.set_eot(FindOrAdd(&model, spec["eot"]));
  if (spec.contains("bos"))
    model.set_bos(FindOrAdd(&model, spec["bos"]), spec.value("add_bos", false));
  for (const json& script : spec.value("scripts", json::array())) {
    std::vector<std::string> texts;
    for (const json& token : script.at("texts")) texts.push_back(TokenText(token));
    const int32_t then = script.contains("then") ? FindOrAdd(&model, script["then"]) : model.eos();
    model.Script(FindOrAdd(&model, script.at("from")), texts, then);
  }
  for (const json& entry : spec.value("logits", json::array())) {
    model.SetLogit(FindOrAdd(&model, entry.at(0)), FindOrAdd(&model, entry.at(1)),
                   entry.at(2).get<float>());
  }
  model.set_chat_template(spec.value("chat_template", ""));
  model.set_context_length(spec.value("context_length", 256u));
  if (spec.value("nan_norm", false)) model.set_nan_norm();
  return model;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: make_bigram_model SPEC.json OUT.gguf\n";
    return 2;
  }
  try {
    std::ifstream in(argv[1]);
    const BigramModel model = Build(json::parse(in));
    std::ofstream out(argv[2], std::ios::binary);
    out << model.BuildGguf();
    out.close();
    if (!out) throw std::runtime_error(std::string("cannot write ") + argv[2]);
    json ids = json::object();
    for (int32_t id = 256; id < model.num_tokens(); ++id) ids[model.Text(id)] = id;
    std::cout << ids.dump(-1, ' ', true, json::error_handler_t::replace) << "\n";
  } catch (const std::exception& error) {
    std::cerr << "make_bigram_model: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
