#include "compress/write_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "base/cpu_info.h"
#include "base/log.h"
#include "compress/calibration.h"
#include "compress/gguf_metadata.h"
#include "compress/gptq.h"
#include "compress/sensitivity.h"
#include "compress/size_budget.h"
#include "format/gguf_writer.h"
#include "format/plm_writer.h"
#include "format/safetensors_writer.h"
#include "model/plm_metadata.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_writer.h"

namespace pocketlm {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Shares of the work, for the progress bar.
constexpr double kPlanShare = 0.1;
constexpr double kPlanShareForSize = 0.6;
constexpr double kVerifyShare = 0.3;  // of what is left

// Languages, digits, spaces, a combining mark and symbols: what tokenizers treat in ways of their own.
constexpr const char* kTokenizerSample =
    "The quick brown fox doesn't jump 1234567 times.\n\n  fn main() { x += 0x1F; }\t\r\n"
    "\xE4\xBB\x8A\xE5\xA4\xA9\xE5\xA4\xA9\xE6\xB0\x94\xE5\xBE\x88\xE5\xA5\xBD\xEF\xBC\x8C"
    "\xE6\x88\x91\xE4\xBB\xAC\xE5\x8E\xBB\xE5\x85\xAC\xE5\x9B\xAD\xE3\x80\x82 caf\xC3\xA9 "
    "cafe\xCC\x81 "
    "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xF0\x9F\xA6\x99   <|im_start|>";

// The temporary file or folder: removed unless it got its name.
class Unverified {
 public:
  explicit Unverified(std::string path) : path_(std::move(path)) {}
  ~Unverified() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Unverified(const Unverified&) = delete;
  Unverified& operator=(const Unverified&) = delete;

  const std::string& path() const { return path_; }
  Status RenameTo(const std::string& target) {
    std::error_code error;
    fs::rename(path_, target, error);
    if (error) return IoError("rename: " + path_ + " to " + target + ": " + error.message());
    path_.clear();
    return OkStatus();
  }

 private:
  std::string path_;
};

// Bytes of a file, or of the files in a folder.
uint64_t SizeOf(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return fs::file_size(path, ignored);
  uint64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    bytes += entry.file_size(ignored);
  return bytes;
}

class ModelWriter {
 public:
  ModelWriter(const ModelContent& content, ModelFormat format, const EncodingOptions& options,
              int num_threads, const ConversionProgress& progress)
      : content_(content),
        config_(content.config),
        tensors_(content.tensors),
        format_(format),
        options_(options),
        progress_(progress),
        pool_(num_threads > 0 ? num_threads : AvailableCpus()) {
    for (const ModelTensor& tensor : tensors_) total_values_ += ValuesOf(tensor);
  }

  Result<ordered_json> Run(const std::string& path);

 private:
  static double ValuesOf(const ModelTensor& tensor) {
    return static_cast<double>(tensor.rows->rows()) * static_cast<double>(tensor.rows->cols());
  }
  static uint64_t RowsOf(const ModelTensor& tensor) {
    return tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  }

  // Gemma's layers in Transformers multiply with 1 + weight.
  bool StoresNormsLessOne() const { return config_.architecture == Architecture::kGemma3; }

  const char* FormatName() const {
    return format_ == ModelFormat::kPlm    ? "plm"
           : format_ == ModelFormat::kGguf ? "gguf"
                                           : "safetensors";
  }

  const char* TypeName() const {
    return options_.target_bytes > 0 ? "mixed" : WeightTypeName(options_.type);
  }
  const char* Method() const { return calibration_ ? "gptq" : "rtn"; }

  // False if the caller wants to stop.
  bool Proceed(double fraction) { return !progress_ || progress_(std::min(fraction, 1.0)); }

