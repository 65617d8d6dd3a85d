// Takes .plm files apart and puts checksums right again, for tests of files that are wrong.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/file.h"
#include "format/plm_layout.h"
#include "support/test_support.h"

namespace pocketlm::testing {

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
T GetAt(const std::string& bytes, size_t offset) {
  T value;
  POCKETLM_CHECK(offset + sizeof(T) <= bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <typename T>
void SetAt(std::string* bytes, size_t offset, T value) {
  POCKETLM_CHECK(offset + sizeof(T) <= bytes->size());
  std::memcpy(bytes->data() + offset, &value, sizeof(T));
}

struct PlmSectionRow {
  std::string name;
  size_t row;  // file offset of the row in the header's table
  uint64_t offset;
  uint64_t size;
};

inline std::vector<PlmSectionRow> PlmSections(const std::string& file) {
  std::vector<PlmSectionRow> out;
  const uint32_t count = GetAt<uint32_t>(file, 12);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t row = kPlmFixedHeaderBytes + i * kPlmSectionEntryBytes;
    const std::string name = file.substr(row, kPlmSectionNameBytes);
    out.push_back({name.substr(0, name.find('\0')), row, GetAt<uint64_t>(file, row + 16),
                   GetAt<uint64_t>(file, row + 24)});
  }
  return out;
}

inline PlmSectionRow PlmSection(const std::string& file, std::string_view name) {
  for (const PlmSectionRow& row : PlmSections(file)) {
    if (row.name == name) return row;
  }
  POCKETLM_CHECK(false);
  return {};
}

// Where the header ends, its checksum included.
inline size_t PlmHeaderEnd(const std::string& file) {
  return kPlmFixedHeaderBytes + GetAt<uint32_t>(file, 12) * kPlmSectionEntryBytes + 8;
}

// The file with right checksums of the sections that lie in it, and of the header.
inline std::string SealPlm(std::string file) {
  for (const PlmSectionRow& section : PlmSections(file)) {
    if (section.offset > file.size() || section.size > file.size() - section.offset) continue;
    const std::string_view bytes = std::string_view(file).substr(section.offset, section.size);
    SetAt<uint64_t>(&file, section.row + 32, Xxh3(BytesOf(bytes)));
  }
  const size_t end = PlmHeaderEnd(file) - 8;
  SetAt<uint64_t>(&file, end, Xxh3(BytesOf(std::string_view(file).substr(0, end))));
  return file;
}

// The file with other bytes in one of its sections, which goes to the end of the file.
inline std::string WithPlmSection(std::string file, std::string_view name, std::string_view bytes) {
  const PlmSectionRow section = PlmSection(file, name);
  file.resize((file.size() + 63) / 64 * 64, '\0');
  SetAt<uint64_t>(&file, section.row + 16, file.size());
  SetAt<uint64_t>(&file, section.row + 24, bytes.size());
  file += bytes;
  SetAt<uint64_t>(&file, 16, file.size());
  return SealPlm(std::move(file));
}

inline std::string ReadFileOrDie(const std::string& path) {
  auto content = ReadFile(path);
  POCKETLM_CHECK(content.ok());
  return std::move(content).value();
}

}  // namespace pocketlm::testing
