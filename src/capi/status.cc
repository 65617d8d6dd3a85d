// Errors, strings, version, log.
#include <cstdlib>

#include "base/log.h"
#include "capi/internal.h"

namespace pocketlm::capi {
namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

plm_status ToCStatus(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return PLM_OK;
    case StatusCode::kInvalidArgument:
      return PLM_INVALID_ARGUMENT;
    case StatusCode::kNotFound:
      return PLM_NOT_FOUND;
    case StatusCode::kDataError:
      return PLM_DATA_ERROR;
    case StatusCode::kUnsupported:
      return PLM_UNSUPPORTED;
    case StatusCode::kContextFull:
      return PLM_CONTEXT_FULL;
    case StatusCode::kCancelled:
      return PLM_CANCELLED;
    case StatusCode::kOutOfMemory:
      return PLM_OUT_OF_MEMORY;
    case StatusCode::kIoError:
      return PLM_IO_ERROR;
    case StatusCode::kBusy:
      return PLM_BUSY;
    case StatusCode::kInternal:
      return PLM_INTERNAL;
  }
  return PLM_INTERNAL;
}

}  // namespace

plm_status Report(const Status& status) {
  try {
    LastError() = status.message();
  } catch (const std::bad_alloc&) {
    LastError().clear();
  }
  return ToCStatus(status.code());
}

Status NullArgument(const char* name) {
  return InvalidArgument(std::string(name) + ": expected a pointer, got null");
}

Status CopyString(std::string_view text, char** out) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr)
    return OutOfMemory("out of memory for a text of " + std::to_string(text.size()) + " bytes");
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *out = copy;
  return OkStatus();
}

Result<std::string_view> TextArgument(const char* text, size_t size) {
  if (text == nullptr && size > 0) return NullArgument("text");
  return text == nullptr ? std::string_view() : std::string_view(text, size);
}

}  // namespace pocketlm::capi

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only from here on
using namespace pocketlm::capi;  // NOLINT

extern "C" {

const char* plm_status_name(plm_status status) {
  if (status < PLM_OK || status > PLM_INTERNAL) return "unknown";
  return StatusCodeName(static_cast<StatusCode>(status));
}

const char* plm_last_error(void) { return LastError().c_str(); }

const char* plm_version(void) { return POCKETLM_VERSION; }

void plm_string_free(char* text) { std::free(text); }

void plm_set_log_callback(plm_log_callback callback, void* user) {
  if (callback == nullptr) {
    SetLogSink({});
    return;
  }
  SetLogSink([callback, user](LogLevel level, const std::string& message) {
    callback(level == LogLevel::kWarning ? PLM_LOG_WARNING : PLM_LOG_INFO, message.c_str(), user);
  });
}

}  // extern "C"
