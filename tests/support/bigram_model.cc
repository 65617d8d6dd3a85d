#include "support/bigram_model.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/utf8.h"
#include "support/safetensors_writer.h"
#include "support/test_support.h"

namespace pocketlm::testing {
namespace {

// Far below 1 / hidden_size, so that adding it changes nothing.
constexpr float kEpsilon = 1e-20f;
constexpr int kNumBytes = 256;

// GPT-2's spelling of a byte: itself where it prints, else U+0100 and up in order.
char32_t ByteLevelCodepoint(int byte) {
  const auto prints = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  if (prints(byte)) return static_cast<char32_t>(byte);
  int rank = 0;
  for (int b = 0; b < byte; ++b) rank += !prints(b);
  return static_cast<char32_t>(0x100 + rank);
}

std::string ByteLevelSpelling(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) AppendUtf8(ByteLevelCodepoint(static_cast<unsigned char>(c)), &out);
  return out;
}

std::string SentencePieceSpelling(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string("\xE2\x96\x81") : std::string(1, c);
  return out;
}

std::string WithCrLf(const std::string& text) {
  std::string out = "\xEF\xBB\xBF";
  for (const char c : text) out += c == '\n' ? std::string("\r\n") : std::string(1, c);
  return out;
}

}  // namespace

BigramModel::BigramModel(Vocabulary vocabulary) : vocabulary_(vocabulary) {
  for (int b = 0; b < kNumBytes; ++b)
    tokens_.push_back({std::string(1, static_cast<char>(b)), TokenKind::kNormal});
  if (vocabulary_ == Vocabulary::kSentencePiece) AddControl("<unk>");
}

int32_t BigramModel::AddToken(std::string_view text, TokenKind kind) {
  tokens_.push_back({std::string(text), kind});
  return num_tokens() - 1;
}

int32_t BigramModel::Id(std::string_view text) const {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].text == text) return static_cast<int32_t>(i);
  }
  return -1;
}

std::vector<int32_t> BigramModel::Script(int32_t from, const std::vector<std::string>& texts,
                                         int32_t then) {
  std::vector<int32_t> ids;
  for (const std::string& text : texts) {
    int32_t id = Id(text);
    if (id < 0) id = AddToken(text);
    SetSuccessor(ids.empty() ? from : ids.back(), id);
    ids.push_back(id);
  }
  SetSuccessor(ids.empty() ? from : ids.back(), then);
  return ids;
}

std::vector<int32_t> BigramModel::ScriptBytes(int32_t from, std::string_view bytes, int32_t then) {
  std::vector<std::string> texts;
  for (const char c : bytes) texts.emplace_back(1, c);
  return Script(from, texts, then);
}

size_t BigramModel::HiddenSize(size_t rows) const {
  size_t hidden = 16;
  while (hidden < rows) hidden *= 4;
  return hidden;
}

std::string BigramModel::Piece(size_t id) const {
  const Token& token = tokens_[id];
  if (token.kind != TokenKind::kNormal) return token.text;
  if (vocabulary_ == Vocabulary::kByteLevel) return ByteLevelSpelling(token.text);
  if (id >= kNumBytes) return SentencePieceSpelling(token.text);
  char name[8];
  std::snprintf(name, sizeof(name), "<0x%02X>", static_cast<unsigned>(id));
  return name;
}

std::vector<float> BigramModel::Embeddings(size_t rows) const {
  const size_t hidden = HiddenSize(rows);
  std::vector<float> out(rows * hidden);
  for (size_t i = 0; i < rows; ++i) out[i * hidden + i] = 1.0f;
  return out;
}

std::vector<float> BigramModel::Head(size_t rows, float padding_logit) const {
  const size_t hidden = HiddenSize(rows);
  // A one-hot row of width H has mean square 1 / H: the final norm multiplies it by sqrt(H).
  const float scale = 1.0f / std::sqrt(static_cast<float>(hidden));
  std::vector<float> out(rows * hidden);
  for (int32_t from = 0; from < num_tokens(); ++from) {
    const auto row = logits_.find(from);
    if (row != logits_.end()) {
      for (const auto& [token, logit] : row->second)
        out[static_cast<size_t>(token) * hidden + from] = logit * scale;
    } else if (eos_ >= 0) {
      out[static_cast<size_t>(eos_) * hidden + from] = kSuccessorLogit * scale;
    }
  }
  for (size_t token = tokens_.size(); token < rows; ++token) {
    for (size_t from = 0; from < tokens_.size(); ++from)
      out[token * hidden + from] = padding_logit * scale;
  }
  return out;
}

