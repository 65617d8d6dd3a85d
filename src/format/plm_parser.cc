#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/checksum.h"
#include "base/json.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "format/plm.h"
#include "format/plm_layout.h"

namespace pocketlm {
namespace {

std::string Number(uint64_t value) { return std::to_string(value); }

// "[begin, end)" for messages.
std::string Range(uint64_t begin, uint64_t size) {
  return "[" + Number(begin) + ", " + Number(begin + size) + ")";
}

// A row of the index as it lies in the file.
struct TensorEntry {
  uint64_t offset, size, checksum;
  uint32_t type, offset_type, group_size, num_dims, name_bytes;
};

}  // namespace

class PlmParser {
 public:
  explicit PlmParser(std::span<const std::byte> bytes) : reader_(bytes) { file_.bytes_ = bytes; }

  Result<PlmFile> Parse() {
    POCKETLM_RETURN_IF_ERROR(ParseHeader());
    POCKETLM_RETURN_IF_ERROR(ParseSections());
    POCKETLM_RETURN_IF_ERROR(CheckHeaderChecksum());
    POCKETLM_RETURN_IF_ERROR(CheckFileSize());
    POCKETLM_RETURN_IF_ERROR(CheckSectionOverlap());
    POCKETLM_RETURN_IF_ERROR(CheckSections());
    POCKETLM_RETURN_IF_ERROR(ParseMetadata());
    POCKETLM_RETURN_IF_ERROR(ParseTensors());
    POCKETLM_RETURN_IF_ERROR(SortTensors());
    return std::move(file_);
  }

 private:
  struct Extent {
    uint64_t offset;
    uint64_t size;
  };

  Status ParseHeader();
  Status ParseSections();
  Status CheckHeaderChecksum();
  Status CheckFileSize();
  Status CheckSectionOverlap();
  Status CheckSections();
  Status CheckSection(size_t i);
  Status ParseMetadata();
  Status ParseTensors();
  Status ParseTensor();
  Result<TensorEntry> ReadEntry();
  Status ReadShape(const TensorEntry& entry, TensorView* tensor);
  Status PlaceTensor(const TensorEntry& entry, TensorView* tensor);
  Status SetPlain(const TensorEntry& entry, DType type, TensorView* tensor);
  Status SetPacked(const TensorEntry& entry, PackedType type, TensorView* tensor);
  Status SortTensors();

  ByteReader reader_;
  PlmFile file_;
  uint32_t num_sections_ = 0;
  uint64_t file_size_ = 0;       // as the header says
  std::vector<Extent> extents_;  // of file_.sections_, same order
  uint64_t payload_end_ = 0;     // of the tensors so far
};

Status PlmParser::ParseHeader() {
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view magic,
                            reader_.ReadString(kPlmMagic.size(), "magic"));
  if (magic != kPlmMagic) return DataError("not a .plm file: it begins with " + Quote(magic));
  POCKETLM_ASSIGN_OR_RETURN(file_.major_version_, reader_.Read<uint16_t>("version"));
  POCKETLM_ASSIGN_OR_RETURN(file_.minor_version_, reader_.Read<uint16_t>("version"));
  if (file_.major_version_ != kPlmMajorVersion) {
    return Unsupported("format version " + Number(file_.major_version_) + "." +
                       Number(file_.minor_version_) + "; this program reads version " +
                       Number(kPlmMajorVersion) + "; use a " +
                       (file_.major_version_ > kPlmMajorVersion ? "newer" : "matching") +
                       " program, or convert the model again with this one");
  }
  POCKETLM_ASSIGN_OR_RETURN(num_sections_, reader_.Read<uint32_t>("section count"));
  POCKETLM_ASSIGN_OR_RETURN(file_size_, reader_.Read<uint64_t>("file size"));
  if (num_sections_ > kPlmMaxSections) {
    return DataError("section count: expected at most " + Number(kPlmMaxSections) + ", got " +
                     Number(num_sections_));
  }
  return OkStatus();
}

