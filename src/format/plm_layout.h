// Numbers of the .plm format that reader and writer share (docs/format.md).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/packed_layout.h"

namespace pocketlm {

// As in PNG, a byte that is no text and both kinds of line end show a transfer that changed the file.
inline constexpr std::string_view kPlmMagic("\x89PLM\r\n\x1a\n", 8);
inline constexpr uint16_t kPlmMajorVersion = 1;
inline constexpr uint16_t kPlmMinorVersion = 0;

// Header: magic, u16 major, u16 minor, u32 sections, u64 file size; then the sections; then a checksum.
inline constexpr size_t kPlmFixedHeaderBytes = 24;
inline constexpr size_t kPlmSectionNameBytes = 16;
inline constexpr size_t kPlmSectionEntryBytes = kPlmSectionNameBytes + 3 * sizeof(uint64_t);
inline constexpr size_t kPlmMaxSections = 64;

inline constexpr uint64_t kPlmPayloadAlignment = 16384;  // pages of phones
inline constexpr uint64_t kPlmAlignment = 64;            // sections, tensors, planes

inline constexpr size_t kPlmTensorEntryBytes = 48;  // without shape and name
inline constexpr uint32_t kPlmMaxDimensions = 4;
inline constexpr uint32_t kPlmMaxNameBytes = 255;

inline constexpr std::string_view kPlmMetadata = "metadata";
inline constexpr std::string_view kPlmTensors = "tensors";
inline constexpr std::string_view kPlmPayload = "payload";

// Numbers of tensor types in the index.
inline constexpr uint32_t kPlmF32 = 0;
inline constexpr uint32_t kPlmF16 = 1;
inline constexpr uint32_t kPlmBF16 = 2;
inline constexpr uint32_t kPlmU4 = 16;
inline constexpr uint32_t kPlmI8 = 17;

inline std::optional<uint32_t> PlmTypeOf(DType type) {
  switch (type) {
    case DType::kF32:
      return kPlmF32;
    case DType::kF16:
      return kPlmF16;
    case DType::kBF16:
      return kPlmBF16;
    default:
      return std::nullopt;
  }
}

inline bool PlmSectionNameIsValid(std::string_view name) {
  return !name.empty() && name.size() <= kPlmSectionNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

// Bytes of a plain tensor; nullopt if that overflows.
inline std::optional<uint64_t> PlmPlainBytes(DType type, const uint64_t* shape, size_t num_dims) {
  std::optional<uint64_t> bytes = GetDTypeInfo(type).block_bytes;
  for (size_t i = 0; bytes && i < num_dims; ++i) bytes = CheckedMul(*bytes, shape[i]);
  return bytes;
}

// Where the planes of a packed matrix lie, from its first byte; codes begin at 0.
struct PlmPlaneOffsets {
  uint64_t scales = 0;
  uint64_t offsets = 0;
  uint64_t end = 0;
};

// nullopt if a sum overflows.
inline std::optional<PlmPlaneOffsets> PlacePlanes(const PackedPlanes& planes) {
  PlmPlaneOffsets out;
  const auto scales = CheckedAlignUp(planes.codes, kPlmAlignment);
  if (!scales) return std::nullopt;
  out.scales = *scales;
  const auto scales_end = CheckedAdd(out.scales, planes.scales);
  if (!scales_end) return std::nullopt;
  out.end = *scales_end;
  if (planes.offsets == 0) return out;
  const auto offsets = CheckedAlignUp(*scales_end, kPlmAlignment);
  if (!offsets) return std::nullopt;
  const auto end = CheckedAdd(*offsets, planes.offsets);
  if (!end) return std::nullopt;
  out.offsets = *offsets;
  out.end = *end;
  return out;
}

}  // namespace pocketlm
