#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "format/gguf.h"
#include "format/gguf_layout.h"

namespace pocketlm {
namespace {

constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint64_t kMaxTensors = 65536;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = 65536;
// The least that an entry takes in a file: length, one character, type tag, one byte of value; and
// length, one character, dimension count, type, offset.
constexpr uint64_t kMinKeyEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorEntryBytes = 8 + 1 + 4 + 4 + 8;

std::optional<DType> DTypeOfGgml(uint32_t type) {
  switch (type) {
    case 0:
      return DType::kF32;
    case 1:
      return DType::kF16;
    case 2:
      return DType::kQ4_0;
    case 3:
      return DType::kQ4_1;
    case 6:
      return DType::kQ5_0;
    case 7:
      return DType::kQ5_1;
    case 8:
      return DType::kQ8_0;
    case 12:
      return DType::kQ4_K;
    case 13:
      return DType::kQ5_K;
    case 14:
      return DType::kQ6_K;
    case 30:
      return DType::kBF16;
    default:
      return std::nullopt;
  }
}

// Names of the ggml types that exist, or once existed, and that we do not read; nullptr for others.
const char* OtherGgmlTypeName(uint32_t type) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {
      {4, "Q4_2"},        {5, "Q4_3"},        {9, "Q8_1"},        {10, "Q2_K"},    {11, "Q3_K"},
      {15, "Q8_K"},       {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"}, {19, "IQ1_S"},
      {20, "IQ4_NL"},     {21, "IQ3_S"},      {22, "IQ2_S"},      {23, "IQ4_XS"},  {24, "I8"},
      {25, "I16"},        {26, "I32"},        {27, "I64"},        {28, "F64"},     {29, "IQ1_M"},
      {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"},
      {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {39, "MXFP4"},   {40, "NVFP4"},
      {41, "Q1_0"},
  };
  for (const auto& [number, name] : kNames) {
    if (number == type) return name;
  }
  return nullptr;
}

// Where a tensor's data lies, counted from the start of the data section.
struct Extent {
  uint64_t offset;
  uint64_t bytes;
};

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : reader_(bytes) { file_.bytes_ = bytes; }

  Result<GgufFile> Parse() {
    POCKETLM_RETURN_IF_ERROR(ParseHeader());
    POCKETLM_RETURN_IF_ERROR(ParseKeys());
    POCKETLM_RETURN_IF_ERROR(SortKeys());
    POCKETLM_RETURN_IF_ERROR(ReadAlignment());
    POCKETLM_RETURN_IF_ERROR(ParseTensors());
    POCKETLM_RETURN_IF_ERROR(PlaceTensors());
    POCKETLM_RETURN_IF_ERROR(CheckOverlap());
    POCKETLM_RETURN_IF_ERROR(SortTensors());
    return std::move(file_);
  }

 private:
  Status ParseHeader();
  Status ParseKeys();
  Status ParseKey();
  Status SkipValue(GgufType type);
  Status SkipArray();
  Status CheckBools(uint64_t count);
  Status SortKeys();
  Status ReadAlignment();
  Status ParseTensors();
  Status ParseTensor();
  Status ParseShape(TensorView* tensor);
  Result<uint64_t> TensorBytes(const TensorView& tensor);
  Status PlaceTensors();
  Status CheckOverlap();
  Status SortTensors();

  Result<std::string_view> ReadName(const char* what);
  Result<GgufType> ReadType();

  ByteReader reader_;
  GgufFile file_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  std::vector<Extent> extents_;  // of file_.tensors_, same order
};

Status GgufParser::ParseHeader() {
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view magic, reader_.ReadString(4, "magic"));
  if (magic != "GGUF") return DataError("expected the magic 'GGUF', got " + Quote(magic));
  POCKETLM_ASSIGN_OR_RETURN(file_.version_, reader_.Read<uint32_t>("version"));
  if (file_.version_ != 0 && (file_.version_ & 0xFFFF) == 0) {
    return Unsupported("a big-endian file; only little-endian ones can be read");
  }
  if (file_.version_ == 1)
    return Unsupported("version 1 of the format; versions 2 and 3 can be read");
  if (file_.version_ != 2 && file_.version_ != 3) {
    return Unsupported("version " + std::to_string(file_.version_) +
                       " of the format; versions 2 and 3 can be read");
  }
  POCKETLM_ASSIGN_OR_RETURN(num_tensors_, reader_.Read<uint64_t>("tensor count"));
  POCKETLM_ASSIGN_OR_RETURN(num_keys_, reader_.Read<uint64_t>("key count"));
  if (num_keys_ > std::min<uint64_t>(reader_.remaining() / kMinKeyEntryBytes, UINT32_MAX)) {
    return DataError("key count " + std::to_string(num_keys_) + " is more than the file can hold");
  }
  return OkStatus();
}

Result<std::string_view> GgufParser::ReadName(const char* what) {
  POCKETLM_ASSIGN_OR_RETURN(const uint64_t length, reader_.Read<uint64_t>(what));
  if (length == 0 || length > kMaxNameBytes) {
    return DataError(std::string(what) + ": expected 1 to 65535 bytes, got " +
                     std::to_string(length));
  }
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view name, reader_.ReadString(length, what));
  if (!IsValidUtf8(name))
    return DataError(std::string(what) + " " + Quote(name) + " is not valid UTF-8");
  return name;
}

Result<GgufType> GgufParser::ReadType() {
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>("value type"));
  if (type >= kNumGgufTypes) return DataError("unknown value type " + std::to_string(type));
  return static_cast<GgufType>(type);
}

