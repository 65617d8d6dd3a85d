#include "base/status.h"

#include <cstdio>

namespace pocketlm {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kDataError:
      return "data_error";
    case StatusCode::kUnsupported:
      return "unsupported";
    case StatusCode::kContextFull:
      return "context_full";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kOutOfMemory:
      return "out_of_memory";
    case StatusCode::kIoError:
      return "io_error";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  std::string message(context);
  message += ": ";
  message += message_;
  return Status(code_, std::move(message));
}

namespace internal {
void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "pocketlm: internal error at %s:%d: check failed: %s\n", file, line,
               condition);
  std::abort();
}
}  // namespace internal

}  // namespace pocketlm
