#include "format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/checked_math.h"
#include "base/json.h"
#include "base/quote.h"

namespace pocketlm {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr uint64_t kMaxStringBytes = 4 << 20;
constexpr size_t kMaxDimensions = 8;
constexpr size_t kMaxMetadata = 16384;
// The least that an entry takes in a header: "a":{"dtype":"F4","shape":[],"data_offsets":[0,4]},
constexpr size_t kMinEntryBytes = 50;

// Bits per value of the format's types; 0 for a name that we do not know.
int BitsOfDtype(std::string_view name) {
  static constexpr std::pair<std::string_view, int> kBits[] = {
      {"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
      {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64},
  };
  for (const auto& [known, bits] : kBits) {
    if (known == name) return bits;
  }
  return 0;
}

std::optional<DType> ReadableDtype(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "F16") return DType::kF16;
  if (name == "BF16") return DType::kBF16;
  return std::nullopt;
}

struct ByName {
  template <typename T>
  bool operator()(const T& a, const T& b) const {
    return a.name < b.name;
  }
  template <typename T>
  bool operator()(const T& a, std::string_view b) const {
    return a.name < b;
  }
};

template <typename T>
const T* FindByName(const std::vector<T>& sorted, std::string_view name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name, ByName());
  return at != sorted.end() && at->name == name ? &*at : nullptr;
}

}  // namespace

// Takes the header in from parser events, one tensor at a time, and never holds it as a DOM. A
// method that returns false stops the parser; error() then says why.
class SafetensorsHeaderBuilder {
 public:
  SafetensorsHeaderBuilder(std::span<const std::byte> bytes, std::string_view header)
      : header_(header), data_bytes_(bytes.size() - kLengthBytes - header.size()) {
    file_.bytes_ = bytes;
    file_.tensors_.reserve(header.size() / kMinEntryBytes);
    extents_.reserve(header.size() / kMinEntryBytes);
  }

  bool start_object(size_t);
  bool end_object();
  bool start_array(size_t);
  bool end_array();
  bool key(std::string& name);
  bool string(std::string& value);
  bool number_unsigned(uint64_t value);
  bool number_integer(int64_t) { return Unexpected("a negative number"); }
  bool number_float(double, const std::string&) {
    return Unexpected("a number that is no 64-bit integer");
  }
  bool null() { return Unexpected("null"); }
  bool boolean(bool) { return Unexpected("a bool"); }
  bool binary(json::binary_t&) { return Unexpected("binary data"); }
  bool parse_error(size_t position, const std::string&, const json::exception& exception) {
    return Fail("malformed JSON at " + JsonErrorText(header_, position, exception));
  }

  // After the parser has succeeded: the checks over all tensors.
  Result<SafetensorsFile> Finish();
  const std::string& error() const { return error_; }

 private:
  // What the parser has seen last decides what may come next.
  enum class Place {
    kStart,           // the opening brace of the header
    kRoot,            // a key: "__metadata__" or a tensor's name
    kMetadataObject,  // the opening brace of __metadata__
    kMetadataKey,
    kMetadataText,
    kTensorObject,  // the opening brace of a tensor
    kField,         // a key: dtype, shape, data_offsets
    kDtype,
    kShapeArray,  // the opening bracket
    kDimension,
    kOffsetsArray,  // the opening bracket
    kOffset,
    kEnd,
  };
  struct Extent {
    uint64_t begin, end;
  };

  bool Fail(std::string reason) {
    error_ = (name_ ? Quote(*name_) + ": " : "") + reason;
    return false;
  }
  bool Unexpected(const char* what) { return Fail(std::string("unexpected: ") + what); }
  bool StartField(std::string_view field);
  bool FinishTensor();
  bool CheckExtent(Extent extent);
  Status CheckTiling();
  Status CheckNames();

  std::string_view header_;
  uint64_t data_bytes_;
  SafetensorsFile file_;
  std::vector<Extent> extents_;
  Place place_ = Place::kStart;
  std::optional<std::string> name_;  // the current tensor, or key of __metadata__
  std::optional<std::string> dtype_;
  std::optional<std::vector<uint64_t>> shape_;
  std::optional<std::vector<uint64_t>> offsets_;
  bool has_metadata_ = false;
  std::string error_;
};

bool SafetensorsHeaderBuilder::start_object(size_t) {
  switch (place_) {
    case Place::kStart:
      place_ = Place::kRoot;
      return true;
    case Place::kMetadataObject:
      place_ = Place::kMetadataKey;
      return true;
    case Place::kTensorObject:
      place_ = Place::kField;
      return true;
    default:
      return Unexpected("an object");
  }
}

