// Status and Result<T>: how every fallible function of the library reports failure.
//
// What input can cause (a file, a text, memory, a full context, a cancel) is a Status or a Result;
// what only our own bug can cause is a POCKETLM_CHECK. The library never prints, exits or aborts on
// input. A message names operation, object, expected and actual:
//   "load: layers.3.q_proj: expected [1024, 1024], got [1024, 512]"
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pocketlm {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // the caller passed something that can never work
  kNotFound,         // file, tensor, name
  kDataError,        // a file or text is malformed
  kUnsupported,      // well-formed, but we cannot do it
  kContextFull,      // more tokens than the context holds
  kCancelled,        // the caller asked to stop
  kOutOfMemory,
  kIoError,
  kBusy,      // another thread uses the object
  kInternal,  // numerical failure (all logits NaN) or a state that should not exist
};

// The name of a code as the C API and logs print it, for example "invalid_argument".
const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same failure with "context: " in front of the message; ok stays ok.
  Status WithContext(std::string_view context) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status DataError(std::string m) { return {StatusCode::kDataError, std::move(m)}; }
inline Status Unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
inline Status ContextFull(std::string m) { return {StatusCode::kContextFull, std::move(m)}; }
inline Status Cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status OutOfMemory(std::string m) { return {StatusCode::kOutOfMemory, std::move(m)}; }
inline Status IoError(std::string m) { return {StatusCode::kIoError, std::move(m)}; }
inline Status Busy(std::string m) { return {StatusCode::kBusy, std::move(m)}; }
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace internal

// Aborts when `condition` is false. Only for invariants that no input can break.
#define POCKETLM_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) ::pocketlm::internal::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    POCKETLM_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    POCKETLM_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    POCKETLM_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    POCKETLM_CHECK(ok());
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define POCKETLM_CONCAT_INNER(a, b) a##b
#define POCKETLM_CONCAT(a, b) POCKETLM_CONCAT_INNER(a, b)

// Returns from the enclosing function if `expr` (a Status) failed.
#define POCKETLM_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                        \
    if (::pocketlm::Status status_macro_ = (expr); !status_macro_.ok()) return status_macro_; \
  } while (false)

// POCKETLM_ASSIGN_OR_RETURN(auto x, F()): x = the value of F(), or return its status.
#define POCKETLM_ASSIGN_OR_RETURN(declaration, expr) \
  POCKETLM_ASSIGN_OR_RETURN_INNER(POCKETLM_CONCAT(result_macro_, __LINE__), declaration, expr)
#define POCKETLM_ASSIGN_OR_RETURN_INNER(tmp, declaration, expr) \
  auto tmp = (expr);                                            \
  if (!tmp.ok()) return tmp.status();                           \
  declaration = std::move(tmp).value()

}  // namespace pocketlm