  Status PrepareForGguf();
  Status Write(const std::string& path);
  Status Plan(const std::string& path);
  Status PlanForSize(const std::string& path);
  Result<uint64_t> BytesWithoutTensors(const std::string& path);
  Status DescribePlm(PlmWriter* writer);
  Status DescribeGguf(GgufFileWriter* writer);
  Status WritePlm(const std::string& path);
  Status WriteGguf(const std::string& path);
  Status PrepareForFolder();
  Status WriteFolder(const std::string& path);
  Status WriteSafetensors(const std::string& path);
  Status ReadCalibration();
  Status Encode(size_t index, EncodedTensor* out);
  Status EncodeForTexts(size_t index, EncodedTensor* out);
  Status Verify(const std::string& path);
  Status VerifyTokenizer(TokenizerSpec written);
  ordered_json TypeReports() const;
  uint32_t GgufFileType() const;

  const ModelContent& content_;
  ModelConfig config_;  // as the file will say it
  std::vector<ModelTensor> tensors_;
  ModelFormat format_;
  const EncodingOptions& options_;
  const ConversionProgress& progress_;
  ThreadPool pool_;
  double total_values_ = 0.0;
  double done_values_ = 0.0;
  std::vector<TensorTarget> targets_;
  std::vector<EncodingError> errors_;
  std::vector<uint64_t> fingerprints_;
  std::vector<std::string> notes_;
  std::unique_ptr<Calibration> calibration_;  // null: everything is rounded to the nearest
  const InputMoments* moments_ = nullptr;     // that feedback_ was made of
  ErrorFeedback feedback_;
  uint64_t calibration_tokens_ = 0;
  std::vector<std::vector<int32_t>> windows_;  // of the calibration texts
  double plan_share_ = kPlanShare;
};

Status ModelWriter::PrepareForGguf() {
  if (config_.architecture == Architecture::kLlama && config_.rope_layout == RopeLayout::kHalves) {
    config_.rope_layout = RopeLayout::kInterleaved;
    for (ModelTensor& tensor : tensors_) {
      if (tensor.rotary) tensor.rows = MakeInterleavedRows(tensor.rows, config_.head_dim);
    }
  } else if (config_.architecture != Architecture::kLlama &&
             config_.rope_layout == RopeLayout::kInterleaved) {
    return Unsupported("gguf: " + std::string(ArchitectureName(config_.architecture)) +
                       ": expected q_proj and k_proj with rotary pairs in halves");
  }
  std::vector<float> factors = RopeFactors(config_);
  if (factors.empty()) return OkStatus();
  std::vector<ModelTensor> with = ListModelTensors(config_, true);
  if (with.size() == tensors_.size())
    return Unsupported("gguf: expected either llama3 rotary scaling or rotary divisors, got both");
  const auto place = std::find_if(with.begin(), with.end(), [](const ModelTensor& tensor) {
    return tensor.role == TensorRole::kVector && !tensor.is_norm;
  });
  place->rows = MakeVectorRow(std::move(factors));
  tensors_.insert(tensors_.begin() + (place - with.begin()), *place);
  config_.rope_scaling = {};
  return OkStatus();
}

Status ModelWriter::PrepareForFolder() {
  if (config_.rope_layout == RopeLayout::kInterleaved) {
    config_.rope_layout = RopeLayout::kHalves;
    const auto half = static_cast<int64_t>(config_.head_dim / 2);
    for (ModelTensor& tensor : tensors_) {
      if (!tensor.rotary) continue;
      std::vector<int64_t> rows(tensor.rows->rows());
      for (size_t row = 0; row < rows.size(); ++row) {
        const auto in_head = static_cast<int64_t>(row % config_.head_dim);
        rows[row] = static_cast<int64_t>(row) - in_head +
                    (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
      }
      tensor.rows = MakeSelectedRows(tensor.rows, std::move(rows));
    }
  }
  for (ModelTensor& tensor : tensors_) {
    if (tensor.role != TensorRole::kVector) continue;
    if (!tensor.is_norm)
      return Unsupported(
          "config.json: expected rotary scaling with a name, got divisors of a GGUF file (" +
          tensor.gguf_name + ")");
    if (!StoresNormsLessOne()) continue;
    std::vector<float> values(tensor.rows->cols());
    tensor.rows->Values(0, values.data());
    // What remains of values near 0, which are less exact less one.
    for (float& value : values) value = (value - 1.0f) + 1.0f;
    tensor.rows = MakeVectorRow(std::move(values));
  }
  return OkStatus();
}

Status ModelWriter::ReadCalibration() {
  POCKETLM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(content_.tokenizer));
  POCKETLM_ASSIGN_OR_RETURN(windows_, CalibrationWindows(*tokenizer, options_.calibration));
  for (const auto& window : windows_) calibration_tokens_ += window.size();
  return OkStatus();
}

// What of the file is no tensor's bytes, a little more at most.
Result<uint64_t> ModelWriter::BytesWithoutTensors(const std::string& path) {
  constexpr uint64_t kReports = 4096;  // figures that are not known yet
  constexpr uint64_t kTensor = 320;    // a row of the index, and padding of three planes
  constexpr uint64_t kEnd = 16384;     // padding of all tensors of a .plm file together
  if (format_ == ModelFormat::kPlm) {
    POCKETLM_ASSIGN_OR_RETURN(PlmWriter writer, PlmWriter::Create(path));
    POCKETLM_RETURN_IF_ERROR(DescribePlm(&writer));
  } else {
    POCKETLM_ASSIGN_OR_RETURN(GgufFileWriter writer, GgufFileWriter::Create(path));
    std::vector<std::string> notes;
    std::swap(notes, notes_);  // they will come again
    const Status status = DescribeGguf(&writer);
    std::swap(notes, notes_);
    POCKETLM_RETURN_IF_ERROR(status);
    POCKETLM_RETURN_IF_ERROR(writer.Finish());
  }
  std::error_code error;
  uint64_t bytes = fs::file_size(path, error) + kReports + kEnd;
  fs::remove(path, error);
  for (const ModelTensor& tensor : tensors_)
    bytes += kTensor + std::max(tensor.hf_name.size(), tensor.gguf_name.size());
  return bytes;
}

Status ModelWriter::PlanForSize(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(uint64_t fixed, BytesWithoutTensors(path));
  targets_.assign(tensors_.size(), {std::nullopt, DType::kF32});
  std::vector<std::vector<TensorTarget>> choices(tensors_.size());
  std::vector<std::vector<double>> errors(tensors_.size());
  EncodedTensor encoded;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ModelTensor& tensor = tensors_[i];
    if (tensor.role == TensorRole::kVector) {
      fixed += *TargetBytes(targets_[i], 1, tensor.shape[0]);
      continue;
    }
    if (!Proceed(kPlanShare * static_cast<double>(i) / static_cast<double>(tensors_.size())))
      return Cancelled("cancelled");
    POCKETLM_ASSIGN_OR_RETURN(choices[i], TargetChoices(tensor, format_, options_, &pool_));
    for (const TensorTarget& target : choices[i]) {
      const Status status = EncodeTensor(*tensor.rows, target, &pool_, &encoded);
      if (!status.ok()) return status.WithContext(tensor.hf_name);
      errors[i].push_back(encoded.error.squared_error);
    }
    targets_[i] = choices[i][0];
  }
  const TensorUnits units = UnitsOf(tensors_);
  const auto proceed = [&](double done) {
    return Proceed(kPlanShare + (plan_share_ - kPlanShare) * done);
  };
  POCKETLM_ASSIGN_OR_RETURN(
      const std::vector<double> sensitivity,
      MeasureSensitivity(config_, tensors_, units, targets_, windows_, &pool_, proceed));
  std::vector<std::vector<SizeChoice>> lists;
  for (size_t u = 0; u < units.size(); ++u) {
    size_t count = choices[units[u][0]].size();
    for (const size_t i : units[u]) count = std::min(count, choices[i].size());
    std::vector<SizeChoice>& list = lists.emplace_back();
    double first_error = 0.0;
    for (size_t c = 0; c < count; ++c) {
      SizeChoice choice;
      double error = 0.0;
      for (const size_t i : units[u]) {
        choice.bytes += *TargetBytes(choices[i][c], tensors_[i].shape[0], tensors_[i].shape[1]);
        error += errors[i][c];
      }
      if (c == 0) first_error = error;
      // Small errors cost in proportion to their squares.
      choice.loss = first_error > 0.0 ? sensitivity[u] * error / first_error : 0.0;
      list.push_back(choice);
    }
  }
  const uint64_t budget = options_.target_bytes > fixed ? options_.target_bytes - fixed : 0;
  Result<std::vector<size_t>> chosen = ChooseWithinBudget(lists, budget);
  if (!chosen.ok()) {
    uint64_t least = fixed;
    for (const std::vector<SizeChoice>& list : lists)
      least += std::min_element(list.begin(), list.end(), [](const auto& a, const auto& b) {
                 return a.bytes < b.bytes;
               })->bytes;
    return InvalidArgument("size: expected at least " + std::to_string(least) +
                           " bytes for this model, got " + std::to_string(options_.target_bytes));
  }
  for (size_t u = 0; u < units.size(); ++u) {
    for (const size_t i : units[u]) targets_[i] = choices[i][(*chosen)[u]];
  }
  return OkStatus();
}

