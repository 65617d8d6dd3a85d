// Decides what every tensor of a model becomes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "compress/encode_tensor.h"
#include "compress/model_tensors.h"
#include "compress/text_corpus.h"

namespace pocketlm {

enum class ModelFormat { kPlm, kGguf, kFolder };

// The format that a path's ending names: .plm, .gguf, or / for a folder; kInvalidArgument for other ones.
Result<ModelFormat> FormatOfPath(std::string_view path);

// int4, int8 and f16 go to .plm files; q4_0, q4_1, q8_0 and f16 to GGUF; f16 and f32 to a folder.
enum class WeightType { kInt4, kInt8, kF16, kF32, kQ4_0, kQ4_1, kQ8_0 };

const char* WeightTypeName(WeightType type);

struct EncodingOptions {
  WeightType type = WeightType::kInt4;
  // Of the embedding table and the output head. Absent: as `type`; but with int4, q4_0 and q4_1 a table that is
  // stored in 5 to 8 bits becomes int8 or q8_0.
  std::optional<WeightType> head_type;
  uint32_t group_size = 64;                // 32, 64, 128: of what is quantized anew for .plm
  OffsetType offset = OffsetType::kZero4;  // int4 that is quantized anew for .plm
  bool requantize = false;                 // do not keep codes that fit exactly
  // More than 0: types are chosen by what they cost on the calibration texts, so that the file has this many bytes at
  // most; type, head_type, group_size and offset do not count then.
  uint64_t target_bytes = 0;
  // With texts, all that is rounded to 4 bits but a table that is no head are rounded for them (gptq.h).
  std::vector<CorpusText> calibration;
};

// Reads options as users write them; "" and 0 are the defaults for the format (int4, q4_1 or f16; zero4, 64).
// kInvalidArgument names the option, what is allowed and what was given.
Result<EncodingOptions> ParseEncodingOptions(ModelFormat format, std::string_view type,
                                             std::string_view head_type, uint32_t group_size,
                                             std::string_view offset, bool requantize);

// Targets of all tensors, in order.
//   Vectors are F32. Matrices: codes that the target type holds exactly are kept bit for bit, in the smallest exact
//   layout (u4 codes for int4, q4_1 and, without offsets, q4_0; i8 codes, Q5_0's too, for int8 and q8_0). All else is rounded to
//   the type asked for. A row that is no whole number of groups takes the next smaller group size that fits, or
//   F16. Each deviation from what was asked for is one line in *notes.
// Errors  kDataError naming tensor and row: scales that are not finite. kCancelled: `proceed` returned false.
Result<std::vector<TensorTarget>> PlanTargets(const std::vector<ModelTensor>& tensors,
                                              ModelFormat format, const EncodingOptions& options,
                                              ThreadPool* pool,
                                              const std::function<bool()>& proceed,
                                              std::vector<std::string>* notes);

// The targets among which a matrix may be stored when the size decides, smallest first but for kept codes, which come
// last if there are any that fit. The first one is in 4 bits, in F16 where rows are no whole groups.
// kDataError: codes whose scale is not finite.
Result<std::vector<TensorTarget>> TargetChoices(const ModelTensor& tensor, ModelFormat format,
                                                const EncodingOptions& options, ThreadPool* pool);

}  // namespace pocketlm
