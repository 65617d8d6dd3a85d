// Reader of GGUF files, versions 2 and 3, little-endian.
//
// Source    The GGUF specification (ggml/docs/gguf.md); tensor types of base/dtype.h.
// Trust     The file is hostile: every count, length, offset and product is checked before use, and
//           all of it at load, so that no later access can fail on bounds.
// Memory    Nothing is copied out of the file except tensor names and shapes. The tables take less
//           than 4 times the bytes that the header (all before the tensor data) takes in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "base/tensor_view.h"

namespace pocketlm {

// Types of metadata values; the numbers are those of the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

inline constexpr uint32_t kNumGgufTypes = 13;

// "u32", "string", … for messages and reports.
const char* GgufTypeName(GgufType type);

// A metadata array inside the file. Cheap to copy; valid while the GgufFile lives.
class GgufArray {
 public:
  // Walks the strings of an array in order. Strings are bytes, not checked to be UTF-8.
  class StringIterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    StringIterator() = default;
    StringIterator(const std::byte* at, uint64_t left) : at_(at), left_(left) {}

    std::string_view operator*() const {
      return {reinterpret_cast<const char*>(at_) + sizeof(uint64_t), static_cast<size_t>(Length())};
    }
    StringIterator& operator++() {
      at_ += sizeof(uint64_t) + Length();
      --left_;
      return *this;
    }
    StringIterator operator++(int) {
      StringIterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const StringIterator& other) const { return left_ == other.left_; }
    bool operator!=(const StringIterator& other) const { return left_ != other.left_; }

   private:
    uint64_t Length() const {
      uint64_t length;
      std::memcpy(&length, at_, sizeof(length));
      return length;
    }
    const std::byte* at_ = nullptr;
    uint64_t left_ = 0;
  };

  struct StringRange {
    StringIterator first, last;
    StringIterator begin() const { return first; }
    StringIterator end() const { return last; }
  };

  GgufArray() = default;  // an empty array of u8

  GgufType element_type() const { return element_type_; }
  size_t size() const { return static_cast<size_t>(size_); }
  bool is_string() const { return element_type_ == GgufType::kString; }

  // The strings in order; an empty range unless is_string(). There is no random access: string i is
  // found by walking, so make one pass.
  StringRange strings() const;

  // Element `i`: nullopt if i ≥ size(), or the element type is another, or the value does not fit.
  std::optional<int64_t> Int(size_t i) const;   // any integer type
  std::optional<double> Float(size_t i) const;  // any float or integer type
  std::optional<bool> Bool(size_t i) const;

 private:
  friend class GgufFile;
  GgufArray(GgufType type, uint64_t size, const std::byte* data)
      : element_type_(type), size_(size), data_(data) {}

  const std::byte* Element(size_t i) const;

  GgufType element_type_ = GgufType::kUint8;
  uint64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

// A GGUF file, checked whole. Immutable: reading is safe from any thread. Moving keeps all views
// valid.
//
// Accepted  Keys and tensor names: 1 to 65,535 bytes of UTF-8, no duplicates. Up to 65,536 tensors
//           of up to 4 dimensions ≥ 1 (0 dimensions: one value). Rows are whole blocks. Gaps
//           between tensors.
// Refused   kDataError for a malformed or truncated file, tensors that overlap (a small file must
//           not claim much memory later), arrays in arrays, bools other than 0 and 1, an alignment that
//           is not a power of two from 8 to 65,536. kUnsupported for version 1, big-endian files
//           and tensor types that base/dtype.h lacks (the message names tensor and type).
class GgufFile {
 public:
  // Maps and checks a file. Also kNotFound, kIoError, kInvalidArgument as MappedFile::Open.
  static Result<GgufFile> Open(const std::string& path);

  // Checks bytes in memory, which must outlive the result and be 8-byte aligned (kInvalidArgument).
  static Result<GgufFile> Parse(std::span<const std::byte> bytes);

  GgufFile(GgufFile&&) = default;
  GgufFile& operator=(GgufFile&&) = default;
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  uint64_t file_size_bytes() const { return bytes_.size(); }

  // Metadata keys in file order.
  size_t num_keys() const { return keys_.size(); }
  std::string_view key(size_t i) const;

  bool HasKey(std::string_view key) const { return Find(key).has_value(); }
  std::optional<GgufType> TypeOf(std::string_view key) const;

  // Value of a key: kNotFound if it is absent, kDataError if it has another type or does not fit.
  // Integers of any width and sign are accepted if the value fits; Float takes integers too.
  Result<uint64_t> GetUint(std::string_view key) const;
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetFloat(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;  // bytes, not checked to be UTF-8
  Result<GgufArray> GetArray(std::string_view key) const;

  // The same with a default for an absent key; a wrong type stays an error.
  Result<uint64_t> GetUintOr(std::string_view key, uint64_t absent) const;
  Result<int64_t> GetIntOr(std::string_view key, int64_t absent) const;
  Result<double> GetFloatOr(std::string_view key, double absent) const;
  Result<bool> GetBoolOr(std::string_view key, bool absent) const;
  Result<std::string_view> GetStringOr(std::string_view key, std::string_view absent) const;

  // Tensors in file order; data is aligned to 8 bytes at least. The views live as long as the file.
  std::span<const TensorView> tensors() const { return tensors_; }
  const TensorView* FindTensor(std::string_view name) const;         // nullptr if absent
  Result<const TensorView*> GetTensor(std::string_view name) const;  // kNotFound if absent

 private:
  friend class GgufParser;

  // A value inside the file: its type and its first byte after the type tag.
  struct Value {
    GgufType type;
    const std::byte* data;
  };

  GgufFile() = default;
  Value ValueAt(uint64_t key_offset) const;
  std::string_view KeyAt(uint64_t key_offset) const;
  std::optional<Value> Find(std::string_view key) const;
  Result<Value> Require(std::string_view key) const;

  std::optional<MappedFile> mapping_;  // of Open; bytes_ then lies in it
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  std::vector<uint64_t> keys_;             // file offset of each key's length field, in file order
  std::vector<uint32_t> keys_by_name_;     // indices into keys_, sorted by name
  std::vector<TensorView> tensors_;        // file order
  std::vector<uint32_t> tensors_by_name_;  // indices into tensors_, sorted by name
};

}  // namespace pocketlm