Status ModelWriter::Plan(const std::string& path) {
  if (!options_.calibration.empty()) POCKETLM_RETURN_IF_ERROR(ReadCalibration());
  if (options_.target_bytes > 0) {
    plan_share_ = kPlanShareForSize;
    POCKETLM_RETURN_IF_ERROR(PlanForSize(path));
  } else {
    double planned = 0.0;
    const double count = static_cast<double>(tensors_.size());
    const auto proceed = [&] { return Proceed(plan_share_ * planned++ / count); };
    POCKETLM_ASSIGN_OR_RETURN(targets_,
                              PlanTargets(tensors_, format_, options_, &pool_, proceed, &notes_));
  }
  if (!options_.calibration.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(calibration_,
                              Calibration::Create(config_, tensors_, std::move(windows_), &pool_));
  }
  return OkStatus();
}

Status ModelWriter::EncodeForTexts(size_t index, EncodedTensor* out) {
  const TensorTarget& target = targets_[index];
  POCKETLM_ASSIGN_OR_RETURN(const InputMoments* moments, calibration_->InputsOf(index));
  // q, k and v, or gate and up, which follow each other, have the same inputs.
  if (moments != moments_) {
    POCKETLM_ASSIGN_OR_RETURN(feedback_, ErrorFeedback::Create(*moments, &pool_));
    moments_ = moments;
  }
  POCKETLM_RETURN_IF_ERROR(EncodeTensor(*tensors_[index].rows, target, &pool_, out, &feedback_));
  return calibration_->Replace(index, target, *out);
}

