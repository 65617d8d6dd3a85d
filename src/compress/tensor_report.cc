#include "compress/tensor_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/cpu_info.h"
#include "base/half.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "compress/model_tensors.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

constexpr size_t kRowsOfSum = 8;  // whose sums are kept apart, so that threads do not change them
constexpr size_t kSumsOfChunk = 8;
constexpr int kLeastCode = -128;

// Of finite values; a difference is that of two finite values.
struct Sums {
  double squares = 0.0;
  double squared_error = 0.0;
  double squared_source = 0.0;

  void Add(const Sums& other) {
    squares += other.squares;
    squared_error += other.squared_error;
    squared_source += other.squared_source;
  }
};

// What does not depend on the order of addition.
struct Counts {
  uint64_t finite = 0, zeros = 0, non_finite = 0;
  float minimum = std::numeric_limits<float>::infinity();
  float maximum = -std::numeric_limits<float>::infinity();
  double maximum_error = 0.0;
  uint64_t groups = 0, zero_groups = 0, constant_groups = 0, non_finite_scales = 0;
  float scale_minimum = std::numeric_limits<float>::infinity();
  float scale_maximum = -std::numeric_limits<float>::infinity();
  std::array<uint64_t, 256> codes{};  // [code − kLeastCode]

  void Add(const Counts& other);
  void AddValues(std::span<const float> values);
  void AddCodes(const RowCodes& row, std::span<const float> values);
};

void Counts::Add(const Counts& other) {
  finite += other.finite;
  zeros += other.zeros;
  non_finite += other.non_finite;
  minimum = std::min(minimum, other.minimum);
  maximum = std::max(maximum, other.maximum);
  maximum_error = std::max(maximum_error, other.maximum_error);
  groups += other.groups;
  zero_groups += other.zero_groups;
  constant_groups += other.constant_groups;
  non_finite_scales += other.non_finite_scales;
  scale_minimum = std::min(scale_minimum, other.scale_minimum);
  scale_maximum = std::max(scale_maximum, other.scale_maximum);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] += other.codes[i];
}

void Counts::AddValues(std::span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++non_finite;
      continue;
    }
    ++finite;
    zeros += value == 0.0f ? 1 : 0;
    minimum = std::min(minimum, value);
    maximum = std::max(maximum, value);
  }
}

void Counts::AddCodes(const RowCodes& row, std::span<const float> values) {
  const bool i8 = row.layout.type == PackedType::kI8;
  for (const uint8_t code : row.codes)
    ++codes[static_cast<size_t>((i8 ? int{static_cast<int8_t>(code)} : int{code}) - kLeastCode)];
  groups += row.groups();
  for (size_t g = 0; g < row.groups(); ++g) {
    const float scale = HalfToFloat(row.scales[g]);
    const float min = row.mins.empty() ? 0.0f : HalfToFloat(row.mins[g]);
    non_finite_scales += std::isfinite(scale) && std::isfinite(min) ? 0 : 1;
    if (std::isfinite(scale)) {
      scale_minimum = std::min(scale_minimum, scale);
      scale_maximum = std::max(scale_maximum, scale);
    }
    const auto group = values.subspan(g * row.layout.group_size, row.layout.group_size);
    const float first = group.front();
    if (!std::isfinite(first) || std::ranges::any_of(group, [&](float v) { return v != first; }))
      continue;
    ++(first == 0.0f ? zero_groups : constant_groups);
  }
}

Sums SumsOf(std::span<const float> values) {
  Sums out;
  for (const float value : values) {
    if (std::isfinite(value))
      out.squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return out;
}

void AddDifference(std::span<const float> values, std::span<const float> source, Sums* sums,
                   Counts* counts) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto wanted = static_cast<double>(source[i]);
    const double error = static_cast<double>(values[i]) - wanted;
    if (!std::isfinite(error)) continue;
    sums->squared_error += error * error;
    sums->squared_source += wanted * wanted;
    counts->maximum_error = std::max(counts->maximum_error, std::abs(error));
  }
}

// What one thread needs for a row; allocated before the threads run, since their body must not throw.
struct Scratch {
  explicit Scratch(size_t cols) : values(cols), source(cols) {
    codes.codes.reserve(cols);
    for (auto* halves : {&codes.scales, &codes.mins}) halves->reserve(cols / 32);
    codes.zeros.reserve(cols / 32);
  }
  std::vector<float> values, source;
  RowCodes codes;
};

