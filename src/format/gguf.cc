#include "format/gguf.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/quote.h"
#include "format/gguf_layout.h"

namespace pocketlm {
namespace {

// An integer of any GGUF type: a sign and 64 bits hold both ranges.
struct AnyInt {
  bool negative;
  uint64_t bits;  // two's complement
};

std::optional<AnyInt> LoadInt(GgufType type, const std::byte* at) {
  const auto from_signed = [](int64_t v) { return AnyInt{v < 0, static_cast<uint64_t>(v)}; };
  switch (type) {
    case GgufType::kUint8:
      return AnyInt{false, LoadUnaligned<uint8_t>(at)};
    case GgufType::kUint16:
      return AnyInt{false, LoadUnaligned<uint16_t>(at)};
    case GgufType::kUint32:
      return AnyInt{false, LoadUnaligned<uint32_t>(at)};
    case GgufType::kUint64:
      return AnyInt{false, LoadUnaligned<uint64_t>(at)};
    case GgufType::kInt8:
      return from_signed(LoadUnaligned<int8_t>(at));
    case GgufType::kInt16:
      return from_signed(LoadUnaligned<int16_t>(at));
    case GgufType::kInt32:
      return from_signed(LoadUnaligned<int32_t>(at));
    case GgufType::kInt64:
      return from_signed(LoadUnaligned<int64_t>(at));
    default:
      return std::nullopt;
  }
}

std::optional<int64_t> ToInt64(AnyInt value) {
  if (!value.negative && value.bits > uint64_t{INT64_MAX}) return std::nullopt;
  return static_cast<int64_t>(value.bits);
}

std::optional<double> LoadFloat(GgufType type, const std::byte* at) {
  if (type == GgufType::kFloat32) return LoadUnaligned<float>(at);
  if (type == GgufType::kFloat64) return LoadUnaligned<double>(at);
  const auto integer = LoadInt(type, at);
  if (!integer) return std::nullopt;
  if (integer->negative) return static_cast<double>(static_cast<int64_t>(integer->bits));
  return static_cast<double>(integer->bits);
}

std::string_view LoadString(const std::byte* at) {
  const uint64_t length = LoadUnaligned<uint64_t>(at);
  return {reinterpret_cast<const char*>(at) + sizeof(uint64_t), static_cast<size_t>(length)};
}

Status WrongType(std::string_view key, const char* expected, GgufType got) {
  return DataError("gguf: key " + Quote(key) + ": expected " + expected + ", got " +
                   GgufTypeName(got));
}

// `value`, or `absent` where the key is missing.
template <typename T>
Result<T> OrDefault(Result<T> value, T absent) {
  if (!value.ok() && value.status().code() == StatusCode::kNotFound) return absent;
  return value;
}

}  // namespace

const char* GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "u8";
    case GgufType::kInt8:
      return "i8";
    case GgufType::kUint16:
      return "u16";
    case GgufType::kInt16:
      return "i16";
    case GgufType::kUint32:
      return "u32";
    case GgufType::kInt32:
      return "i32";
    case GgufType::kFloat32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "u64";
    case GgufType::kInt64:
      return "i64";
    case GgufType::kFloat64:
      return "f64";
  }
  return "unknown";
}

GgufArray::StringRange GgufArray::strings() const {
  if (!is_string()) return {};
  return {StringIterator(data_, size_), StringIterator(nullptr, 0)};
}

const std::byte* GgufArray::Element(size_t i) const {
  if (i >= size_ || is_string()) return nullptr;
  return data_ + i * GgufScalarBytes(element_type_);
}

std::optional<int64_t> GgufArray::Int(size_t i) const {
  const std::byte* at = Element(i);
  if (at == nullptr) return std::nullopt;
  const auto value = LoadInt(element_type_, at);
  return value ? ToInt64(*value) : std::nullopt;
}

std::optional<double> GgufArray::Float(size_t i) const {
  const std::byte* at = Element(i);
  if (at == nullptr) return std::nullopt;
  return LoadFloat(element_type_, at);
}

std::optional<bool> GgufArray::Bool(size_t i) const {
  const std::byte* at = Element(i);
  if (at == nullptr || element_type_ != GgufType::kBool) return std::nullopt;
  return LoadUnaligned<uint8_t>(at) != 0;
}

std::string_view GgufFile::KeyAt(uint64_t key_offset) const {
  return LoadString(bytes_.data() + key_offset);
}