Status ModelWriter::Encode(size_t index, EncodedTensor* out) {
  const ModelTensor& tensor = tensors_[index];
  const double encode_share = (1.0 - plan_share_) * (1.0 - kVerifyShare);
  if (!Proceed(plan_share_ + encode_share * done_values_ / total_values_))
    return Cancelled("cancelled");
  const TensorTarget& target = targets_[index];
  const bool four_bits = target.packed ? target.packed->type == PackedType::kU4
                                       : target.type == DType::kQ4_0 || target.type == DType::kQ4_1;
  // A table that is no head is looked up, not multiplied.
  const bool multiplied = tensor.role != TensorRole::kEmbedding || config_.tie_word_embeddings;
  const bool for_texts = calibration_ && four_bits && !target.keep_codes && multiplied;
  const Status status =
      for_texts ? EncodeForTexts(index, out) : EncodeTensor(*tensor.rows, target, &pool_, out);
  if (!status.ok()) return status.WithContext(tensor.hf_name);
  errors_.push_back(out->error);
  fingerprints_.push_back(out->fingerprint);
  done_values_ += ValuesOf(tensor);
  return OkStatus();
}

Status ModelWriter::WritePlm(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(PlmWriter writer, PlmWriter::Create(path));
  EncodedTensor encoded;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    POCKETLM_RETURN_IF_ERROR(Encode(i, &encoded));
    const ModelTensor& tensor = tensors_[i];
    if (targets_[i].packed) {
      POCKETLM_RETURN_IF_ERROR(writer.AddPacked(tensor.hf_name, tensor.shape[0], tensor.shape[1],
                                                *targets_[i].packed,
                                                {encoded.codes, encoded.scales, encoded.offsets}));
    } else {
      POCKETLM_RETURN_IF_ERROR(
          writer.AddPlain(tensor.hf_name, targets_[i].type, tensor.shape, encoded.bytes));
    }
  }
  return DescribePlm(&writer);
}