// Reads all rows of a tensor, and of its counterpart if there is one.
class TensorMeter {
 public:
  TensorMeter(const RowSource& rows, const RowSource* source) : rows_(rows), source_(source) {}

  void Run(ThreadPool* pool) {
    std::vector<Sums> sums((rows_.rows() + kRowsOfSum - 1) / kRowsOfSum);
    std::vector<Scratch> scratch;
    for (int i = 0; i < pool->num_threads(); ++i) scratch.emplace_back(rows_.cols());
    std::mutex mutex;
    pool->ParallelFor(sums.size(), kSumsOfChunk, [&](size_t begin, size_t end, int thread) {
      Counts counts;
      for (size_t row = begin * kRowsOfSum; row < std::min(end * kRowsOfSum, rows_.rows()); ++row)
        Row(row, &scratch[static_cast<size_t>(thread)], &sums[row / kRowsOfSum], &counts);
      const std::lock_guard lock(mutex);
      counts_.Add(counts);
    });
    for (const Sums& sum : sums) sums_.Add(sum);
  }

  // The members of a tensor's report but for its name.
  ordered_json Report() const {
    const Counts& c = counts_;
    ordered_json out = {
        {"minimum", c.finite > 0 ? ordered_json(c.minimum) : ordered_json()},
        {"maximum", c.finite > 0 ? ordered_json(c.maximum) : ordered_json()},
        {"rms", c.finite > 0 ? Root(sums_.squares, static_cast<double>(c.finite)) : 0.0},
        {"zeros", c.zeros},
        {"non_finite", c.non_finite}};
    if (c.groups > 0) AddGroups(&out);
    if (source_ == nullptr) return out;
    out["relative_rms_error"] = Root(sums_.squared_error, sums_.squared_source);
    out["maximum_error"] = c.maximum_error;
    return out;
  }

 private:
  // sqrt(sum / whole); 0 for nothing.
  static double Root(double sum, double whole) {
    return whole > 0.0 ? std::sqrt(sum / whole) : 0.0;
  }

  void Row(size_t row, Scratch* scratch, Sums* sums, Counts* counts) const {
    rows_.Values(row, scratch->values.data());
    counts->AddValues(scratch->values);
    sums->Add(SumsOf(scratch->values));
    if (rows_.has_codes()) {
      rows_.Codes(row, &scratch->codes);
      counts->AddCodes(scratch->codes, scratch->values);
    }
    if (source_ == nullptr) return;
    source_->Values(row, scratch->source.data());
    AddDifference(scratch->values, scratch->source, sums, counts);
  }

  void AddGroups(ordered_json* out) const {
    const Counts& c = counts_;
    const bool has_scale = c.scale_minimum <= c.scale_maximum;
    const auto present = [](uint64_t count) { return count > 0; };
    const auto first = std::find_if(c.codes.begin(), c.codes.end(), present);
    const auto end = std::find_if(c.codes.rbegin(), c.codes.rend(), present).base();
    out->update({{"group_size", rows_.rows() * rows_.cols() / c.groups},
                 {"groups", c.groups},
                 {"zero_groups", c.zero_groups},
                 {"constant_groups", c.constant_groups},
                 {"non_finite_scales", c.non_finite_scales},
                 {"scale_minimum", has_scale ? ordered_json(c.scale_minimum) : ordered_json()},
                 {"scale_maximum", has_scale ? ordered_json(c.scale_maximum) : ordered_json()},
                 {"first_code", static_cast<int>(first - c.codes.begin()) + kLeastCode},
                 {"codes", std::vector<uint64_t>(first, end)}});
  }

  const RowSource& rows_;
  const RowSource* source_;
  Sums sums_;
  Counts counts_;
};

// A model and its tensors, whose rotary rows are in one order for all models (interleaved).
struct Weights {
  std::unique_ptr<ModelSource> source;
  std::vector<ModelTensor> tensors;
};

Result<Weights> OpenWeights(const std::string& path) {
  Weights out;
  POCKETLM_ASSIGN_OR_RETURN(ModelSource source, OpenModelSource(path));
  out.source = std::make_unique<ModelSource>(std::move(source));
  auto tensors = TensorsOf(*out.source);
  if (!tensors.ok()) return tensors.status().WithContext(path);
  out.tensors = std::move(tensors).value();
  const ModelConfig& config = out.source->config;
  if (config.rope_layout == RopeLayout::kInterleaved) return out;
  for (ModelTensor& tensor : out.tensors) {
    if (tensor.rotary) tensor.rows = MakeInterleavedRows(tensor.rows, config.head_dim);
  }
  return out;
}