GgufFile::Value GgufFile::ValueAt(uint64_t key_offset) const {
  const std::byte* tag = bytes_.data() + key_offset + sizeof(uint64_t) + KeyAt(key_offset).size();
  return {static_cast<GgufType>(LoadUnaligned<uint32_t>(tag)), tag + sizeof(uint32_t)};
}

std::string_view GgufFile::key(size_t i) const { return KeyAt(keys_.at(i)); }

std::optional<GgufFile::Value> GgufFile::Find(std::string_view key) const {
  const auto at = std::lower_bound(
      keys_by_name_.begin(), keys_by_name_.end(), key,
      [this](uint32_t index, std::string_view wanted) { return KeyAt(keys_[index]) < wanted; });
  if (at == keys_by_name_.end() || KeyAt(keys_[*at]) != key) return std::nullopt;
  return ValueAt(keys_[*at]);
}

Result<GgufFile::Value> GgufFile::Require(std::string_view key) const {
  const auto value = Find(key);
  if (!value) return NotFound("gguf: key " + Quote(key) + " is missing");
  return *value;
}

std::optional<GgufType> GgufFile::TypeOf(std::string_view key) const {
  const auto value = Find(key);
  if (!value) return std::nullopt;
  return value->type;
}

Result<uint64_t> GgufFile::GetUint(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  const auto integer = LoadInt(value.type, value.data);
  if (!integer) return WrongType(key, "an integer", value.type);
  if (integer->negative) {
    return DataError("gguf: key " + Quote(key) + ": expected an integer ≥ 0, got " +
                     std::to_string(static_cast<int64_t>(integer->bits)));
  }
  return integer->bits;
}

Result<int64_t> GgufFile::GetInt(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  const auto integer = LoadInt(value.type, value.data);
  if (!integer) return WrongType(key, "an integer", value.type);
  const auto fitting = ToInt64(*integer);
  if (!fitting) {
    return DataError("gguf: key " + Quote(key) + ": expected an integer below 2^63, got " +
                     std::to_string(integer->bits));
  }
  return *fitting;
}

Result<double> GgufFile::GetFloat(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  const auto number = LoadFloat(value.type, value.data);
  if (!number) return WrongType(key, "a number", value.type);
  return *number;
}

Result<bool> GgufFile::GetBool(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  if (value.type != GgufType::kBool) return WrongType(key, "bool", value.type);
  return LoadUnaligned<uint8_t>(value.data) != 0;
}

Result<std::string_view> GgufFile::GetString(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  if (value.type != GgufType::kString) return WrongType(key, "string", value.type);
  return LoadString(value.data);
}

Result<GgufArray> GgufFile::GetArray(std::string_view key) const {
  POCKETLM_ASSIGN_OR_RETURN(const Value value, Require(key));
  if (value.type != GgufType::kArray) return WrongType(key, "array", value.type);
  const auto element_type = static_cast<GgufType>(LoadUnaligned<uint32_t>(value.data));
  const uint64_t size = LoadUnaligned<uint64_t>(value.data + sizeof(uint32_t));
  return GgufArray(element_type, size, value.data + sizeof(uint32_t) + sizeof(uint64_t));
}

Result<uint64_t> GgufFile::GetUintOr(std::string_view key, uint64_t absent) const {
  return OrDefault(GetUint(key), absent);
}

Result<int64_t> GgufFile::GetIntOr(std::string_view key, int64_t absent) const {
  return OrDefault(GetInt(key), absent);
}

Result<double> GgufFile::GetFloatOr(std::string_view key, double absent) const {
  return OrDefault(GetFloat(key), absent);
}

Result<bool> GgufFile::GetBoolOr(std::string_view key, bool absent) const {
  return OrDefault(GetBool(key), absent);
}

Result<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                               std::string_view absent) const {
  return OrDefault(GetString(key), absent);
}

const TensorView* GgufFile::FindTensor(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors_by_name_.begin(), tensors_by_name_.end(), name,
      [this](uint32_t index, std::string_view wanted) { return tensors_[index].name < wanted; });
  if (at == tensors_by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

Result<const TensorView*> GgufFile::GetTensor(std::string_view name) const {
  const TensorView* tensor = FindTensor(name);
  if (tensor == nullptr) return NotFound("gguf: tensor " + Quote(name) + " is missing");
  return tensor;
}

}  // namespace pocketlm