std::vector<float> BigramModel::FinalNorm(size_t rows) const {
  return std::vector<float>(HiddenSize(rows),
                            nan_norm_ ? std::numeric_limits<float>::quiet_NaN() : 1.0f);
}

void BigramModel::AddTokenizer(GgufWriter* writer) const {
  constexpr int32_t kNormalType = 1, kUnknownType = 2, kControlType = 3, kUserDefinedType = 4,
                    kByteType = 6;
  const bool sentencepiece = vocabulary_ == Vocabulary::kSentencePiece;
  std::vector<std::string> pieces;
  std::vector<int32_t> types;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    pieces.push_back(Piece(i));
    int32_t type = kNormalType;
    if (tokens_[i].kind == TokenKind::kControl) type = kControlType;
    if (tokens_[i].kind == TokenKind::kUserDefined) type = kUserDefinedType;
    if (sentencepiece && i < kNumBytes) type = kByteType;
    if (sentencepiece && i == kNumBytes) type = kUnknownType;
    types.push_back(type);
  }
  writer->AddString("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
  writer->AddString("tokenizer.ggml.pre", sentencepiece ? "default" : "gpt-2");
  writer->AddStrings("tokenizer.ggml.tokens", pieces);
  writer->AddArray("tokenizer.ggml.token_type", types);
  if (sentencepiece) {
    writer->AddArray("tokenizer.ggml.scores", std::vector<float>(tokens_.size(), -1e6f));
    writer->Add("tokenizer.ggml.unknown_token_id", uint32_t{kNumBytes});
    writer->Add("tokenizer.ggml.add_space_prefix", false);
  } else {
    writer->AddStrings("tokenizer.ggml.merges", {});
  }
  if (eos_ >= 0) writer->Add("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(eos_));
  if (eot_ >= 0) writer->Add("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(eot_));
  if (bos_ >= 0) writer->Add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos_));
  writer->Add("tokenizer.ggml.add_bos_token", add_bos_);
  if (!chat_template_.empty()) writer->AddString("tokenizer.chat_template", chat_template_);
}

std::string BigramModel::BuildGguf() const {
  const uint64_t rows = tokens_.size(), hidden = HiddenSize(rows);
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  writer.Add("llama.context_length", context_length_);
  writer.Add("llama.embedding_length", static_cast<uint32_t>(hidden));
  writer.Add("llama.block_count", uint32_t{1});
  writer.Add("llama.feed_forward_length", uint32_t{2});
  writer.Add("llama.attention.head_count", uint32_t{1});
  writer.Add("llama.attention.head_count_kv", uint32_t{1});
  writer.Add("llama.attention.key_length", uint32_t{2});
  writer.Add("llama.attention.value_length", uint32_t{2});
  writer.Add("llama.rope.dimension_count", uint32_t{2});
  writer.Add("llama.rope.freq_base", 10000.0f);
  writer.Add("llama.attention.layer_norm_rms_epsilon", kEpsilon);
  writer.Add("llama.vocab_size", static_cast<uint32_t>(rows));
  AddTokenizer(&writer);
  const std::vector<float> zeros(2 * hidden), ones(hidden, 1.0f);
  writer.AddFloats("token_embd.weight", {rows, hidden}, Embeddings(rows));
  writer.AddFloats("output.weight", {rows, hidden}, Head(rows, 0.0f));
  writer.AddFloats("output_norm.weight", {hidden}, FinalNorm(rows));
  writer.AddFloats("blk.0.attn_norm.weight", {hidden}, ones);
  writer.AddFloats("blk.0.ffn_norm.weight", {hidden}, ones);
  for (const char* name : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"}) {
    writer.AddFloats("blk.0." + std::string(name) + ".weight", {2, hidden}, zeros);
  }
  writer.AddFloats("blk.0.attn_output.weight", {hidden, 2}, zeros);
  writer.AddFloats("blk.0.ffn_down.weight", {hidden, 2}, zeros);
  return writer.Build();
}

