#include "format/safetensors_writer.h"

#include "base/quote.h"
#include "base/utf8.h"

namespace pocketlm {
namespace {

constexpr size_t kAlignment = 8;  // of the data's beginning, as the format's own writer keeps it

const char* NameOf(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    default:
      return nullptr;
  }
}

}  // namespace

Result<SafetensorsFileWriter> SafetensorsFileWriter::Create(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  SafetensorsFileWriter writer(std::move(file));
  writer.header_["__metadata__"] = {{"format", "pt"}};  // which Transformers asks for
  return writer;
}

Status SafetensorsFileWriter::DeclareTensor(std::string_view name, DType type,
                                            const std::vector<uint64_t>& shape) {
  const auto wrong = [&](const std::string& what) {
    return InvalidArgument("safetensors: tensor " + Quote(name) + ": " + what);
  };
  if (name.empty() || !IsValidUtf8(name)) return wrong("expected a name of valid UTF-8");
  if (header_.contains(name)) return wrong("expected a name that is free");
  if (NameOf(type) == nullptr)
    return wrong(std::string("expected F32, F16 or BF16, got ") + GetDTypeInfo(type).name);
  uint64_t bytes = type == DType::kF32 ? 4 : 2;
  for (const uint64_t dimension : shape) {
    if (dimension != 0 && bytes > (uint64_t{1} << 62) / dimension)
      return wrong("expected less than 2^62 bytes");
    bytes *= dimension;
  }
  header_[std::string(name)] = {
      {"dtype", NameOf(type)}, {"shape", shape}, {"data_offsets", {end_, end_ + bytes}}};
  sizes_.push_back(bytes);
  end_ += bytes;
  return OkStatus();
}

Status SafetensorsFileWriter::WriteHeader() {
  header_written_ = true;
  std::string header = header_.dump();
  header.append((kAlignment - header.size() % kAlignment) % kAlignment, ' ');
  std::string bytes;
  for (size_t i = 0; i < sizeof(uint64_t); ++i)
    bytes.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xFF));
  bytes += header;
  return file_.Write(std::as_bytes(std::span(bytes)));
}

Status SafetensorsFileWriter::Append(std::span<const std::byte> data) {
  if (!header_written_) POCKETLM_RETURN_IF_ERROR(WriteHeader());
  if (appended_ == sizes_.size())
    return InvalidArgument("safetensors: expected " + std::to_string(sizes_.size()) +
                           " tensors, got more");
  if (data.size() != sizes_[appended_])
    return InvalidArgument("safetensors: tensor " + std::to_string(appended_) + ": expected " +
                           std::to_string(sizes_[appended_]) + " bytes, got " +
                           std::to_string(data.size()));
  ++appended_;
  return file_.Write(data);
}

Status SafetensorsFileWriter::Finish() {
  if (!header_written_) POCKETLM_RETURN_IF_ERROR(WriteHeader());
  if (appended_ != sizes_.size())
    return InvalidArgument("safetensors: expected " + std::to_string(sizes_.size()) +
                           " tensors, got " + std::to_string(appended_));
  return file_.Commit();
}

}  // namespace pocketlm