Status ModelWriter::DescribePlm(PlmWriter* writer) {
  PlmDescription description;
  description.config = config_;
  description.tokenizer = content_.tokenizer;
  description.chat_template = content_.chat_template;
  description.end_tokens = content_.end_tokens;
  description.license = content_.license;
  description.provenance = content_.provenance;
  description.quantization = {{"type", TypeName()}, {"method", Method()}, {"types", TypeReports()}};
  if (calibration_) description.quantization["calibration_tokens"] = calibration_tokens_;
  return FinishPlm(description, writer);
}

uint32_t ModelWriter::GgufFileType() const {
  switch (options_.type) {
    case WeightType::kQ4_0:
      return 2;
    case WeightType::kQ4_1:
      return 3;
    case WeightType::kQ8_0:
      return 7;
    default:
      return 1;
  }
}

Status ModelWriter::WriteGguf(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(GgufFileWriter writer, GgufFileWriter::Create(path));
  POCKETLM_RETURN_IF_ERROR(DescribeGguf(&writer));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    POCKETLM_RETURN_IF_ERROR(
        writer.DeclareTensor(tensors_[i].gguf_name, targets_[i].type, tensors_[i].shape));
  }
  EncodedTensor encoded;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    POCKETLM_RETURN_IF_ERROR(Encode(i, &encoded));
    POCKETLM_RETURN_IF_ERROR(writer.Append(encoded.bytes));
  }
  return writer.Finish();
}

Status ModelWriter::DescribeGguf(GgufFileWriter* writer) {
  GgufDescription description;
  description.config = &config_;
  description.tokenizer = &content_.tokenizer;
  description.chat_template = content_.chat_template;
  description.end_tokens = content_.end_tokens;
  description.name = content_.name;
  description.license = content_.license;
  description.file_type = GgufFileType();
  return AddGgufMetadata(description, writer, &notes_);
}

Status ModelWriter::WriteSafetensors(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(SafetensorsFileWriter writer, SafetensorsFileWriter::Create(path));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const ModelTensor& tensor = tensors_[i];
    POCKETLM_RETURN_IF_ERROR(
        writer.DeclareTensor((tensor.role == TensorRole::kHead ? "" : "model.") + tensor.hf_name,
                             targets_[i].type, tensor.shape));
  }
  EncodedTensor encoded;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    POCKETLM_RETURN_IF_ERROR(Encode(i, &encoded));
    if (tensors_[i].is_norm && StoresNormsLessOne()) {
      std::vector<float> values(tensors_[i].rows->cols());
      tensors_[i].rows->Values(0, values.data());
      for (float& value : values) value -= 1.0f;
      std::memcpy(encoded.bytes.data(), values.data(), encoded.bytes.size());
    }
    POCKETLM_RETURN_IF_ERROR(writer.Append(encoded.bytes));
  }
  return writer.Finish();
}

