// Typed access to the members of a JSON object from a file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/quote.h"
#include "base/status.h"

namespace pocketlm {

// A null value counts as absent, as in Transformers. Keeps a reference to the object. An error names `where`, the
// key, what was expected and what was there.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const nlohmann::json* Find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  // Present, even as null.
  bool Has(const char* key) const { return object_.is_object() && object_.contains(key); }

  Status U32(const char* key, uint32_t* out) const {
    if (Find(key) == nullptr) return DataError(where_ + ": " + key + " is missing");
    return U32Or(key, 0, out);
  }

  Status U32Or(const char* key, uint32_t absent, uint32_t* out) const {
    *out = absent;
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return OkStatus();
    if (!value->is_number_integer() || *value < 0 || *value > UINT32_MAX)
      return Wrong(key, "a whole number of 32 bits", *value);
    *out = value->get<uint32_t>();
    return OkStatus();
  }

  Status FloatOr(const char* key, float absent, float* out) const {
    *out = absent;
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return OkStatus();
    if (!value->is_number()) return Wrong(key, "a number", *value);
    *out = value->get<float>();
    return OkStatus();
  }

  Status BoolOr(const char* key, bool absent, bool* out) const {
    *out = absent;
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return OkStatus();
    if (!value->is_boolean()) return Wrong(key, "true or false", *value);
    *out = value->get<bool>();
    return OkStatus();
  }

  Result<std::string> StringOr(const char* key, const char* absent) const {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return std::string(absent);
    if (!value->is_string()) return Wrong(key, "a string", *value);
    return value->get<std::string>();
  }

  Status Wrong(const char* key, const char* expected, const nlohmann::json& got) const {
    return DataError(where_ + ": " + key + ": expected " + expected + ", got " +
                     Shorten(got.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace pocketlm