Status PlmParser::ParseSections() {
  for (uint32_t i = 0; i < num_sections_; ++i) {
    POCKETLM_ASSIGN_OR_RETURN(std::string_view name,
                              reader_.ReadString(kPlmSectionNameBytes, "section name"));
    name = name.substr(0, name.find('\0'));
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t offset, reader_.Read<uint64_t>("section offset"));
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t size, reader_.Read<uint64_t>("section size"));
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t checksum, reader_.Read<uint64_t>("section checksum"));
    file_.sections_.push_back({name, {}, checksum});
    extents_.push_back({offset, size});
  }
  return OkStatus();
}

Status PlmParser::CheckHeaderChecksum() {
  const uint64_t got = Xxh3(file_.bytes_.first(reader_.position()));
  POCKETLM_ASSIGN_OR_RETURN(const uint64_t expected, reader_.Read<uint64_t>("header checksum"));
  if (got == expected) return OkStatus();
  return DataError("the header is damaged: expected the checksum " + ChecksumText(expected) +
                   ", got " + ChecksumText(got) + "; fetch or convert the file again");
}

Status PlmParser::CheckFileSize() {
  if (file_.bytes_.size() == file_size_) return OkStatus();
  return DataError("expected a file of " + Number(file_size_) + " bytes, got " +
                   Number(file_.bytes_.size()) +
                   "; it is not complete or was changed: fetch or convert it again");
}

Status PlmParser::CheckSectionOverlap() {
  std::vector<Extent> sorted = extents_;
  std::sort(sorted.begin(), sorted.end(), [](const Extent& a, const Extent& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.size < b.size;
  });
  uint64_t free_from = reader_.position();
  for (const Extent& extent : sorted) {
    if (extent.offset > file_size_ || extent.size > file_size_ - extent.offset) {
      return DataError("a section of " + Number(extent.size) + " bytes at byte " +
                       Number(extent.offset) + " does not lie in the file of " +
                       Number(file_size_) + " bytes");
    }
    if (extent.offset < free_from) {
      return DataError("the section at byte " + Number(extent.offset) +
                       " overlaps what ends at byte " + Number(free_from));
    }
    free_from = extent.offset + extent.size;
  }
  return OkStatus();
}

Status PlmParser::CheckSections() {
  for (size_t i = 0; i < file_.sections_.size(); ++i) {
    Status status = CheckSection(i);
    if (!status.ok()) return status.WithContext("section " + Quote(file_.sections_[i].name));
  }
  for (const std::string_view name : {kPlmMetadata, kPlmTensors, kPlmPayload}) {
    if (file_.Find(name) == nullptr) return DataError("section " + Quote(name) + " is missing");
  }
  return OkStatus();
}

Status PlmParser::CheckSection(size_t i) {
  PlmFile::Section& section = file_.sections_[i];
  const Extent extent = extents_[i];
  if (!PlmSectionNameIsValid(section.name))
    return DataError("expected a name of 1 to 16 characters of a-z, 0-9 and _");
  if (file_.Find(section.name) != &section) return DataError("occurs twice");
  const bool is_payload = section.name == kPlmPayload;
  const uint64_t alignment = is_payload ? kPlmPayloadAlignment : kPlmAlignment;
  if (extent.offset % alignment != 0) {
    return DataError("expected an offset that is a multiple of " + Number(alignment) + ", got " +
                     Number(extent.offset));
  }
  section.bytes =
      file_.bytes_.subspan(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.size));
  if (is_payload) return OkStatus();
  const uint64_t got = Xxh3(section.bytes);
  if (got == section.checksum) return OkStatus();
  return DataError("damaged: expected the checksum " + ChecksumText(section.checksum) + ", got " +
                   ChecksumText(got) + "; fetch or convert the file again");
}