bool SafetensorsHeaderBuilder::end_object() {
  if (place_ == Place::kRoot) {
    place_ = Place::kEnd;
    return true;
  }
  if (place_ == Place::kField && !FinishTensor()) return false;
  place_ = Place::kRoot;
  name_.reset();
  return true;
}

bool SafetensorsHeaderBuilder::start_array(size_t) {
  if (place_ == Place::kShapeArray) {
    shape_.emplace();
    place_ = Place::kDimension;
    return true;
  }
  if (place_ == Place::kOffsetsArray) {
    offsets_.emplace();
    place_ = Place::kOffset;
    return true;
  }
  return Unexpected("an array");
}

bool SafetensorsHeaderBuilder::end_array() {
  place_ = Place::kField;
  return true;
}

bool SafetensorsHeaderBuilder::key(std::string& name) {
  if (place_ == Place::kField) return StartField(name);
  if (place_ == Place::kRoot && name == "__metadata__") {
    if (has_metadata_) return Fail("__metadata__ occurs twice");
    has_metadata_ = true;
    place_ = Place::kMetadataObject;
    return true;
  }
  place_ = place_ == Place::kRoot ? Place::kTensorObject : Place::kMetadataText;
  name_ = std::move(name);
  return true;
}

bool SafetensorsHeaderBuilder::StartField(std::string_view field) {
  const bool twice = (field == "dtype" && dtype_) || (field == "shape" && shape_) ||
                     (field == "data_offsets" && offsets_);
  if (twice) return Fail(Quote(field) + " occurs twice");
  if (field == "dtype") {
    place_ = Place::kDtype;
  } else if (field == "shape") {
    place_ = Place::kShapeArray;
  } else if (field == "data_offsets") {
    place_ = Place::kOffsetsArray;
  } else {
    return Fail("unknown field " + Quote(field));
  }
  return true;
}

bool SafetensorsHeaderBuilder::string(std::string& value) {
  if (place_ == Place::kDtype) {
    dtype_ = std::move(value);
    place_ = Place::kField;
    return true;
  }
  if (place_ != Place::kMetadataText) return Unexpected("a string");
  if (file_.metadata_.size() == kMaxMetadata) return Fail("more than 16384 metadata entries");
  file_.metadata_.emplace_back(std::move(*name_), std::move(value));
  name_.reset();
  place_ = Place::kMetadataKey;
  return true;
}

bool SafetensorsHeaderBuilder::number_unsigned(uint64_t value) {
  if (place_ == Place::kDimension) {
    if (shape_->size() == kMaxDimensions) return Fail("more than 8 dimensions");
    shape_->push_back(value);
    return true;
  }
  if (place_ == Place::kOffset) {
    if (offsets_->size() == 2) return Fail("data_offsets: expected 2 numbers, got more");
    offsets_->push_back(value);
    return true;
  }
  return Unexpected("a number");
}

bool SafetensorsHeaderBuilder::FinishTensor() {
  if (!dtype_ || !shape_ || !offsets_)
    return Fail("expected the fields dtype, shape and data_offsets");
  if (offsets_->size() != 2) return Fail("data_offsets: expected 2 numbers, got fewer");
  const Extent extent{(*offsets_)[0], (*offsets_)[1]};
  if (!CheckExtent(extent)) return false;
  extents_.push_back(extent);
  shape_->shrink_to_fit();
  if (const auto dtype = ReadableDtype(*dtype_)) {
    const auto data = file_.bytes_.subspan(kLengthBytes + header_.size());
    file_.tensors_.push_back({std::move(*name_), *dtype, std::move(*shape_),
                              data.subspan(static_cast<size_t>(extent.begin),
                                           static_cast<size_t>(extent.end - extent.begin))});
  } else {
    file_.unsupported_.push_back({std::move(*name_), std::move(*dtype_), std::move(*shape_)});
  }
  dtype_.reset();
  shape_.reset();
  offsets_.reset();
  return true;
}

bool SafetensorsHeaderBuilder::CheckExtent(Extent extent) {
  const auto range = [&] {
    return "data_offsets [" + std::to_string(extent.begin) + ", " + std::to_string(extent.end) +
           "]";
  };
  if (extent.begin > extent.end || extent.end > data_bytes_) {
    return Fail(range() + " do not lie in the file's " + std::to_string(data_bytes_) +
                " bytes of tensor data (is it complete?)");
  }
  const int bits = BitsOfDtype(*dtype_);
  if (bits == 0) return true;  // a type of a later format version: its size is not known
  std::optional<uint64_t> size = static_cast<uint64_t>(bits);
  for (size_t i = 0; size && i < shape_->size(); ++i) size = CheckedMul(*size, (*shape_)[i]);
  if (!size || *size % 8 != 0 || *size / 8 != extent.end - extent.begin) {
    return Fail(range() + " do not agree with type " + *dtype_ + " and shape " +
                ShapeString(*shape_));
  }
  return true;
}

