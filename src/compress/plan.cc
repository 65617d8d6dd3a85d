#include "compress/plan.h"

#include <utility>

#include "base/quote.h"

namespace pocketlm {
namespace {

struct TypeName {
  const char* name;
  WeightType type;
  bool plm;
  bool gguf;
  bool folder;
};

constexpr TypeName kTypeNames[] = {
    {"int4", WeightType::kInt4, true, false, false},
    {"int8", WeightType::kInt8, true, false, false},
    {"q4_0", WeightType::kQ4_0, false, true, false},
    {"q4_1", WeightType::kQ4_1, false, true, false},
    {"q8_0", WeightType::kQ8_0, false, true, false},
    {"f16", WeightType::kF16, true, true, true},
    {"f32", WeightType::kF32, false, false, true},
};

const char* FormatText(ModelFormat format) {
  switch (format) {
    case ModelFormat::kPlm:
      return "a .plm file";
    case ModelFormat::kGguf:
      return "a .gguf file";
    case ModelFormat::kFolder:
      return "a folder";
  }
  return "";
}

bool Fits(const TypeName& entry, ModelFormat format) {
  return format == ModelFormat::kPlm    ? entry.plm
         : format == ModelFormat::kGguf ? entry.gguf
                                        : entry.folder;
}

Result<WeightType> ParseType(const char* option, ModelFormat format, std::string_view name) {
  std::string known;
  for (const TypeName& entry : kTypeNames) {
    if (!Fits(entry, format)) continue;
    if (name == entry.name) return entry.type;
    known += std::string(known.empty() ? "" : ", ") + entry.name;
  }
  return InvalidArgument(std::string(option) + ": expected " + known + " for " +
                         FormatText(format) + ", got " + Quote(name));
}

bool IsFourBit(WeightType type) {
  return type == WeightType::kInt4 || type == WeightType::kQ4_0 || type == WeightType::kQ4_1;
}

bool HasFourBitCodes(const ModelTensor& tensor) {
  RowCodes first;
  tensor.rows->Codes(0, &first);
  return first.layout.type == PackedType::kU4;
}

DType BlockType(WeightType type) {
  return type == WeightType::kQ4_0   ? DType::kQ4_0
         : type == WeightType::kQ4_1 ? DType::kQ4_1
                                     : DType::kQ8_0;
}

// The target that keeps the codes of a tensor that has some, if there is one. `type`: of 4 bits or not, as the codes are; for
// a GGUF file, which one.
Result<std::optional<TensorTarget>> KeptCodes(const ModelTensor& tensor, ModelFormat format,
                                              WeightType type, ThreadPool* pool,
                                              std::vector<std::string>* notes) {
  const std::optional<TensorTarget> none;
  POCKETLM_ASSIGN_OR_RETURN(const std::optional<PackedLayout> exact,
                            SmallestExactLayout(*tensor.rows, pool));
  TensorTarget target{std::nullopt, DType::kF32, true};
  if (format == ModelFormat::kGguf && !IsFourBit(type)) {
    target.type = DType::kQ8_0;  // which has the code -128
    return std::optional<TensorTarget>(target);
  }
  if (!exact) {
    notes->push_back(tensor.hf_name + ": the codes of " + tensor.stored_type +
                     " do not fit (-128), quantized anew");
    return none;
  }
  if (format == ModelFormat::kPlm) {
    target.packed = exact;
  } else if (type == WeightType::kQ4_0 && exact->offset != OffsetType::kNone) {
    return none;
  } else {
    target.type = BlockType(type);
  }
  return std::optional<TensorTarget>(target);
}

class Planner {
 public:
  Planner(ModelFormat format, const EncodingOptions& options, ThreadPool* pool,
          std::vector<std::string>* notes)
      : format_(format), options_(options), pool_(pool), notes_(notes) {}

  Result<TensorTarget> Target(const ModelTensor& tensor) {
    if (tensor.role == TensorRole::kVector) return TensorTarget{std::nullopt, DType::kF32};
    const WeightType type = TypeFor(tensor);
    if (format_ != ModelFormat::kFolder && type != WeightType::kF16 && tensor.rows->has_codes() &&
        !options_.requantize && HasFourBitCodes(tensor) == IsFourBit(type)) {
      auto kept = KeptCodes(tensor, format_, type, pool_, notes_);
      if (!kept.ok()) return kept.status().WithContext(tensor.hf_name);
      if (*kept) return **kept;
    }
    return Round(tensor, type);
  }

 private:
  WeightType TypeFor(const ModelTensor& tensor) const {
    if (tensor.role == TensorRole::kBody) return options_.type;
    if (options_.head_type) return *options_.head_type;
    if (!IsFourBit(options_.type) || !tensor.finer_than_4_bits) return options_.type;
    return format_ == ModelFormat::kPlm ? WeightType::kInt8 : WeightType::kQ8_0;
  }

