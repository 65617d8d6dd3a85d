#include "format/gguf_writer.h"

#include <cstring>
#include <utility>

#include "base/checked_math.h"
#include "base/quote.h"
#include "base/tensor_view.h"

namespace pocketlm {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;  // the default, which needs no key
constexpr size_t kMaxNameBytes = 63;
constexpr char kMagic[] = {'G', 'G', 'U', 'F'};

// The numbers of tensor types in files, indexed by DType.
constexpr uint32_t kTypeNumbers[kNumDTypes] = {0, 1, 30, 8, 2, 3, 6, 7, 12, 13, 14};

template <typename T>
void Put(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void PutString(std::string_view text, std::string* out) {
  Put<uint64_t>(text.size(), out);
  out->append(text);
}

void PutArrayHead(GgufType type, size_t size, std::string* out) {
  Put(static_cast<uint32_t>(type), out);
  Put<uint64_t>(size, out);
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Result<GgufFileWriter> GgufFileWriter::Create(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  return GgufFileWriter(std::move(file));
}

void GgufFileWriter::Key(std::string_view key, GgufType type) {
  PutString(key, &metadata_);
  Put(static_cast<uint32_t>(type), &metadata_);
  ++num_keys_;
}

void GgufFileWriter::AddUint32(std::string_view key, uint32_t value) {
  Key(key, GgufType::kUint32);
  Put(value, &metadata_);
}

void GgufFileWriter::AddFloat32(std::string_view key, float value) {
  Key(key, GgufType::kFloat32);
  Put(value, &metadata_);
}

void GgufFileWriter::AddBool(std::string_view key, bool value) {
  Key(key, GgufType::kBool);
  Put<uint8_t>(value ? 1 : 0, &metadata_);
}

void GgufFileWriter::AddString(std::string_view key, std::string_view value) {
  Key(key, GgufType::kString);
  PutString(value, &metadata_);
}

void GgufFileWriter::AddStrings(std::string_view key, std::span<const std::string> values) {
  Key(key, GgufType::kArray);
  PutArrayHead(GgufType::kString, values.size(), &metadata_);
  for (const std::string& value : values) PutString(value, &metadata_);
}

void GgufFileWriter::AddInt32s(std::string_view key, std::span<const int32_t> values) {
  Key(key, GgufType::kArray);
  PutArrayHead(GgufType::kInt32, values.size(), &metadata_);
  for (const int32_t value : values) Put(value, &metadata_);
}

void GgufFileWriter::AddFloat32s(std::string_view key, std::span<const float> values) {
  Key(key, GgufType::kArray);
  PutArrayHead(GgufType::kFloat32, values.size(), &metadata_);
  for (const float value : values) Put(value, &metadata_);
}

void GgufFileWriter::AddBools(std::string_view key, const std::vector<bool>& values) {
  Key(key, GgufType::kArray);
  PutArrayHead(GgufType::kBool, values.size(), &metadata_);
  for (const bool value : values) Put<uint8_t>(value ? 1 : 0, &metadata_);
}

Status GgufFileWriter::DeclareTensor(std::string_view name, DType type,
                                     const std::vector<uint64_t>& shape) {
  const std::string what = "gguf: write: tensor " + Quote(name) + ": ";
  if (name.empty() || name.size() > kMaxNameBytes)
    return InvalidArgument(what + "expected a name of 1 to 63 bytes");
  if (!names_.emplace(name).second) return InvalidArgument(what + "the name is taken");
  if (shape.empty() || shape.size() > 4)
    return InvalidArgument(what + "expected 1 to 4 dimensions, got " + ShapeString(shape));
  std::optional<uint64_t> bytes = RowBytes(type, shape.back());
  for (size_t i = 0; bytes && i + 1 < shape.size(); ++i) bytes = CheckedMul(*bytes, shape[i]);
  if (!bytes || *bytes == 0) {
    return InvalidArgument(what + "expected whole " + GetDTypeInfo(type).name +
                           " blocks in a row, got the shape " + ShapeString(shape));
  }
  tensors_.push_back({std::string(name), type, shape, *bytes});
  return OkStatus();
}

Status GgufFileWriter::Pad() {
  static constexpr std::byte kZeros[kAlignment] = {};
  const uint64_t past = file_.size_bytes() % kAlignment;
  if (past == 0) return OkStatus();
  return file_.Write(std::span(kZeros, static_cast<size_t>(kAlignment - past)));
}

Status GgufFileWriter::WriteHeader() {
  header_written_ = true;
  std::string head(kMagic, sizeof(kMagic));
  Put(kVersion, &head);
  Put<uint64_t>(tensors_.size(), &head);
  Put(num_keys_, &head);
  POCKETLM_RETURN_IF_ERROR(file_.Write(Bytes(head)));
  POCKETLM_RETURN_IF_ERROR(file_.Write(Bytes(metadata_)));
  std::string infos;
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(tensor.name, &infos);
    Put(static_cast<uint32_t>(tensor.shape.size()), &infos);
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) Put(*size, &infos);
    Put(kTypeNumbers[static_cast<int>(tensor.type)], &infos);
    Put(offset, &infos);
    offset += (tensor.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  POCKETLM_RETURN_IF_ERROR(file_.Write(Bytes(infos)));
  return Pad();
}

Status GgufFileWriter::Append(std::span<const std::byte> data) {
  if (appended_ == tensors_.size())
    return InvalidArgument("gguf: write: more tensors than were declared");
  const Tensor& tensor = tensors_[appended_];
  if (data.size() != tensor.bytes) {
    return InvalidArgument("gguf: write: tensor " + Quote(tensor.name) + ": expected " +
                           std::to_string(tensor.bytes) + " bytes, got " +
                           std::to_string(data.size()));
  }
  if (!header_written_) POCKETLM_RETURN_IF_ERROR(WriteHeader());
  POCKETLM_RETURN_IF_ERROR(file_.Write(data));
  ++appended_;
  return Pad();
}

Status GgufFileWriter::Finish() {
  if (appended_ < tensors_.size()) {
    return InvalidArgument("gguf: write: tensor " + Quote(tensors_[appended_].name) +
                           " was declared, but not appended");
  }
  if (!header_written_) POCKETLM_RETURN_IF_ERROR(WriteHeader());
  return file_.Commit();
}

}  // namespace pocketlm