Status PlmParser::ParseMetadata() {
  const std::span<const std::byte> bytes = file_.Find(kPlmMetadata)->bytes;
  auto metadata = ParseJson({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!metadata.ok()) return metadata.status().WithContext("section 'metadata'");
  if (!metadata->is_object()) return DataError("section 'metadata': expected a JSON object");
  file_.metadata_ = std::move(metadata).value();
  return OkStatus();
}

Status PlmParser::ParseTensors() {
  reader_ = ByteReader(file_.Find(kPlmTensors)->bytes);
  POCKETLM_ASSIGN_OR_RETURN(const uint64_t count, reader_.Read<uint64_t>("tensor count"));
  // An entry takes one dimension and one character of name, padded, at least.
  if (count > reader_.remaining() / (kPlmTensorEntryBytes + 2 * sizeof(uint64_t))) {
    return DataError("section 'tensors': a count of " + Number(count) +
                     " is more than its bytes can hold");
  }
  file_.tensors_.reserve(static_cast<size_t>(count));
  file_.tensor_checksums_.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    Status status = ParseTensor();
    if (!status.ok()) return status.WithContext("tensor " + Number(i));
  }
  if (reader_.remaining() == 0) return OkStatus();
  return DataError("section 'tensors': " + Number(reader_.remaining()) +
                   " bytes are left after the last tensor");
}

Result<TensorEntry> PlmParser::ReadEntry() {
  TensorEntry e;
  POCKETLM_ASSIGN_OR_RETURN(e.offset, reader_.Read<uint64_t>("offset"));
  POCKETLM_ASSIGN_OR_RETURN(e.size, reader_.Read<uint64_t>("size"));
  POCKETLM_ASSIGN_OR_RETURN(e.checksum, reader_.Read<uint64_t>("checksum"));
  POCKETLM_ASSIGN_OR_RETURN(e.type, reader_.Read<uint32_t>("type"));
  POCKETLM_ASSIGN_OR_RETURN(e.offset_type, reader_.Read<uint32_t>("offset type"));
  POCKETLM_ASSIGN_OR_RETURN(e.group_size, reader_.Read<uint32_t>("group size"));
  POCKETLM_ASSIGN_OR_RETURN(e.num_dims, reader_.Read<uint32_t>("dimension count"));
  POCKETLM_ASSIGN_OR_RETURN(e.name_bytes, reader_.Read<uint32_t>("name length"));
  POCKETLM_RETURN_IF_ERROR(reader_.Read<uint32_t>("reserved field").status());
  return e;
}

Status PlmParser::ParseTensor() {
  POCKETLM_ASSIGN_OR_RETURN(const TensorEntry entry, ReadEntry());
  TensorView tensor;
  POCKETLM_RETURN_IF_ERROR(ReadShape(entry, &tensor));
  if (entry.name_bytes == 0 || entry.name_bytes > kPlmMaxNameBytes) {
    return DataError("name length: expected 1 to 255 bytes, got " + Number(entry.name_bytes));
  }
  POCKETLM_ASSIGN_OR_RETURN(const std::string_view padded,
                            reader_.ReadString((entry.name_bytes + 7u) / 8 * 8, "name"));
  tensor.name = padded.substr(0, entry.name_bytes);
  if (!IsValidUtf8(tensor.name)) return DataError("name " + Quote(tensor.name) + ": no UTF-8");
  Status status = PlaceTensor(entry, &tensor);
  if (!status.ok()) return status.WithContext(Quote(tensor.name));
  file_.tensors_.push_back(std::move(tensor));
  file_.tensor_checksums_.push_back(entry.checksum);
  return OkStatus();
}

Status PlmParser::ReadShape(const TensorEntry& entry, TensorView* tensor) {
  if (entry.num_dims == 0 || entry.num_dims > kPlmMaxDimensions) {
    return DataError("dimension count: expected 1 to 4, got " + Number(entry.num_dims));
  }
  tensor->shape.reserve(entry.num_dims);
  for (uint32_t i = 0; i < entry.num_dims; ++i) {
    POCKETLM_ASSIGN_OR_RETURN(const uint64_t dimension, reader_.Read<uint64_t>("dimension"));
    if (dimension == 0) return DataError("dimension " + Number(i) + ": expected at least 1, got 0");
    tensor->shape.push_back(dimension);
  }
  return OkStatus();
}

