#include "runtime/inspect.h"

#include <nlohmann/json.hpp>

#include "base/cpu_info.h"
#include "base/utf8.h"
#include "model/plm_metadata.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxListedElements = 16;
constexpr size_t kMaxListedStringBytes = 4096;

// A string of the file, made valid UTF-8 and not too long for a report.
std::string Printable(std::string_view text) {
  std::string out = ReplaceInvalidUtf8(text.substr(0, kMaxListedStringBytes));
  if (text.size() > kMaxListedStringBytes) out += "…";
  return out;
}

ordered_json ArrayToJson(const GgufArray& array) {
  ordered_json out = ordered_json::array();
  if (array.size() > kMaxListedElements) {
    return {{"array_of", GgufTypeName(array.element_type())}, {"length", array.size()}};
  }
  if (array.is_string()) {
    for (std::string_view text : array.strings()) out.push_back(Printable(text));
    return out;
  }
  for (size_t i = 0; i < array.size(); ++i) {
    if (const auto integer = array.Int(i)) {
      out.push_back(*integer);
    } else if (const auto boolean = array.Bool(i)) {
      out.push_back(*boolean);
    } else if (const auto number = array.Float(i)) {
      out.push_back(*number);
    } else {
      out.push_back(nullptr);
    }
  }
  return out;
}

ordered_json MetadataValue(const GgufFile& file, std::string_view key) {
  switch (*file.TypeOf(key)) {
    case GgufType::kString:
      return Printable(*file.GetString(key));
    case GgufType::kBool:
      return *file.GetBool(key);
    case GgufType::kFloat32:
    case GgufType::kFloat64:
      return *file.GetFloat(key);
    case GgufType::kArray:
      return ArrayToJson(*file.GetArray(key));
    case GgufType::kUint64:
      return *file.GetUint(key);
    default:
      return *file.GetInt(key);
  }
}

ordered_json Metadata(const ModelSource& source) {
  if (source.plm) return ordered_json(source.plm->metadata());
  if (source.folder) return ordered_json{{"config.json", ordered_json(source.folder->config())}};
  nlohmann::json out =
      nlohmann::json::object();  // sorted: members of an ordered object are found by search
  for (size_t i = 0; i < source.gguf->num_keys(); ++i) {
    const std::string_view key = source.gguf->key(i);
    out[std::string(key)] = MetadataValue(*source.gguf, key);
  }
  return out;
}

// "Q4_1", or "u4 g64 zero4" of packed weights.
std::string TypeText(const TensorView& tensor) {
  if (!tensor.packed) return GetDTypeInfo(tensor.type).name;
  const PackedLayout& layout = tensor.packed->layout;
  std::string out = PackedTypeName(layout.type);
  out += " g" + std::to_string(layout.group_size);
  if (layout.offset != OffsetType::kNone) out += std::string(" ") + OffsetTypeName(layout.offset);
  return out;
}

ordered_json PlanJson(const MemoryPlan& plan) {
  return {{"weights_bytes", plan.weights},
          {"kv_bytes", plan.kv},
          {"arena_bytes", plan.arena},
          {"total_bytes", plan.total()}};
}

uint64_t CountParameters(const ModelSource& source) {
  uint64_t parameters = 0;
  for (const TensorView* tensor : source.Tensors()) {
    uint64_t values = 1;
    for (uint64_t d : tensor->shape) values *= d;
    parameters += values;
  }
  return parameters;
}

}  // namespace

MemoryPlan PlanMemory(const ModelSource& source, const SessionOptions& options,
                      const BackendOptions& backend) {
  MemoryPlan plan;
  for (const TensorView* tensor : source.Tensors()) plan.weights += tensor->data.size();
  plan.kv = KvCache::PlannedBytes(source.config, options.context_length, options.kv_k_type,
                                  options.kv_v_type);
  const BackendLimits limits =
      Decoder::Limits(source.config, options.prefill_chunk, options.context_length);
  plan.arena = Decoder::ScratchBytes(source.config, options.prefill_chunk) +
               CpuBackendScratchBytes(backend, limits) +
               uint64_t{source.config.vocab_size} * sizeof(float);
  return plan;
}

Result<ordered_json> InspectFile(const std::string& path, const SessionOptions& options) {
  POCKETLM_ASSIGN_OR_RETURN(const ModelSource source, OpenModelSource(path));
  POCKETLM_ASSIGN_OR_RETURN(const SessionOptions resolved,
                            ResolveSessionOptions(options, source.config));
  const BackendOptions backend{.num_threads = AvailableCpus()};
  ordered_json planned = PlanJson(PlanMemory(source, resolved, backend));
  planned.update({{"context_length", resolved.context_length},
                  {"num_threads", backend.num_threads},
                  {"kv_k_type", KvTypeName(resolved.kv_k_type)},
                  {"kv_v_type", KvTypeName(resolved.kv_v_type)}});
  ordered_json tensors = ordered_json::array();
  for (const TensorView* tensor : source.Tensors()) {
    tensors.push_back({{"name", Printable(tensor->name)},
                       {"type", TypeText(*tensor)},
                       {"shape", tensor->shape},
                       {"bytes", tensor->data.size()}});
  }
  return ordered_json{{"architecture", ArchitectureName(source.config.architecture)},
                      {"parameters", CountParameters(source)},
                      {"config", ConfigToPlmJson(source.config)},
                      {"memory_plan", std::move(planned)},
                      {"metadata", Metadata(source)},
                      {"tensors", std::move(tensors)}};
}

ordered_json DescribeSession(const Session& session) {
  const SessionOptions& options = session.options();
  const Model& model = session.model();
  const BackendOptions& backend = model.backend_options();
  return {{"context_length", options.context_length},
          {"prefill_chunk", options.prefill_chunk},
          {"kv_k_type", KvTypeName(options.kv_k_type)},
          {"kv_v_type", KvTypeName(options.kv_v_type)},
          {"num_threads", backend.num_threads},
          {"memory_plan", PlanJson(PlanMemory(model.source(), options, backend))}};
}

ordered_json DescribeModel(Model& model) {
  return ordered_json{{"architecture", ArchitectureName(model.config().architecture)},
                      {"parameters", CountParameters(model.source())},
                      {"config", ConfigToPlmJson(model.config())},
                      {"context_length", model.config().max_position_embeddings},
                      {"num_threads", model.backend().num_threads()},
                      {"cpu_variant", model.backend().name()},
                      {"activations", model.backend_options().float_activations ? "f32" : "int8"},
                      {"end_tokens", model.end_tokens()},
                      {"has_chat_template", model.chat_template() != nullptr}};
}

}  // namespace pocketlm