Status ModelWriter::WriteFolder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!fs::create_directory(path, error)) return IoError("folder " + path + ": " + error.message());
  POCKETLM_ASSIGN_OR_RETURN(ordered_json config, ConfigToHuggingFaceJson(config_));
  config["dtype"] = options_.type == WeightType::kF32 ? "float32" : "float16";
  ordered_json generation = ordered_json::object();
  if (content_.tokenizer.bos_id >= 0)
    config["bos_token_id"] = generation["bos_token_id"] = content_.tokenizer.bos_id;
  if (!content_.end_tokens.empty())
    config["eos_token_id"] = generation["eos_token_id"] = content_.end_tokens;
  POCKETLM_ASSIGN_OR_RETURN(const std::string tokenizer, WriteTokenizerJson(content_.tokenizer));
  const ordered_json tokenizer_config = TokenizerConfigJson(
      content_.tokenizer, content_.chat_template, config_.max_position_embeddings);
  const std::pair<const char*, std::string> files[] = {
      {"config.json", config.dump(1) + "\n"},
      {"generation_config.json", generation.dump(1) + "\n"},
      {"tokenizer.json", tokenizer},
      {"tokenizer_config.json", tokenizer_config.dump(1) + "\n"}};
  for (const auto& [name, text] : files) {
    POCKETLM_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(JoinPath(path, name)));
    POCKETLM_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(text))));
    POCKETLM_RETURN_IF_ERROR(writer.Commit());
  }
  return WriteSafetensors(JoinPath(path, "model.safetensors"));
}

Status ModelWriter::VerifyTokenizer(TokenizerSpec written) {
  POCKETLM_ASSIGN_OR_RETURN(const auto meant, Tokenizer::Create(content_.tokenizer));
  POCKETLM_ASSIGN_OR_RETURN(const auto stored, Tokenizer::Create(std::move(written)));
  if (meant->Encode(kTokenizerSample) == stored->Encode(kTokenizerSample)) return OkStatus();
  if (format_ != ModelFormat::kGguf)
    return Internal("verify: tokenizer: expected the source's ids of a sample text");
  notes_.push_back("tokenizer: the file's tokens of a sample text differ from the source's");
  return OkStatus();
}

Status ModelWriter::Verify(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(ModelSource source, OpenModelSource(path));
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<ModelTensor> stored, TensorsOf(source));
  source.config.norm_weights_minus_one = false;  // as TensorsOf gives them
  if (source.config.sliding_window == 0)
    source.config.rope_local_base_freq = config_.rope_local_base_freq;
  if (ConfigToPlmJson(source.config) != ConfigToPlmJson(config_)) {
    return Internal("verify: config: expected " + ConfigToPlmJson(config_).dump() + ", got " +
                    ConfigToPlmJson(source.config).dump());
  }
  if (stored.size() != tensors_.size())
    return Internal("verify: expected " + std::to_string(tensors_.size()) + " tensors, got " +
                    std::to_string(stored.size()));
  double done = 0.0;
  for (size_t i = 0; i < stored.size(); ++i) {
    const double verify_share = (1.0 - plan_share_) * kVerifyShare;
    if (!Proceed(1.0 - verify_share + verify_share * done / total_values_))
      return Cancelled("cancelled");
    if (Fingerprint(*stored[i].rows, &pool_) != fingerprints_[i]) {
      return Internal("verify: " + stored[i].hf_name +
                      ": the values read back differ from those written");
    }
    done += ValuesOf(stored[i]);
  }
  return VerifyTokenizer(std::move(source.tokenizer));
}

