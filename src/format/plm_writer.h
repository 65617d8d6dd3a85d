// Writer of .plm files (docs/format.md).
//
// Order     Tensors are written to disk as they are added; sections and metadata follow, the header last. The
//           file appears under its name only when Finish succeeds (base/file_writer.h): an interrupted
//           conversion leaves no half-written model.
// Memory    The index; a tensor's bytes are not copied.
// Threads   One at a time.
//
//   POCKETLM_ASSIGN_OR_RETURN(PlmWriter writer, PlmWriter::Create(path));
//   POCKETLM_RETURN_IF_ERROR(writer.AddPlain("norm.weight", DType::kF32, {896}, bytes));
//   POCKETLM_RETURN_IF_ERROR(writer.AddPacked("layers.0.mlp.up_proj.weight", rows, cols, layout, planes));
//   POCKETLM_RETURN_IF_ERROR(writer.AddSection("tokenizer", tables));
//   POCKETLM_RETURN_IF_ERROR(writer.Finish(metadata));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/dtype.h"
#include "base/file_writer.h"
#include "base/packed_layout.h"
#include "base/status.h"

namespace pocketlm {

// The planes of a packed matrix, each as long as PlaneBytes says; `offsets` is empty where there is none.
struct PackedPlaneBytes {
  std::span<const std::byte> codes;
  std::span<const std::byte> scales;
  std::span<const std::byte> offsets;
};

class PlmWriter {
 public:
  // Opens a temporary file beside `path`; kIoError if that fails.
  static Result<PlmWriter> Create(const std::string& path);

  PlmWriter(PlmWriter&&) = default;
  PlmWriter& operator=(PlmWriter&&) = default;
  // Destruction without a successful Finish removes the temporary file.

  // Adds a tensor as it is: F32, F16 or BF16, 1 to 4 dimensions ≥ 1, row-major. `data` is needed during the
  // call only. Names are Hugging Face's without "model.": "layers.0.self_attn.q_proj.weight".
  // Errors  kInvalidArgument: a name that is empty, over 255 bytes, no UTF-8 or taken; another type;
  //         data of another size than the shape says. kIoError: the disk.
  Status AddPlain(std::string_view name, DType type, const std::vector<uint64_t>& shape,
                  std::span<const std::byte> data);

  // Adds a packed matrix [rows, cols]. Errors as AddPlain, for planes that are not PlaneBytes long too.
  Status AddPacked(std::string_view name, uint64_t rows, uint64_t cols, const PackedLayout& layout,
                   const PackedPlaneBytes& planes);

  // Adds a section of bytes, written by Finish. kInvalidArgument: a name of more than 16 bytes, taken, or one of
  // "metadata", "tensors", "payload"; more than 61 sections.
  Status AddSection(std::string_view name, std::string bytes);

  // Writes the rest and gives the file its name. `metadata` is an object of valid UTF-8. The writer is done then.
  Status Finish(const nlohmann::ordered_json& metadata);

  // Bytes of tensors so far, their padding included.
  uint64_t payload_bytes() const { return payload_bytes_; }

 private:
  // A row of the header's table.
  struct Section {
    std::string name;
    uint64_t offset = 0;
    uint64_t size = 0;
    uint64_t checksum = 0;
  };
  // A row of the tensors section, but for what writing the bytes gives.
  struct Entry {
    std::string_view name;
    uint32_t type = 0;
    uint32_t offset_type = 0;
    uint32_t group_size = 0;
    std::vector<uint64_t> shape;
  };

  explicit PlmWriter(FileWriter file) : file_(std::move(file)) {}
  Status CheckName(std::string_view name) const;
  Status WritePayload(std::span<const std::byte> bytes);
  Status PadPayload();
  // Writes the planes of one tensor, each at a multiple of 64 bytes, and its row of the index.
  Status AddTensor(const Entry& entry, std::span<const std::span<const std::byte>> planes);
  Status WriteSection(std::string_view name, std::string_view bytes, std::vector<Section>* table);
  Status WriteHeader(const std::vector<Section>& table);

  FileWriter file_;
  Xxh3Stream payload_hash_;
  uint64_t payload_bytes_ = 0;
  uint64_t num_tensors_ = 0;
  std::string index_;  // the tensors section, without the count at its start
  std::set<std::string, std::less<>> names_;
  std::vector<std::pair<std::string, std::string>> extra_sections_;
};

}  // namespace pocketlm
