// Shared by the files of the C API: handles, error text, guarded calls.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/model.h"
#include "pocketlm/pocketlm.h"
#include "runtime/session.h"
#include "tokenizer/tokenizer.h"

// A tokenizer, owned or borrowed from a model.
struct plm_tokenizer {
  std::unique_ptr<pocketlm::Tokenizer> owned;
  const pocketlm::Tokenizer* tokenizer = nullptr;
};

struct plm_model {
  std::shared_ptr<pocketlm::Model> model;
  plm_tokenizer tokenizer;  // borrows from `model`
};

struct plm_session {
  std::unique_ptr<pocketlm::Session> session;
};

namespace pocketlm::capi {

// Records the error text of this thread and returns the code.
plm_status Report(const Status& status);

// Runs `body`, a callable that returns Status, and lets no exception out.
template <typename Body>
plm_status Guard(Body&& body) {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    return Report(OutOfMemory("out of memory"));
  } catch (const std::exception& exception) {
    return Report(Internal(std::string("unexpected exception: ") + exception.what()));
  }
}

// kInvalidArgument naming the function's argument that must not be null.
Status NullArgument(const char* name);

#define POCKETLM_REQUIRE_ARGUMENT(argument)                                      \
  do {                                                                           \
    if ((argument) == nullptr) return ::pocketlm::capi::NullArgument(#argument); \
  } while (false)

// A caller's option struct of any version: the defaults, overwritten by the fields that both sides know.
// Struct begins with size_t size_bytes. A size below that of the field itself is an error; so is a larger one
// whose unknown part is not all zero.
template <typename Struct>
Result<Struct> ReadOptions(const Struct* options, Struct defaults) {
  if (options == nullptr) return defaults;
  const size_t size = options->size_bytes;
  if (size < sizeof(size_t) || size > (size_t{1} << 16)) {
    return InvalidArgument("options: size_bytes: expected the size of the struct (" +
                           std::to_string(sizeof(Struct)) + "), got " + std::to_string(size));
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(options);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] != 0) {
      return Unsupported(
          "options: size_bytes: the caller was built for a newer library and uses its options");
    }
  }
  std::memcpy(static_cast<void*>(&defaults), options,
              size < sizeof(Struct) ? size : sizeof(Struct));
  defaults.size_bytes = sizeof(Struct);
  return defaults;
}

// Copies a result to the caller's struct of any version (out->size_bytes is set by the caller and kept).
template <typename Struct>
Status WriteResult(const Struct& result, Struct* out) {
  if (out == nullptr) return OkStatus();
  const size_t size = out->size_bytes;
  if (size < sizeof(size_t) || size > (size_t{1} << 16)) {
    return InvalidArgument("result: size_bytes: expected the size of the struct (" +
                           std::to_string(sizeof(Struct)) + "), got " + std::to_string(size));
  }
  std::memcpy(static_cast<void*>(out), &result, size < sizeof(Struct) ? size : sizeof(Struct));
  out->size_bytes = size;
  return OkStatus();
}

// Allocates a NUL-terminated copy for the caller.
Status CopyString(std::string_view text, char** out);

// `size` bytes at `text`; null is the empty text where size is 0.
Result<std::string_view> TextArgument(const char* text, size_t size);

}  // namespace pocketlm::capi