Status PlmParser::PlaceTensor(const TensorEntry& entry, TensorView* tensor) {
  const std::span<const std::byte> payload = file_.Find(kPlmPayload)->bytes;
  if (entry.offset % kPlmAlignment != 0) {
    return DataError("expected an offset that is a multiple of 64, got " + Number(entry.offset));
  }
  if (entry.offset > payload.size() || entry.size > payload.size() - entry.offset) {
    return DataError(Number(entry.size) + " bytes at byte " + Number(entry.offset) +
                     " do not lie in the payload of " + Number(payload.size()) + " bytes");
  }
  if (entry.offset < payload_end_) {
    return DataError("bytes " + Range(entry.offset, entry.size) +
                     " of the payload overlap the tensor before, which ends at " +
                     Number(payload_end_));
  }
  payload_end_ = entry.offset + entry.size;
  tensor->data =
      payload.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.size));
  switch (entry.type) {
    case kPlmF32:
      return SetPlain(entry, DType::kF32, tensor);
    case kPlmF16:
      return SetPlain(entry, DType::kF16, tensor);
    case kPlmBF16:
      return SetPlain(entry, DType::kBF16, tensor);
    case kPlmU4:
      return SetPacked(entry, PackedType::kU4, tensor);
    case kPlmI8:
      return SetPacked(entry, PackedType::kI8, tensor);
    default:
      return Unsupported("type " + Number(entry.type) + " is not known to version " +
                         Number(kPlmMajorVersion) + "." + Number(kPlmMinorVersion) +
                         " of the format; use a newer program");
  }
}

Status PlmParser::SetPlain(const TensorEntry& entry, DType type, TensorView* tensor) {
  if (entry.offset_type != 0 || entry.group_size != 0) {
    return DataError("expected offset type 0 and group size 0 for " +
                     std::string(GetDTypeInfo(type).name) + ", got " + Number(entry.offset_type) +
                     " and " + Number(entry.group_size));
  }
  tensor->type = type;
  const auto bytes = PlmPlainBytes(type, tensor->shape.data(), tensor->shape.size());
  if (bytes == entry.size) return OkStatus();
  return DataError(std::string(GetDTypeInfo(type).name) + " " + ShapeString(tensor->shape) +
                   ": expected " + (bytes ? Number(*bytes) : "more") + " bytes, got " +
                   Number(entry.size));
}

Status PlmParser::SetPacked(const TensorEntry& entry, PackedType type, TensorView* tensor) {
  if (entry.offset_type > static_cast<uint32_t>(OffsetType::kMinF16))
    return Unsupported("offset type " + Number(entry.offset_type) +
                       " is not known; use a newer program");
  const PackedLayout layout{type, static_cast<OffsetType>(entry.offset_type), entry.group_size};
  if (tensor->shape.size() != 2) {
    return DataError("expected a packed matrix of 2 dimensions, got " + ShapeString(tensor->shape));
  }
  const uint64_t rows = tensor->shape[0], cols = tensor->shape[1];
  const auto planes = PlaneBytes(layout, rows, cols);
  const auto places = planes ? PlacePlanes(*planes) : std::nullopt;
  if (!places) {
    return DataError(std::string(PackedTypeName(type)) + " with offset " +
                     OffsetTypeName(layout.offset) + " and groups of " + Number(entry.group_size) +
                     " does not fit a matrix " + ShapeString(tensor->shape) +
                     " (groups of 32, 64 or 128; whole groups)");
  }
  if (places->end != entry.size) {
    return DataError(std::string(PackedTypeName(type)) + " " + ShapeString(tensor->shape) +
                     ": expected planes of " + Number(places->end) + " bytes, got " +
                     Number(entry.size));
  }
  const std::byte* base = tensor->data.data();
  tensor->packed = PackedMatrix{
      layout, static_cast<size_t>(rows), static_cast<size_t>(cols),
      base,   base + places->scales,     planes->offsets == 0 ? nullptr : base + places->offsets};
  return OkStatus();
}

Status PlmParser::SortTensors() {
  auto& order = file_.tensors_by_name_;
  const auto& tensors = file_.tensors_;
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].name == tensors[b].name;
  });
  if (twice == order.end()) return OkStatus();
  return DataError("tensor " + Quote(tensors[*twice].name) + " occurs twice");
}

Result<PlmFile> PlmFile::Parse(std::span<const std::byte> bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kPlmAlignment != 0)
    return InvalidArgument("plm: expected bytes at an address that is a multiple of 64");
  try {
    auto file = PlmParser(bytes).Parse();
    if (!file.ok()) return file.status().WithContext("plm");
    return file;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("plm: no memory for the tables");
  }
}

}  // namespace pocketlm
