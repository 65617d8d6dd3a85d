#include "compress/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <unordered_map>

#include "base/quote.h"

namespace pocketlm {
namespace {

class MetadataWriter {
 public:
  MetadataWriter(const GgufDescription& model, GgufFileWriter* writer,
                 std::vector<std::string>* notes)
      : model_(model), c_(*model.config), t_(*model.tokenizer), out_(writer), notes_(notes) {}

  Status Run() {
    General();
    POCKETLM_RETURN_IF_ERROR(Shape());
    Tokens();
    POCKETLM_RETURN_IF_ERROR(t_.kind == TokenizerKind::kByteLevelBpe ? ByteLevel()
                                                                     : SentencePiece());
    SpecialTokens();
    return OkStatus();
  }

 private:
  std::string Key(const char* suffix) const {
    return std::string(ArchitectureName(c_.architecture)) + "." + suffix;
  }

  void General() {
    out_->AddString("general.architecture", ArchitectureName(c_.architecture));
    out_->AddString("general.type", "model");
    if (!model_.name.empty()) out_->AddString("general.name", model_.name);
    if (!model_.license.empty()) out_->AddString("general.license", model_.license);
    out_->AddUint32("general.file_type", model_.file_type);
    out_->AddUint32("general.quantization_version", 2);
  }

  Status Shape() {
    const float implied = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
    if (std::abs(c_.attention_scale - implied) > 1e-6f * implied) {
      return Unsupported(
          "gguf: attention scale: expected 1/sqrt(head_dim) = " + std::to_string(implied) +
          ", got " + std::to_string(c_.attention_scale) + ", which GGUF has no key for");
    }
    out_->AddUint32(Key("context_length"), c_.max_position_embeddings);
    out_->AddUint32(Key("embedding_length"), c_.hidden_size);
    out_->AddUint32(Key("block_count"), c_.num_hidden_layers);
    out_->AddUint32(Key("feed_forward_length"), c_.intermediate_size);
    out_->AddUint32(Key("attention.head_count"), c_.num_attention_heads);
    out_->AddUint32(Key("attention.head_count_kv"), c_.num_key_value_heads);
    out_->AddUint32(Key("attention.key_length"), c_.head_dim);
    out_->AddUint32(Key("attention.value_length"), c_.head_dim);
    out_->AddFloat32(Key("attention.layer_norm_rms_epsilon"), c_.rms_norm_eps);
    out_->AddUint32(Key("vocab_size"), c_.vocab_size);
    out_->AddUint32(Key("rope.dimension_count"), c_.head_dim);
    out_->AddFloat32(Key("rope.freq_base"), c_.rope_theta);
    if (c_.rope_scaling.type == RopeScaling::Type::kLinear) {
      out_->AddString(Key("rope.scaling.type"), "linear");
      out_->AddFloat32(Key("rope.scaling.factor"), c_.rope_scaling.factor);
    }
    if (c_.sliding_window == 0) return OkStatus();
    out_->AddUint32(Key("attention.sliding_window"), c_.sliding_window);
    out_->AddFloat32(Key("rope.freq_base_swa"), c_.rope_local_base_freq);
    out_->AddBools(Key("attention.sliding_window_pattern"), SlidingLayers());
    return OkStatus();
  }

  std::vector<bool> SlidingLayers() const {
    std::vector<bool> out(c_.num_hidden_layers);
    for (size_t i = 0; i < out.size(); ++i) out[i] = c_.LayerIsSliding(i);
    return out;
  }

  void Tokens() {
    tokens_ = t_.tokens;
    types_.assign(tokens_.size(), static_cast<int32_t>(TokenType::kNormal) + 1);
    for (size_t i = 0; i < t_.types.size(); ++i) types_[i] = static_cast<int32_t>(t_.types[i]) + 1;
    const size_t rows = std::max<size_t>(tokens_.size(), c_.vocab_size);
    tokens_.resize(rows);
    types_.resize(rows);
    const std::set<std::string, std::less<>> taken(t_.tokens.begin(), t_.tokens.end());
    for (size_t i = 0; i < rows; ++i) {
      if (!tokens_[i].empty()) continue;
      tokens_[i] = "[PAD" + std::to_string(i) + "]";
      while (taken.contains(tokens_[i])) tokens_[i].insert(0, 1, '[');
      types_[i] = static_cast<int32_t>(TokenType::kUnused) + 1;
    }
    const bool byte_level = t_.kind == TokenizerKind::kByteLevelBpe;
    out_->AddString("tokenizer.ggml.model", byte_level ? "gpt2" : "llama");
    out_->AddStrings("tokenizer.ggml.tokens", tokens_);
    out_->AddInt32s("tokenizer.ggml.token_type", types_);
  }

  // The name that stands for the splitter and what it implies.
  Status PreTokenizer() {
    const char* name = nullptr;
    switch (t_.splitter) {
      case Splitter::kGpt2:
        name = "gpt-2";
        break;
      case Splitter::kQwen2:
        name = "qwen2";
        break;
      case Splitter::kLlama3:
        name = "llama-bpe";
        break;
      case Splitter::kSmolLm:
        name = "smollm";
        break;
      default:
        return Unsupported(
            "gguf: tokenizer: no tokenizer.ggml.pre stands for text that is not split");
    }
    TokenizerSpec implied;
    POCKETLM_RETURN_IF_ERROR(ApplyGgufPre(name, &implied));
    if (implied.nfc != t_.nfc || implied.ignore_merges != t_.ignore_merges) {
      notes_->push_back("tokenizer: tokenizer.ggml.pre \"" + std::string(name) +
                        "\" implies other settings for NFC or whole words than the source has");
    }
    out_->AddString("tokenizer.ggml.pre", name);
    return OkStatus();
  }

