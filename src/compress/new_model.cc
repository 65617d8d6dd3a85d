#include "compress/new_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/quote.h"
#include "compress/synthetic_tokenizer.h"
#include "model/model_source.h"

namespace pocketlm {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A shape, and the id of <|endoftext|> in its vocabulary.
struct Shape {
  ModelConfig config;
  std::optional<uint32_t> pad_id;
};

struct NamedShape {
  const char* name;
  uint32_t vocab_size, pad_id, hidden_size, intermediate_size, layers, heads, kv_heads, head_dim;
};

constexpr NamedShape kNamedShapes[] = {
    {"pocket-0.3b", 65536, 65510, 896, 2560, 28, 14, 2, 64},
    {"qwen3-0.6b", 151936, 151643, 1024, 3072, 28, 16, 8, 128},
};

Shape FromNamed(const NamedShape& named) {
  Shape shape;
  ModelConfig& c = shape.config;
  c.architecture = Architecture::kQwen3;
  c.vocab_size = named.vocab_size;
  c.hidden_size = named.hidden_size;
  c.intermediate_size = named.intermediate_size;
  c.num_hidden_layers = named.layers;
  c.num_attention_heads = named.heads;
  c.num_key_value_heads = named.kv_heads;
  c.head_dim = named.head_dim;
  c.max_position_embeddings = 40960;
  c.tie_word_embeddings = true;
  c.rope_theta = 1e6f;
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(named.head_dim));
  c.has_qk_norm = true;
  shape.pad_id = named.pad_id;
  return shape;
}

std::optional<uint32_t> IdMember(const json& config, const char* key) {
  const auto it = config.find(key);
  if (it == config.end() || !it->is_number_integer() || *it < 0 || *it > UINT32_MAX)
    return std::nullopt;
  return it->get<uint32_t>();
}

Result<Shape> FindShape(const std::string& config) {
  std::string known;
  for (const NamedShape& named : kNamedShapes) {
    if (config == named.name) return FromNamed(named);
    known += std::string(named.name) + ", ";
  }
  if (!FileExists(config)) {
    return InvalidArgument("config: expected " + known + "or a config.json file, got " +
                           Quote(config));
  }
  POCKETLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(config, uint64_t{1} << 24));
  auto parsed = ParseJson(text);
  if (!parsed.ok()) return parsed.status().WithContext(config);
  auto read = ConfigFromHuggingFace(*parsed);
  if (!read.ok()) return read.status().WithContext(config);
  Shape shape{std::move(read).value(), IdMember(*parsed, "pad_token_id")};
  const std::optional<uint32_t> eos = IdMember(*parsed, "eos_token_id");
  if (!shape.pad_id && eos && *eos >= 2) shape.pad_id = *eos - 2;
  return shape;
}

Status AddTokenizer(const std::string& path, const Shape& shape, ModelContent* content) {
  const uint32_t rows = shape.config.vocab_size;
  if (path.empty()) {
    if (rows < kMinSyntheticVocabulary) {
      return InvalidArgument("vocab_size: expected at least " +
                             std::to_string(kMinSyntheticVocabulary) +
                             " for a synthetic vocabulary, got " + std::to_string(rows));
    }
    content->tokenizer = MakeSyntheticTokenizer(rows, shape.pad_id);
  } else {
    POCKETLM_ASSIGN_OR_RETURN(content->tokenizer, OpenTokenizerSpec(path));
    if (content->tokenizer.tokens.size() > rows) {
      return InvalidArgument("" + path + ": expected at most " + std::to_string(rows) +
                             " tokens (vocab_size of the config), got " +
                             std::to_string(content->tokenizer.tokens.size()));
    }
  }
  const TokenizerSpec& spec = content->tokenizer;
  const auto control = [&spec](const char* text) -> int32_t {
    const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
    const auto id = static_cast<size_t>(found - spec.tokens.begin());
    const bool is_control = id < spec.types.size() && spec.types[id] == TokenType::kControl;
    return is_control ? static_cast<int32_t>(id) : -1;
  };
  const int32_t end = control("<|im_end|>");
  if (end >= 0 && control("<|im_start|>") >= 0) content->chat_template = ChatMlTemplate();
  for (const int32_t id : {spec.eos_id, end}) {
    if (id >= 0) content->end_tokens.push_back(id);
  }
  std::sort(content->end_tokens.begin(), content->end_tokens.end());
  content->end_tokens.erase(std::unique(content->end_tokens.begin(), content->end_tokens.end()),
                            content->end_tokens.end());
  return OkStatus();
}

void AddTensors(uint64_t seed, ModelContent* content) {
  const ModelConfig& c = content->config;
  content->tensors = ListModelTensors(c, false);
  const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(c.num_hidden_layers));
  for (size_t i = 0; i < content->tensors.size(); ++i) {
    ModelTensor& tensor = content->tensors[i];
    const auto cols = static_cast<size_t>(tensor.shape.back());
    if (tensor.role == TensorRole::kVector) {
      tensor.rows = MakeVectorRow(std::vector<float>(cols, 1.0f));
      continue;
    }
    float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    const std::string& name = tensor.hf_name;
    if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight"))
      deviation *= residual;
    tensor.rows = MakeRandomRows(seed, i, static_cast<size_t>(tensor.shape[0]), cols, deviation);
  }
}

Result<ordered_json> WriteNew(const std::string& output, const NewModelOptions& options,
                              const ConversionProgress& progress) {
  const ConvertOptions& chosen = options.encoding;
  POCKETLM_ASSIGN_OR_RETURN(const ModelFormat format, FormatOfPath(output));
  POCKETLM_ASSIGN_OR_RETURN(
      const EncodingOptions encoding,
      ParseEncodingOptions(format, chosen.type, chosen.head_type, chosen.group_size, chosen.offset,
                           chosen.requantize));
  POCKETLM_ASSIGN_OR_RETURN(Shape shape, FindShape(options.config));
  ModelContent content;
  content.config = shape.config;
  content.config.norm_weights_minus_one = false;
  content.name = Shorten(options.config, 255);
  content.provenance = {{"program", chosen.program},
                        {"random_weights", {{"config", content.name}, {"seed", options.seed}}}};
  POCKETLM_RETURN_IF_ERROR(AddTokenizer(options.tokenizer, shape, &content));
  AddTensors(options.seed, &content);
  POCKETLM_ASSIGN_OR_RETURN(const ordered_json written,
                            WriteModel(content, output, encoding, chosen.num_threads, progress));
  ordered_json report = {{"config", options.config}, {"seed", options.seed}};
  report.update(written);
  return report;
}

}  // namespace

Result<ordered_json> WriteNewModel(const std::string& output, const NewModelOptions& options,
                                   const ConversionProgress& progress) {
  auto report = WriteNew(output, options, progress);
  if (!report.ok()) return report.status().WithContext("new");
  return report;
}

}  // namespace pocketlm