// Finds the tensors of the model that another one was made from.
class Counterparts {
 public:
  explicit Counterparts(const Weights& weights) {
    for (const ModelTensor& tensor : weights.tensors) by_name_[tensor.hf_name] = &tensor;
  }

  // Null where there is none, though the models are of one shape.
  Result<const RowSource*> Of(const ModelTensor& tensor) const {
    constexpr const RowSource* kNone = nullptr;
    const ModelTensor* found = Find(tensor.hf_name);
    const bool table = tensor.role == TensorRole::kEmbedding || tensor.role == TensorRole::kHead;
    if (found == nullptr && tensor.role == TensorRole::kHead) found = Find("embed_tokens.weight");
    // Rotary divisors may be written down as a rule instead.
    if (found == nullptr && tensor.role == TensorRole::kVector && !tensor.is_norm) return kNone;
    if (found == nullptr)
      return InvalidArgument("tensor " + tensor.hf_name + " is missing in the model compared with");
    if (found->shape == tensor.shape) return found->rows.get();
    if (table && found->shape.back() == tensor.shape.back()) return kNone;
    return InvalidArgument("tensor " + tensor.hf_name + ": expected " + ShapeString(found->shape) +
                           " as in the model compared with, got " + ShapeString(tensor.shape));
  }

 private:
  const ModelTensor* Find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  std::map<std::string, const ModelTensor*> by_name_;
};

Result<ordered_json> Report(const Weights& weights, const Weights* against, ThreadPool* pool,
                            const TensorReportProgress& progress) {
  std::vector<const RowSource*> sources(weights.tensors.size(), nullptr);
  if (against != nullptr) {
    const Counterparts counterparts(*against);
    for (size_t i = 0; i < sources.size(); ++i) {
      POCKETLM_ASSIGN_OR_RETURN(sources[i], counterparts.Of(weights.tensors[i]));
    }
  }
  double total = 0.0, done = 0.0;
  const auto size = [](const ModelTensor& tensor) {
    return static_cast<double>(tensor.rows->rows()) * static_cast<double>(tensor.rows->cols());
  };
  for (const ModelTensor& tensor : weights.tensors) total += size(tensor);
  ordered_json tensors = ordered_json::array();
  for (size_t i = 0; i < sources.size(); ++i) {
    const ModelTensor& tensor = weights.tensors[i];
    if (progress && !progress(done / total)) return Cancelled("cancelled");
    POCKETLM_ASSIGN_OR_RETURN(const TensorView* view,
                              weights.source->Find(tensor.hf_name, tensor.gguf_name));
    TensorMeter meter(*tensor.rows, sources[i]);
    meter.Run(pool);
    ordered_json entry = {{"name", Shorten(view != nullptr ? view->name : tensor.hf_name, 4096)}};
    entry.update(meter.Report());
    tensors.push_back(std::move(entry));
    done += size(tensor);
  }
  return tensors;
}

Result<ordered_json> OpenAndReport(const std::string& path, const std::string& against,
                                   int num_threads, const TensorReportProgress& progress) {
  if (num_threads < 0 || num_threads > 1024) {
    return InvalidArgument("threads: expected 0 to 1024, got " + std::to_string(num_threads));
  }
  POCKETLM_ASSIGN_OR_RETURN(const Weights weights, OpenWeights(path));
  Weights other;
  if (!against.empty()) {
    POCKETLM_ASSIGN_OR_RETURN(other, OpenWeights(against));
  }
  ThreadPool pool(num_threads > 0 ? num_threads : AvailableCpus());
  POCKETLM_ASSIGN_OR_RETURN(ordered_json tensors,
                            Report(weights, against.empty() ? nullptr : &other, &pool, progress));
  return ordered_json{{"tensors", std::move(tensors)}};
}

}  // namespace

Result<ordered_json> ReportTensors(const std::string& path, const std::string& against,
                                   int num_threads, const TensorReportProgress& progress) {
  auto report = OpenAndReport(path, against, num_threads, progress);
  if (!report.ok()) return report.status().WithContext("inspect");
  return report;
}

}  // namespace pocketlm