std::string BigramModel::WriteGguf() const {
  const std::string path = JoinPath(ScratchDir(), "model.gguf");
  WriteFileOrDie(path, BuildGguf());
  return path;
}

std::string BigramModel::TokenizerJson() const {
  using nlohmann::json;
  json vocab = json::object(), added = json::array();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].kind == TokenKind::kNormal) {
      vocab[Piece(i)] = i;
      continue;
    }
    added.push_back({{"id", i},
                     {"content", tokens_[i].text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", tokens_[i].kind == TokenKind::kControl}});
  }
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", vocab},
                      {"merges", json::array()}};
  return json({{"version", "1.0"},
               {"truncation", nullptr},
               {"padding", nullptr},
               {"added_tokens", added},
               {"normalizer", nullptr},
               {"pre_tokenizer", byte_level},
               {"post_processor", nullptr},
               {"decoder", byte_level},
               {"model", model}})
      .dump(1);
}

std::string BigramModel::WriteHuggingFace(const HuggingFaceOptions& options) const {
  using nlohmann::json;
  POCKETLM_CHECK(vocabulary_ == Vocabulary::kByteLevel);
  const std::string folder = ScratchDir();
  const auto write = [&](const char* name, const json& value) {
    const std::string text = value.dump(1) + "\n";
    WriteFileOrDie(JoinPath(folder, name), options.crlf ? WithCrLf(text) : text);
  };
  const uint64_t rows = tokens_.size() + static_cast<size_t>(options.padding_rows),
                 hidden = HiddenSize(rows);
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", "llama"},
                 {"vocab_size", rows},
                 {"hidden_size", hidden},
                 {"intermediate_size", 2},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 1},
                 {"num_key_value_heads", 1},
                 {"head_dim", 2},
                 {"rms_norm_eps", kEpsilon},
                 {"rope_theta", 10000.0},
                 {"tie_word_embeddings", false},
                 {"max_position_embeddings", context_length_},
                 {"hidden_act", "silu"}};
  if (eos_ >= 0) config["eos_token_id"] = eos_;
  write("config.json", config);
  if (!options.generation_eos.empty())
    write("generation_config.json", {{"eos_token_id", options.generation_eos}});
  json tokenizer_config = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_bos_token", add_bos_}};
  if (eos_ >= 0) tokenizer_config["eos_token"] = tokens_[static_cast<size_t>(eos_)].text;
  if (bos_ >= 0) tokenizer_config["bos_token"] = tokens_[static_cast<size_t>(bos_)].text;
  if (!chat_template_.empty()) tokenizer_config["chat_template"] = chat_template_;
  write("tokenizer_config.json", tokenizer_config);
  const std::string tokenizer = TokenizerJson() + "\n";
  WriteFileOrDie(JoinPath(folder, "tokenizer.json"),
                 options.crlf ? WithCrLf(tokenizer) : tokenizer);
  const std::vector<float> zeros(2 * hidden), ones(hidden, 1.0f);
  SafetensorsWriter writer;
  writer.AddFloats("model.embed_tokens.weight", {rows, hidden}, Embeddings(rows));
  writer.AddFloats("lm_head.weight", {rows, hidden}, Head(rows, 2 * kSuccessorLogit));
  writer.AddFloats("model.norm.weight", {hidden}, FinalNorm(rows));
  const std::string layer = "model.layers.0.";
  writer.AddFloats(layer + "input_layernorm.weight", {hidden}, ones);
  writer.AddFloats(layer + "post_attention_layernorm.weight", {hidden}, ones);
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "mlp.gate_proj", "mlp.up_proj"}) {
    writer.AddFloats(layer + name + ".weight", {2, hidden}, zeros);
  }
  writer.AddFloats(layer + "self_attn.o_proj.weight", {hidden, 2}, zeros);
  writer.AddFloats(layer + "mlp.down_proj.weight", {hidden, 2}, zeros);
  WriteFileOrDie(JoinPath(folder, "model.safetensors"), writer.Build());
  return folder;
}

}  // namespace pocketlm::testing
