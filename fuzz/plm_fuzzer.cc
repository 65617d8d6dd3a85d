// .plm reader: header, index, metadata and tokenizer of any content, behind checksums that are right.
//
// Input     u16 header_bytes; that many bytes for the start of the file; the rest for what follows the payload.
// File      The first, with zeros up to byte 16,384; a payload of 16,384 bytes; the rest. Without the two runs of
//           zeros a mutation nearly always hits something that is read. File size and checksums are put right.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "format/plm.h"
#include "format/plm_layout.h"
#include "model/plm_metadata.h"
#include "tokenizer/tokenizer.h"

namespace {

using pocketlm::kPlmFixedHeaderBytes;
using pocketlm::kPlmPayloadAlignment;
using pocketlm::kPlmSectionEntryBytes;

std::string Expand(std::string_view input) {
  uint16_t header_bytes = 0;
  if (input.size() < sizeof(header_bytes)) return std::string(input);
  std::memcpy(&header_bytes, input.data(), sizeof(header_bytes));
  input.remove_prefix(sizeof(header_bytes));
  const std::string_view header =
      input.substr(0, std::min<size_t>(header_bytes, kPlmPayloadAlignment));
  std::string file(header);
  file.resize(2 * kPlmPayloadAlignment, '\x5A');
  std::fill(file.begin() + static_cast<ptrdiff_t>(header.size()),
            file.begin() + kPlmPayloadAlignment, '\0');
  return file.append(input.substr(header.size()));
}

uint64_t Get(const std::string& file, size_t at) {
  uint64_t value;
  std::memcpy(&value, file.data() + at, sizeof(value));
  return value;
}

void Set(std::string* file, size_t at, uint64_t value) {
  std::memcpy(file->data() + at, &value, sizeof(value));
}

uint64_t Checksum(std::string_view bytes) {
  return pocketlm::Xxh3(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// Puts right what no mutation could.
void Seal(std::string* file) {
  if (file->size() < kPlmPayloadAlignment) return;
  Set(file, 16, file->size());
  uint32_t count;
  std::memcpy(&count, file->data() + 12, sizeof(count));
  count = std::min<uint32_t>(count, pocketlm::kPlmMaxSections);
  const std::string_view bytes(*file);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t row = kPlmFixedHeaderBytes + i * kPlmSectionEntryBytes + 16;
    const uint64_t offset = Get(*file, row), size = Get(*file, row + 8);
    if (offset > bytes.size() || size > bytes.size() - offset) continue;
    Set(file, row + 16, Checksum(bytes.substr(offset, size)));
  }
  const size_t end = kPlmFixedHeaderBytes + count * kPlmSectionEntryBytes;
  Set(file, end, Checksum(bytes.substr(0, end)));
}

unsigned Touch(const std::byte* data, uint64_t size) {
  unsigned sum = 0;
  for (uint64_t i = 0; i < size; ++i) sum += static_cast<unsigned>(data[i]);
  return sum;
}

unsigned ReadTensors(const pocketlm::PlmFile& file) {
  unsigned sum = 0;
  for (const pocketlm::TensorView& tensor : file.tensors()) {
    if (file.FindTensor(tensor.name) != &tensor) __builtin_trap();
    sum += Touch(tensor.data.data(), tensor.data.size());
    if (!tensor.packed) continue;
    const pocketlm::PackedMatrix& m = *tensor.packed;
    const auto planes = pocketlm::PlaneBytes(m.layout, m.rows, m.cols);
    if (!planes) __builtin_trap();
    sum += Touch(m.codes, planes->codes) + Touch(m.scales, planes->scales) +
           Touch(m.offsets, planes->offsets);
  }
  return sum;
}

void ReadAll(const pocketlm::PlmFile& file) {
  volatile unsigned sink = ReadTensors(file);
  (void)sink;
  if (!file.Verify().ok() && file.tensors().empty()) __builtin_trap();  // the payload was sealed
  auto description = pocketlm::ReadPlmDescription(file);
  if (!description.ok()) return;
  const auto tokenizer = pocketlm::Tokenizer::Create(std::move(description->tokenizer));
  if (tokenizer.ok()) (*tokenizer)->Encode("hello <|im_end|> 你好 123");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string file = Expand({reinterpret_cast<const char*>(data), size});
  Seal(&file);
  // Exactly this size, so that ASan sees one byte too many.
  const auto free_aligned = [](std::byte* p) { ::operator delete[](p, std::align_val_t{64}); };
  const std::unique_ptr<std::byte[], decltype(free_aligned)> copy(
      static_cast<std::byte*>(::operator new[](file.size(), std::align_val_t{64})), free_aligned);
  if (!file.empty()) std::memcpy(copy.get(), file.data(), file.size());
  const auto parsed = pocketlm::PlmFile::Parse({copy.get(), file.size()});
  if (parsed.ok()) ReadAll(*parsed);
  return 0;
}