ordered_json ModelWriter::TypeReports() const {
  struct Sum {
    uint64_t tensors = 0, parameters = 0, bytes = 0;
    EncodingError error;
  };
  std::map<std::string, Sum> sums;
  for (size_t i = 0; i < errors_.size(); ++i) {
    Sum& sum = sums[TargetName(targets_[i])];
    const uint64_t rows = RowsOf(tensors_[i]);
    const uint64_t cols = tensors_[i].shape.back();
    ++sum.tensors;
    sum.parameters += rows * cols;
    sum.bytes += *TargetBytes(targets_[i], rows, cols);
    sum.error.Add(errors_[i]);
  }
  ordered_json out = ordered_json::array();
  for (const auto& [type, sum] : sums) {
    const double relative = sum.error.squared_values > 0.0
                                ? std::sqrt(sum.error.squared_error / sum.error.squared_values)
                                : 0.0;
    out.push_back({{"type", type},
                   {"tensors", sum.tensors},
                   {"parameters", sum.parameters},
                   {"bytes", sum.bytes},
                   {"exact", sum.error.max_error == 0.0},
                   {"relative_rms_error", relative},
                   {"max_error", sum.error.max_error}});
  }
  return out;
}

Status ModelWriter::Write(const std::string& path) {
  switch (format_) {
    case ModelFormat::kPlm:
      return WritePlm(path);
    case ModelFormat::kGguf:
      return WriteGguf(path);
    case ModelFormat::kFolder:
      return WriteFolder(path);
  }
  return Internal("format");
}

Result<ordered_json> ModelWriter::Run(const std::string& path) {
  const auto start = std::chrono::steady_clock::now();
  if (format_ == ModelFormat::kGguf) POCKETLM_RETURN_IF_ERROR(PrepareForGguf());
  if (format_ == ModelFormat::kFolder) POCKETLM_RETURN_IF_ERROR(PrepareForFolder());
  Unverified file(path + ".unverified");
  POCKETLM_RETURN_IF_ERROR(Plan(file.path()));
  POCKETLM_RETURN_IF_ERROR(Write(file.path()));
  POCKETLM_RETURN_IF_ERROR(Verify(file.path()));
  const uint64_t bytes = SizeOf(file.path());
  POCKETLM_RETURN_IF_ERROR(file.RenameTo(path));
  if (!Proceed(1.0)) Log(LogLevel::kInfo, path + ": the cancel came after the last step");

  for (const std::string& note : notes_) Log(LogLevel::kInfo, path + ": " + note);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return ordered_json{{"output", path},
                      {"format", FormatName()},
                      {"type", TypeName()},
                      {"method", Method()},
                      {"bytes", bytes},
                      {"architecture", ArchitectureName(config_.architecture)},
                      {"parameters", static_cast<uint64_t>(total_values_)},
                      {"bits_per_weight", 8.0 * static_cast<double>(bytes) / total_values_},
                      {"types", TypeReports()},
                      {"notes", notes_},
                      {"verified", true},
                      {"seconds", seconds.count()}};
}

}  // namespace

Result<ordered_json> WriteModel(const ModelContent& content, const std::string& path,
                                const EncodingOptions& options, int num_threads,
                                const ConversionProgress& progress) {
  POCKETLM_ASSIGN_OR_RETURN(const ModelFormat format, FormatOfPath(path));
  std::error_code ignored;
  std::string place = path;
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  const fs::file_status status = fs::status(place, ignored);
  if (format == ModelFormat::kFolder) {
    if (fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(place, ignored)))
      return InvalidArgument(
          "output " + path +
          ": expected an empty folder or a free name, got something else of that name");
  } else if (fs::exists(status) && !fs::is_regular_file(status)) {
    return InvalidArgument("output " + path +
                           ": expected a file or a free name, got something else of that name");
  }
  if (num_threads < 0 || num_threads > 1024) {
    return InvalidArgument("threads: expected 0 to 1024, got " + std::to_string(num_threads));
  }
  return ModelWriter(content, format, options, num_threads, progress).Run(place);
}

}  // namespace pocketlm
