#include "format/plm_writer.h"

#include <cstring>

#include "base/quote.h"
#include "base/tensor_view.h"
#include "base/utf8.h"
#include "format/plm_layout.h"

namespace pocketlm {
namespace {

template <typename T>
void Put(T value, std::string* out) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out->append(raw, sizeof(T));
}

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Zeros that bring `size` to a multiple of `alignment`.
std::string Padding(uint64_t size, uint64_t alignment) {
  return std::string(static_cast<size_t>((alignment - size % alignment) % alignment), '\0');
}

Status WrongPlane(std::string_view name, const char* plane, uint64_t expected, size_t got) {
  return InvalidArgument("plm: " + Quote(name) + ": " + plane + ": expected " +
                         std::to_string(expected) + " bytes, got " + std::to_string(got));
}

}  // namespace

Result<PlmWriter> PlmWriter::Create(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(path));
  PlmWriter writer(std::move(file));
  // The header's place; it is written when all is known.
  POCKETLM_RETURN_IF_ERROR(writer.file_.Write(Bytes(std::string(kPlmPayloadAlignment, '\0'))));
  return writer;
}

Status PlmWriter::CheckName(std::string_view name) const {
  if (name.empty() || name.size() > kPlmMaxNameBytes || !IsValidUtf8(name)) {
    return InvalidArgument("plm: expected a tensor name of 1 to 255 bytes of UTF-8, got " +
                           Quote(name));
  }
  if (names_.count(name) > 0)
    return InvalidArgument("plm: tensor " + Quote(name) + " was added before");
  return OkStatus();
}

Status PlmWriter::AddPlain(std::string_view name, DType type, const std::vector<uint64_t>& shape,
                           std::span<const std::byte> data) {
  POCKETLM_RETURN_IF_ERROR(CheckName(name));
  const auto number = PlmTypeOf(type);
  if (!number) {
    return InvalidArgument("plm: " + Quote(name) + ": expected F32, F16 or BF16, got " +
                           GetDTypeInfo(type).name);
  }
  const auto bytes = PlmPlainBytes(type, shape.data(), shape.size());
  if (shape.empty() || shape.size() > kPlmMaxDimensions || !bytes || *bytes == 0) {
    return InvalidArgument("plm: " + Quote(name) +
                           ": expected 1 to 4 dimensions of at least 1, got " + ShapeString(shape));
  }
  if (*bytes != data.size()) return WrongPlane(name, "data", *bytes, data.size());
  return AddTensor({name, *number, 0, 0, shape}, {&data, 1});
}

Status PlmWriter::AddPacked(std::string_view name, uint64_t rows, uint64_t cols,
                            const PackedLayout& layout, const PackedPlaneBytes& planes) {
  POCKETLM_RETURN_IF_ERROR(CheckName(name));
  const auto sizes = PlaneBytes(layout, rows, cols);
  if (!sizes) {
    return InvalidArgument("plm: " + Quote(name) + ": a matrix " + ShapeString({rows, cols}) +
                           " has no layout " + PackedTypeName(layout.type) + " " +
                           OffsetTypeName(layout.offset) + " with groups of " +
                           std::to_string(layout.group_size));
  }
  if (planes.codes.size() != sizes->codes)
    return WrongPlane(name, "codes", sizes->codes, planes.codes.size());
  if (planes.scales.size() != sizes->scales)
    return WrongPlane(name, "scales", sizes->scales, planes.scales.size());
  if (planes.offsets.size() != sizes->offsets)
    return WrongPlane(name, "offsets", sizes->offsets, planes.offsets.size());
  const std::span<const std::byte> all[] = {planes.codes, planes.scales, planes.offsets};
  const uint32_t type = layout.type == PackedType::kU4 ? kPlmU4 : kPlmI8;
  return AddTensor(
      {name, type, static_cast<uint32_t>(layout.offset), layout.group_size, {rows, cols}},
      std::span(all).first(sizes->offsets == 0 ? 2 : 3));
}

Status PlmWriter::WritePayload(std::span<const std::byte> bytes) {
  POCKETLM_RETURN_IF_ERROR(file_.Write(bytes));
  payload_hash_.Update(bytes);
  payload_bytes_ += bytes.size();
  return OkStatus();
}

Status PlmWriter::PadPayload() {
  return WritePayload(Bytes(Padding(payload_bytes_, kPlmAlignment)));
}