  TensorTarget Round(const ModelTensor& tensor, WeightType type) {
    if (type == WeightType::kF32) return {std::nullopt, DType::kF32};
    const TensorTarget f16{std::nullopt, DType::kF16};
    if (type == WeightType::kF16) return f16;
    const uint64_t cols = tensor.shape.back();
    const uint32_t wanted = format_ == ModelFormat::kPlm ? options_.group_size : 32;
    uint32_t group_size = wanted;
    while (group_size >= 32 && cols % group_size != 0) group_size /= 2;
    if (group_size != wanted) {
      notes_->push_back(
          tensor.hf_name + ": rows of " + std::to_string(cols) + " are no whole groups of " +
          std::to_string(wanted) + ", stored " +
          (group_size >= 32 ? "in groups of " + std::to_string(group_size) : "as F16"));
    }
    if (group_size < 32) return f16;
    if (format_ == ModelFormat::kGguf) return {std::nullopt, BlockType(type)};
    PackedLayout layout{PackedType::kI8, OffsetType::kNone, group_size};
    if (type == WeightType::kInt4) layout = {PackedType::kU4, options_.offset, group_size};
    return {layout, DType::kF32};
  }

  ModelFormat format_;
  const EncodingOptions& options_;
  ThreadPool* pool_;
  std::vector<std::string>* notes_;
};

}  // namespace

Result<ModelFormat> FormatOfPath(std::string_view path) {
  if (path.ends_with(".plm")) return ModelFormat::kPlm;
  if (path.ends_with(".gguf")) return ModelFormat::kGguf;
  if (path.ends_with('/')) return ModelFormat::kFolder;
  return InvalidArgument(
      "output: expected a name that ends in .plm, .gguf or, for a folder, /, got " + Quote(path));
}

const char* WeightTypeName(WeightType type) {
  for (const TypeName& entry : kTypeNames) {
    if (entry.type == type) return entry.name;
  }
  return "unknown";
}

Result<EncodingOptions> ParseEncodingOptions(ModelFormat format, std::string_view type,
                                             std::string_view head_type, uint32_t group_size,
                                             std::string_view offset, bool requantize) {
  const bool plm = format == ModelFormat::kPlm;
  EncodingOptions options;
  options.requantize = requantize;
  options.type = plm                            ? WeightType::kInt4
                 : format == ModelFormat::kGguf ? WeightType::kQ4_1
                                                : WeightType::kF16;
  if (!type.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(options.type, ParseType("type", format, type));
  }
  if (!head_type.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(options.head_type, ParseType("head type", format, head_type));
  }
  if (group_size != 0) {
    if (format == ModelFormat::kFolder)
      return InvalidArgument("group size: expected none for a folder, got " +
                             std::to_string(group_size));
    if (!plm && group_size != 32) {
      return InvalidArgument("group size: expected 32 for a .gguf file, got " +
                             std::to_string(group_size));
    }
    if (group_size != 32 && group_size != 64 && group_size != 128) {
      return InvalidArgument("group size: expected 32, 64 or 128, got " +
                             std::to_string(group_size));
    }
    options.group_size = group_size;
  }
  if (offset.empty()) return options;
  for (const OffsetType known : {OffsetType::kNone, OffsetType::kZero4, OffsetType::kMinF16}) {
    if (plm && offset == OffsetTypeName(known)) {
      options.offset = known;
      return options;
    }
  }
  return InvalidArgument("offset: expected " +
                         (plm ? std::string("none, zero4 or min_f16")
                              : std::string("no such option for ") + FormatText(format)) +
                         ", got " + Quote(offset));
}

Result<std::vector<TensorTarget>> TargetChoices(const ModelTensor& tensor, ModelFormat format,
                                                const EncodingOptions& options, ThreadPool* pool) {
  const uint64_t rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<TensorTarget> all;
  if (format == ModelFormat::kGguf) {
    for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0})
      all.push_back({std::nullopt, type});
  } else {
    for (const uint32_t group_size : {128u, 64u, 32u})
      all.push_back({PackedLayout{PackedType::kU4, OffsetType::kZero4, group_size}});
    all.push_back({PackedLayout{PackedType::kU4, OffsetType::kMinF16, 32}});
    for (const uint32_t group_size : {128u, 32u})
      all.push_back({PackedLayout{PackedType::kI8, OffsetType::kNone, group_size}});
  }
  all.push_back({std::nullopt, DType::kF16});
  std::erase_if(all, [&](const TensorTarget& target) { return !TargetBytes(target, rows, cols); });
  if (!tensor.rows->has_codes() || options.requantize) return all;
  const WeightType type = HasFourBitCodes(tensor) ? WeightType::kQ4_1 : WeightType::kQ8_0;
  std::vector<std::string> notes;  // that codes do not fit is no news where types are chosen anyway
  POCKETLM_ASSIGN_OR_RETURN(const std::optional<TensorTarget> kept,
                            KeptCodes(tensor, format, type, pool, &notes));
  if (kept) all.push_back(*kept);
  return all;
}

Result<std::vector<TensorTarget>> PlanTargets(const std::vector<ModelTensor>& tensors,
                                              ModelFormat format, const EncodingOptions& options,
                                              ThreadPool* pool,
                                              const std::function<bool()>& proceed,
                                              std::vector<std::string>* notes) {
  Planner planner(format, options, pool, notes);
  std::vector<TensorTarget> targets;
  for (const ModelTensor& tensor : tensors) {
    if (!proceed()) return Cancelled("cancelled");
    POCKETLM_ASSIGN_OR_RETURN(targets.emplace_back(), planner.Target(tensor));
  }
  return targets;
}

}  // namespace pocketlm