Status GgufParser::ParseKeys() {
  file_.keys_.reserve(static_cast<size_t>(num_keys_));
  for (uint64_t i = 0; i < num_keys_; ++i) {
    Status status = ParseKey();
    if (!status.ok()) return status.WithContext("key " + std::to_string(i));
  }
  return OkStatus();
}

Status GgufParser::ParseKey() {
  file_.keys_.push_back(reader_.position());
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view name, ReadName("name"));
  POCKETLM_ASSIGN_OR_RETURN(const GgufType type, ReadType());
  Status status = SkipValue(type);
  if (!status.ok()) return status.WithContext(Quote(name));
  return OkStatus();
}

Status GgufParser::SkipValue(GgufType type) {
  if (type == GgufType::kArray) return SkipArray();
  if (type == GgufType::kBool) return CheckBools(1);
  uint64_t bytes = GgufScalarBytes(type);
  if (type == GgufType::kString) {
    POCKETLM_ASSIGN_OR_RETURN(bytes, reader_.Read<uint64_t>("string length"));
  }
  return reader_.ReadBytes(bytes, GgufTypeName(type)).status();
}

Status GgufParser::SkipArray() {
  POCKETLM_ASSIGN_OR_RETURN(const GgufType type, ReadType());
  POCKETLM_ASSIGN_OR_RETURN(const uint64_t count, reader_.Read<uint64_t>("array length"));
  if (type == GgufType::kArray) return DataError("an array of arrays");
  const uint64_t element_bytes =
      type == GgufType::kString ? sizeof(uint64_t) : GgufScalarBytes(type);
  if (count > reader_.remaining() / element_bytes) {
    return DataError("array of " + std::to_string(count) + " " + GgufTypeName(type) +
                     ": more than the file can hold");
  }
  if (type == GgufType::kBool) return CheckBools(count);
  if (type != GgufType::kString) return reader_.ReadBytes(count * element_bytes, "array").status();
  for (uint64_t i = 0; i < count; ++i) {
    Status status = SkipValue(GgufType::kString);
    if (!status.ok()) return status.WithContext("string " + std::to_string(i));
  }
  return OkStatus();
}

Status GgufParser::CheckBools(uint64_t count) {
  POCKETLM_ASSIGN_OR_RETURN(const auto values, reader_.ReadBytes(count, "bool"));
  const auto wrong =
      std::find_if(values.begin(), values.end(), [](std::byte b) { return b > std::byte{1}; });
  if (wrong == values.end()) return OkStatus();
  return DataError("bool: expected 0 or 1, got " + std::to_string(std::to_integer<int>(*wrong)));
}

Status GgufParser::SortKeys() {
  auto& order = file_.keys_by_name_;
  const auto name = [this](uint32_t i) { return file_.KeyAt(file_.keys_[i]); };
  order.resize(file_.keys_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto twin = std::adjacent_find(order.begin(), order.end(),
                                       [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twin != order.end()) return DataError("key " + Quote(name(*twin)) + " occurs twice");
  return OkStatus();
}

Status GgufParser::ReadAlignment() {
  const auto type = file_.TypeOf("general.alignment");
  if (!type) return OkStatus();
  const auto alignment = file_.GetUint("general.alignment");
  if (!alignment.ok()) {
    return DataError(
        std::string("general.alignment: expected a positive integer, got a value of type ") +
        GgufTypeName(*type));
  }
  if (*alignment < kMinAlignment || *alignment > kMaxAlignment ||
      (*alignment & (*alignment - 1)) != 0) {
    return DataError("general.alignment: expected a power of two from 8 to 65536, got " +
                     std::to_string(*alignment));
  }
  file_.alignment_ = static_cast<uint32_t>(*alignment);
  return OkStatus();
}

Status GgufParser::ParseTensors() {
  if (num_tensors_ > reader_.remaining() / kMinTensorEntryBytes) {
    return DataError("tensor count " + std::to_string(num_tensors_) +
                     " is more than the file can hold");
  }
  if (num_tensors_ > kMaxTensors) {
    return Unsupported(std::to_string(num_tensors_) + " tensors; at most 65536 can be read");
  }
  file_.tensors_.reserve(static_cast<size_t>(num_tensors_));
  extents_.reserve(static_cast<size_t>(num_tensors_));
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    Status status = ParseTensor();
    if (!status.ok()) return status.WithContext("tensor " + std::to_string(i));
  }
  return OkStatus();
}

Status GgufParser::ParseTensor() {
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view name, ReadName("name"));
  TensorView tensor;
  Status status = ParseShape(&tensor);
  if (!status.ok()) return status.WithContext(Quote(name));
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t type, reader_.Read<uint32_t>("tensor type"));
  const auto dtype = DTypeOfGgml(type);
  if (!dtype) {
    const char* type_name = OtherGgmlTypeName(type);
    if (type_name != nullptr) return Unsupported(Quote(name) + ": type " + type_name);
    return DataError(Quote(name) + ": unknown type " + std::to_string(type));
  }
  tensor.type = *dtype;
  auto bytes = TensorBytes(tensor);
  if (!bytes.ok()) return bytes.status().WithContext(Quote(name));
  POCKETLM_ASSIGN_OR_RETURN(const uint64_t offset, reader_.Read<uint64_t>("tensor offset"));
  if (offset % file_.alignment_ != 0) {
    return DataError(Quote(name) + ": offset " + std::to_string(offset) +
                     " is no multiple of the alignment " + std::to_string(file_.alignment_));
  }
  tensor.name = name;
  file_.tensors_.push_back(std::move(tensor));
  extents_.push_back({offset, *bytes});
  return OkStatus();
}