Status PlmWriter::AddTensor(const Entry& entry,
                            std::span<const std::span<const std::byte>> planes) {
  POCKETLM_RETURN_IF_ERROR(PadPayload());
  const uint64_t begin = payload_bytes_;
  Xxh3Stream hash;
  for (const std::span<const std::byte> plane : planes) {
    const std::string padding = Padding(payload_bytes_, kPlmAlignment);
    hash.Update(Bytes(padding));
    hash.Update(plane);
    POCKETLM_RETURN_IF_ERROR(WritePayload(Bytes(padding)));
    POCKETLM_RETURN_IF_ERROR(WritePayload(plane));
  }
  Put<uint64_t>(begin, &index_);
  Put<uint64_t>(payload_bytes_ - begin, &index_);
  Put<uint64_t>(hash.Digest(), &index_);
  Put<uint32_t>(entry.type, &index_);
  Put<uint32_t>(entry.offset_type, &index_);
  Put<uint32_t>(entry.group_size, &index_);
  Put<uint32_t>(static_cast<uint32_t>(entry.shape.size()), &index_);
  Put<uint32_t>(static_cast<uint32_t>(entry.name.size()), &index_);
  Put<uint32_t>(0, &index_);
  for (const uint64_t dimension : entry.shape) Put<uint64_t>(dimension, &index_);
  index_.append(entry.name);
  index_.append(Padding(entry.name.size(), sizeof(uint64_t)));
  names_.emplace(entry.name);
  ++num_tensors_;
  return OkStatus();
}

Status PlmWriter::AddSection(std::string_view name, std::string bytes) {
  if (!PlmSectionNameIsValid(name) || name == kPlmMetadata || name == kPlmTensors ||
      name == kPlmPayload) {
    return InvalidArgument(
        "plm: expected a section name of 1 to 16 characters of a-z, 0-9 and _ that the format does "
        "not use itself, got " +
        Quote(name));
  }
  for (const auto& section : extra_sections_) {
    if (section.first == name)
      return InvalidArgument("plm: section " + Quote(name) + " was added before");
  }
  if (extra_sections_.size() + 3 >= kPlmMaxSections)
    return InvalidArgument("plm: section " + Quote(name) + ": no more than 61 can be added");
  extra_sections_.emplace_back(name, std::move(bytes));
  return OkStatus();
}

Status PlmWriter::Finish(const nlohmann::ordered_json& metadata) {
  if (!metadata.is_object()) return InvalidArgument("plm: metadata: expected a JSON object");
  std::string text;
  try {
    text = metadata.dump();
  } catch (const nlohmann::json::exception&) {
    return InvalidArgument("plm: metadata: expected strings of valid UTF-8");
  }
  // A payload that fills whole pages leaves none that it shares with what follows.
  POCKETLM_RETURN_IF_ERROR(WritePayload(Bytes(Padding(payload_bytes_, kPlmPayloadAlignment))));
  std::vector<Section> table = {
      {std::string(kPlmPayload), kPlmPayloadAlignment, payload_bytes_, payload_hash_.Digest()}};
  std::string count;
  Put<uint64_t>(num_tensors_, &count);
  POCKETLM_RETURN_IF_ERROR(WriteSection(kPlmTensors, count + index_, &table));
  for (const auto& [name, bytes] : extra_sections_)
    POCKETLM_RETURN_IF_ERROR(WriteSection(name, bytes, &table));
  POCKETLM_RETURN_IF_ERROR(WriteSection(kPlmMetadata, text, &table));
  POCKETLM_RETURN_IF_ERROR(WriteHeader(table));
  return file_.Commit();
}

Status PlmWriter::WriteSection(std::string_view name, std::string_view bytes,
                               std::vector<Section>* table) {
  POCKETLM_RETURN_IF_ERROR(file_.Write(Bytes(Padding(file_.size_bytes(), kPlmAlignment))));
  table->push_back({std::string(name), file_.size_bytes(), bytes.size(), Xxh3(Bytes(bytes))});
  return file_.Write(Bytes(bytes));
}

Status PlmWriter::WriteHeader(const std::vector<Section>& table) {
  std::string header(kPlmMagic);
  Put<uint16_t>(kPlmMajorVersion, &header);
  Put<uint16_t>(kPlmMinorVersion, &header);
  Put<uint32_t>(static_cast<uint32_t>(table.size()), &header);
  Put<uint64_t>(file_.size_bytes(), &header);
  for (const Section& section : table) {
    header += section.name + Padding(section.name.size(), kPlmSectionNameBytes);
    Put<uint64_t>(section.offset, &header);
    Put<uint64_t>(section.size, &header);
    Put<uint64_t>(section.checksum, &header);
  }
  Put<uint64_t>(Xxh3(Bytes(header)), &header);
  return file_.WriteAt(0, Bytes(header));
}

}  // namespace pocketlm