Result<SafetensorsFile> SafetensorsHeaderBuilder::Finish() {
  POCKETLM_RETURN_IF_ERROR(CheckTiling());
  POCKETLM_RETURN_IF_ERROR(CheckNames());
  return std::move(file_);
}

// The tensors must cover the data section without gap or overlap.
Status SafetensorsHeaderBuilder::CheckTiling() {
  std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = 0;
  for (const Extent& extent : extents_) {
    if (extent.begin != covered) {
      return DataError(
          std::string(extent.begin < covered ? "tensors overlap" : "a hole between tensors") +
          " at byte " + std::to_string(std::min(extent.begin, covered)) + " of the data");
    }
    covered = extent.end;
  }
  if (covered != data_bytes_) {
    return DataError("the tensors end at byte " + std::to_string(covered) +
                     " of the data, but there are " + std::to_string(data_bytes_));
  }
  return OkStatus();
}

Status SafetensorsHeaderBuilder::CheckNames() {
  auto& readable = file_.tensors_;
  auto& others = file_.unsupported_;
  std::sort(readable.begin(), readable.end(), ByName());
  std::sort(others.begin(), others.end(), ByName());
  const auto same = [](const auto& a, const auto& b) { return a.name == b.name; };
  const auto twice = [](const std::string& name) {
    return DataError("tensor " + Quote(name) + " occurs twice");
  };
  if (auto at = std::adjacent_find(readable.begin(), readable.end(), same); at != readable.end()) {
    return twice(at->name);
  }
  if (auto at = std::adjacent_find(others.begin(), others.end(), same); at != others.end()) {
    return twice(at->name);
  }
  for (const auto& other : others) {
    if (FindByName(readable, other.name) != nullptr) return twice(other.name);
  }
  std::vector<std::string_view> keys;
  keys.reserve(file_.metadata_.size());
  for (const auto& pair : file_.metadata_) keys.push_back(pair.first);
  std::sort(keys.begin(), keys.end());
  if (auto at = std::adjacent_find(keys.begin(), keys.end()); at != keys.end()) {
    return DataError("metadata key " + Quote(*at) + " occurs twice");
  }
  return OkStatus();
}

namespace {

Result<std::string_view> ReadHeader(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return DataError("expected at least 8 bytes, got " + std::to_string(bytes.size()));
  }
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t left = bytes.size() - kLengthBytes;
  if (length > std::min(left, kMaxHeaderBytes)) {
    return DataError("header length " + std::to_string(length) + ": expected at most " +
                     std::to_string(std::min(left, kMaxHeaderBytes)));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                                static_cast<size_t>(length));
  if (header.empty() || header.front() != '{')
    return DataError("the header does not begin with '{'");
  return header;
}

Result<SafetensorsFile> ParseWhole(std::span<const std::byte> bytes) {
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view header, ReadHeader(bytes));
  POCKETLM_RETURN_IF_ERROR(CheckJsonTokens(header, kMaxStringBytes));
  SafetensorsHeaderBuilder builder(bytes, header);
  if (!json::sax_parse(header.begin(), header.end(), &builder)) return DataError(builder.error());
  return builder.Finish();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes) {
  try {
    auto file = ParseWhole(bytes);
    if (!file.ok()) return file.status().WithContext("safetensors");
    return file;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("safetensors: no memory for the header");
  } catch (const json::exception& exception) {
    return DataError(std::string("safetensors: ") + exception.what());
  }
}

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  auto file = Parse(mapping.bytes());
  if (!file.ok()) return file.status().WithContext("load " + path);
  file->mapping_ = std::move(mapping);
  return file;
}

const TensorView* SafetensorsFile::FindTensor(std::string_view name) const {
  return FindByName(tensors_, name);
}

Result<const TensorView*> SafetensorsFile::GetTensor(std::string_view name) const {
  if (const TensorView* tensor = FindTensor(name)) return tensor;
  if (const UnsupportedTensor* other = FindByName(unsupported_, name)) {
    return Unsupported("safetensors: tensor " + Quote(name) + ": type " + Quote(other->dtype) +
                       "; F32, F16 and BF16 can be read");
  }
  return NotFound("safetensors: tensor " + Quote(name) + " is missing");
}

}  // namespace pocketlm