// The file lists the contiguous dimension first.
Status GgufParser::ParseShape(TensorView* tensor) {
  POCKETLM_ASSIGN_OR_RETURN(const uint32_t rank, reader_.Read<uint32_t>("dimension count"));
  if (rank > kMaxDimensions) {
    return DataError("expected at most 4 dimensions, got " + std::to_string(rank));
  }
  tensor->shape.resize(rank);
  for (uint32_t i = rank; i-- > 0;) {
    POCKETLM_ASSIGN_OR_RETURN(tensor->shape[i], reader_.Read<uint64_t>("dimension"));
    if (tensor->shape[i] == 0) return DataError("a dimension is 0");
  }
  return OkStatus();
}

Result<uint64_t> GgufParser::TensorBytes(const TensorView& tensor) {
  const DTypeInfo& info = GetDTypeInfo(tensor.type);
  const uint64_t row_values = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row_values % info.block_values != 0) {
    return DataError("shape " + ShapeString(tensor.shape) + ": rows are no whole blocks of " +
                     std::to_string(info.block_values) + " values (" + info.name + ")");
  }
  std::optional<uint64_t> bytes = RowBytes(tensor.type, row_values);
  for (size_t i = 0; bytes && i + 1 < tensor.shape.size(); ++i) {
    bytes = CheckedMul(*bytes, tensor.shape[i]);
  }
  if (!bytes)
    return DataError("shape " + ShapeString(tensor.shape) + ": its bytes overflow 64 bits");
  return *bytes;
}

Status GgufParser::PlaceTensors() {
  if (file_.tensors_.empty()) return OkStatus();
  const uint64_t size = file_.bytes_.size();
  const auto begin = CheckedAlignUp(reader_.position(), file_.alignment_);
  const uint64_t data_bytes = begin && *begin <= size ? size - *begin : 0;
  for (size_t i = 0; i < extents_.size(); ++i) {
    const auto end = CheckedAdd(extents_[i].offset, extents_[i].bytes);
    if (!end || *end > data_bytes) {
      return DataError("tensor " + Quote(file_.tensors_[i].name) + ": " +
                       std::to_string(extents_[i].bytes) + " bytes at " +
                       std::to_string(extents_[i].offset) + ", but the file has only " +
                       std::to_string(data_bytes) + " bytes of tensor data (is it complete?)");
    }
    file_.tensors_[i].data = file_.bytes_.subspan(static_cast<size_t>(*begin + extents_[i].offset),
                                                  static_cast<size_t>(extents_[i].bytes));
  }
  return OkStatus();
}

Status GgufParser::CheckOverlap() {
  std::vector<uint32_t> order(extents_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return extents_[a].offset < extents_[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Extent& before = extents_[order[i - 1]];
    if (before.offset + before.bytes > extents_[order[i]].offset) {
      return DataError("tensors " + Quote(file_.tensors_[order[i - 1]].name) + " and " +
                       Quote(file_.tensors_[order[i]].name) + " overlap");
    }
  }
  file_.tensors_by_name_ = std::move(order);
  return OkStatus();
}

Status GgufParser::SortTensors() {
  auto& order = file_.tensors_by_name_;
  const auto name = [this](uint32_t i) -> const std::string& { return file_.tensors_[i].name; };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto twin = std::adjacent_find(order.begin(), order.end(),
                                       [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twin != order.end()) return DataError("tensor " + Quote(name(*twin)) + " occurs twice");
  return OkStatus();
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8 != 0) {
    return InvalidArgument("gguf: the bytes must be 8-byte aligned");
  }
  try {
    auto file = GgufParser(bytes).Parse();
    if (!file.ok()) return file.status().WithContext("gguf");
    return file;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("gguf: no memory for the tables");
  }
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  auto file = Parse(mapping.bytes());
  if (!file.ok()) return file.status().WithContext("load " + path);
  file->mapping_ = std::move(mapping);
  return file;
}

}  // namespace pocketlm