  // "left right" as readers divide it: at the first space after the first byte.
  Result<std::vector<std::string>> Merges() const {
    std::vector<std::string> merges = MergeTexts(t_);
    for (std::string& merge : merges) {
      const size_t divider = merge.find('\0');
      if (divider == std::string::npos) continue;
      merge[divider] = ' ';
      if (merge.find(' ', 1) != divider) {
        return Unsupported("gguf: tokenizer: the merge " + Quote(merge) +
                           " has parts with spaces, which GGUF cannot tell apart");
      }
    }
    return merges;
  }

  Status ByteLevel() {
    POCKETLM_RETURN_IF_ERROR(PreTokenizer());
    POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::string> merges, Merges());
    out_->AddStrings("tokenizer.ggml.merges", merges);
    out_->AddBool("tokenizer.ggml.add_space_prefix", t_.add_space_prefix);
    return OkStatus();
  }

  Status SentencePiece() {
    std::vector<float> scores = t_.scores.size() == t_.tokens.size() ? t_.scores : ScoresOfMerges();
    scores.resize(tokens_.size(), -1e4f);
    out_->AddString("tokenizer.ggml.pre", "default");
    out_->AddFloat32s("tokenizer.ggml.scores", scores);
    out_->AddBool("tokenizer.ggml.add_space_prefix", t_.add_space_prefix);
    if (!t_.byte_fallback)
      return Unsupported("gguf: tokenizer: expected bytes for unknown characters, got none");
    return OkStatus();
  }

  // Scores fall with the rank of the first merge that makes a token, as in the models that such lists of merges
  // were made from.
  std::vector<float> ScoresOfMerges() const {
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t i = 0; i < t_.tokens.size(); ++i) ids.emplace(t_.tokens[i], i);
    std::vector<float> scores(t_.tokens.size(), -1e9f);
    std::vector<bool> seen(scores.size());
    float next = 0.0f;
    for (const std::string& merge : MergeTexts(t_)) {
      size_t divider = merge.find('\0');
      if (divider == std::string::npos) divider = merge.find(' ', 1);
      if (divider == std::string::npos) continue;
      const std::string whole = merge.substr(0, divider) + merge.substr(divider + 1);
      const auto found = ids.find(whole);
      if (found == ids.end() || seen[found->second]) continue;
      seen[found->second] = true;
      scores[found->second] = next -= 1.0f;
    }
    return scores;
  }

  void SpecialTokens() {
    const auto add = [&](const char* key, int32_t id) {
      if (id >= 0) out_->AddUint32(key, static_cast<uint32_t>(id));
    };
    std::vector<int32_t> ends = model_.end_tokens;
    int32_t eos = t_.eos_id;
    if (eos < 0 && !ends.empty()) eos = ends.front();
    add("tokenizer.ggml.bos_token_id", t_.bos_id);
    add("tokenizer.ggml.eos_token_id", eos);
    add("tokenizer.ggml.unknown_token_id", t_.unk_id);
    add("tokenizer.ggml.padding_token_id", t_.pad_id);
    std::erase(ends, eos);
    std::erase_if(ends, [&](int32_t id) { return id >= static_cast<int32_t>(tokens_.size()); });
    if (!ends.empty()) add("tokenizer.ggml.eot_token_id", ends.front());
    if (ends.size() > 1) out_->AddInt32s("tokenizer.ggml.eos_token_ids", ends);
    out_->AddBool("tokenizer.ggml.add_bos_token", t_.add_bos);
    out_->AddBool("tokenizer.ggml.add_eos_token", t_.add_eos);
    for (const AddedTokenFlags& flags : t_.added_flags) {
      if (!flags.lstrip && !flags.rstrip && !flags.single_word) continue;
      notes_->push_back("tokenizer: GGUF does not say that added tokens take spaces beside them");
      break;
    }
    if (model_.chat_template) out_->AddString("tokenizer.chat_template", *model_.chat_template);
  }

  const GgufDescription& model_;
  const ModelConfig& c_;
  const TokenizerSpec& t_;
  GgufFileWriter* out_;
  std::vector<std::string>* notes_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
};

}  // namespace

Status AddGgufMetadata(const GgufDescription& model, GgufFileWriter* writer,
                       std::vector<std::string>* notes) {
  return MetadataWriter(model, writer, notes).Run();
}

std::vector<float> RopeFactors(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.type != RopeScaling::Type::kLlama3) return {};
  const double factor = static_cast<double>(scaling.factor);
  const double low = static_cast<double>(scaling.low_freq_factor);
  const double high = static_cast<double>(scaling.high_freq_factor);
  const double original = scaling.original_max_position_embeddings;
  std::vector<float> out(config.head_dim / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / config.head_dim;
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(static_cast<double>(config.rope_theta), exponent);
    double divisor = 1.0;
    if (wavelength > original / low) {
      divisor = factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    out[i] = static_cast<float>(divisor);
  }
  return out;
}

}  // namespace pocketlm
