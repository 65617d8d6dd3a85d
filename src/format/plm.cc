#include "format/plm.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/quote.h"
#include "format/plm_layout.h"

namespace pocketlm {
namespace {

Status Damaged(const std::string& what, uint64_t expected, uint64_t got) {
  return DataError("plm: " + what + " is damaged: expected the checksum " + ChecksumText(expected) +
                   ", got " + ChecksumText(got) + "; fetch or convert the file again");
}

}  // namespace

bool HasPlmMagic(std::span<const std::byte> bytes) {
  return bytes.size() >= kPlmMagic.size() &&
         std::memcmp(bytes.data(), kPlmMagic.data(), kPlmMagic.size()) == 0;
}

Result<PlmFile> PlmFile::Open(const std::string& path) {
  POCKETLM_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  auto file = Parse(mapping.bytes());
  if (!file.ok()) return file.status().WithContext("load " + path);
  file->mapping_ = std::move(mapping);
  return file;
}

const PlmFile::Section* PlmFile::Find(std::string_view name) const {
  for (const Section& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

std::optional<std::span<const std::byte>> PlmFile::FindSection(std::string_view name) const {
  const Section* section = Find(name);
  if (section == nullptr) return std::nullopt;
  return section->bytes;
}

const TensorView* PlmFile::FindTensor(std::string_view name) const {
  const auto at =
      std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name,
                       [this](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at == tensors_by_name_.end() || tensors_[*at].name != name ? nullptr : &tensors_[*at];
}

Status PlmFile::Verify() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const uint64_t got = Xxh3(tensors_[i].data);
    if (got != tensor_checksums_[i])
      return Damaged("tensor " + Quote(tensors_[i].name), tensor_checksums_[i], got);
  }
  // What lies between the tensors, too.
  const Section* payload = Find(kPlmPayload);
  const uint64_t got = Xxh3(payload->bytes);
  return got == payload->checksum ? OkStatus() : Damaged("section payload", payload->checksum, got);
}

void PlmFile::PrefetchPayload() const {
  if (!mapping_) return;
  const std::span<const std::byte> payload = Find(kPlmPayload)->bytes;
  mapping_->Prefetch(static_cast<uint64_t>(payload.data() - bytes_.data()), payload.size());
}

}  // namespace pocketlm
