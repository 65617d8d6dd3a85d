// Reader of .plm files, this project's own format: docs/format.md describes every byte.
//
// Trust     The file is hostile: every count, length, offset and product is checked at open, against the
//           file's length and by checked arithmetic, so that no later access can fail on bounds. What an
//           attacker or a bad disk does to weights gives wrong numbers, never a crash.
// Checks    Header and every section but the payload are held to their XXH3-64 checksums at open. The payload
//           is not, since that would read the whole file at every start: see Verify.
// Memory    The weights stay in the mapping, in the layout that the kernels read. The tables and the
//           metadata take a small multiple of their bytes in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/status.h"
#include "base/tensor_view.h"

namespace pocketlm {

// True if `bytes`, the start of a file, are the magic of a .plm file.
bool HasPlmMagic(std::span<const std::byte> bytes);

// A .plm file, checked. Immutable: reading is safe from any thread. Moving keeps all views valid.
//
// Versions  Another major version is kUnsupported; the message names both versions. A higher minor one is
//           read: sections and metadata keys that are not known are left alone.
// Refused   kDataError, naming what, where, expected and actual: a truncated or longer file, a wrong checksum,
//           sections or tensors that overlap or lie outside, a plane of the wrong size, a name that occurs
//           twice. kUnsupported: a tensor type that is not known (tensor and type named).
class PlmFile {
 public:
  // Maps and checks a file. Also kNotFound, kIoError, kInvalidArgument as MappedFile::Open.
  static Result<PlmFile> Open(const std::string& path);

  // Checks bytes in memory, which must outlive the result and be 64-byte aligned (kInvalidArgument).
  static Result<PlmFile> Parse(std::span<const std::byte> bytes);

  PlmFile(PlmFile&&) = default;
  PlmFile& operator=(PlmFile&&) = default;
  PlmFile(const PlmFile&) = delete;
  PlmFile& operator=(const PlmFile&) = delete;

  uint16_t major_version() const { return major_version_; }
  uint16_t minor_version() const { return minor_version_; }
  uint64_t file_size_bytes() const { return bytes_.size(); }

  // The metadata section, an object. model/plm_metadata.h gives its members meaning.
  const nlohmann::json& metadata() const { return metadata_; }

  // The bytes of a section; nullopt if the file has none of that name.
  std::optional<std::span<const std::byte>> FindSection(std::string_view name) const;

  // Tensors in file order. Data and planes begin at multiples of 64 bytes. The views live as long as the file.
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* FindTensor(std::string_view name) const;  // nullptr if absent

  // Reads the whole payload and compares the checksums: kDataError naming the first tensor that differs.
  // Takes as long as reading the file.
  Status Verify() const;

  // Tells the system that the payload will be read soon. Returns at once; reading ahead goes on meanwhile.
  void PrefetchPayload() const;

 private:
  friend class PlmParser;

  struct Section {
    std::string_view name;
    std::span<const std::byte> bytes;
    uint64_t checksum;
  };

  PlmFile() = default;
  const Section* Find(std::string_view name) const;

  std::optional<MappedFile> mapping_;  // of Open; bytes_ then lies in it
  std::span<const std::byte> bytes_;
  uint16_t major_version_ = 0;
  uint16_t minor_version_ = 0;
  std::vector<Section> sections_;
  nlohmann::json metadata_;
  std::vector<TensorView> tensors_;         // file order
  std::vector<uint64_t> tensor_checksums_;  // same order
  std::vector<uint32_t> tensors_by_name_;   // indices into tensors_, sorted by name
};

}  // namespace pocketlm
