// Where tests find their inputs: the source tree, the shared data, the model cache, a scratch folder.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"

namespace pocketlm::testing {

// The root of the source tree (environment POCKETLM_SOURCE_DIR, set by ctest; else the current folder).
std::string SourceDir();

// A folder or file below the shared data set, or nullopt if it is not there. The data is looked for in
// $POCKETLM_DATA, else in <source>/../shared/data.
std::optional<std::string> DataPath(const std::string& relative);

// The GGUF file of a model that `pocketlm pull` has fetched ("smollm2-135m", "gemma3-270m"), or nullopt.
// Cache folder: $POCKETLM_HOME, else $XDG_CACHE_HOME/pocketlm, else ~/.cache/pocketlm.
std::optional<std::string> PulledModelPath(const std::string& name);

// True where missing data must fail a test instead of skipping it (POCKETLM_REQUIRE_DATA=1, as in CI).
bool DataIsRequired();

// A fresh, empty folder for one test, removed at process exit.
std::string ScratchDir();

// Writes `content` to a file, for test inputs. Aborts the test program if that fails.
void WriteFileOrDie(const std::string& path, const std::string& content);

// Reads a whole gzip file by way of the `gzip` program.
std::string ReadGzipOrDie(const std::string& path);

}  // namespace pocketlm::testing

// Declares `var` as the path of shared data `relative`; skips the test with a message if it is missing,
// or fails it where data is required.
#define POCKETLM_REQUIRE_DATA_PATH(var, relative)                             \
  const auto var##_optional = ::pocketlm::testing::DataPath(relative);        \
  if (!var##_optional && ::pocketlm::testing::DataIsRequired())               \
    FAIL() << "missing data: " << (relative);                                 \
  if (!var##_optional) GTEST_SKIP() << "shared data missing: " << (relative); \
  const std::string var = *var##_optional

// The same for a pulled model.
#define POCKETLM_REQUIRE_MODEL(var, name)                                                   \
  const auto var##_optional = ::pocketlm::testing::PulledModelPath(name);                   \
  if (!var##_optional && ::pocketlm::testing::DataIsRequired())                             \
    FAIL() << "model not pulled: " << (name);                                               \
  if (!var##_optional) GTEST_SKIP() << "model not pulled (pocketlm pull " << (name) << ")"; \
  const std::string var = *var##_optional

#define EXPECT_OK(expr)                                                                     \
  do {                                                                                      \
    const auto& expect_ok_value_ = (expr);                                                  \
    EXPECT_TRUE(expect_ok_value_.ok()) << ::pocketlm::testing::ErrorText(expect_ok_value_); \
  } while (false)
#define ASSERT_OK(expr)                                                                     \
  do {                                                                                      \
    const auto& assert_ok_value_ = (expr);                                                  \
    ASSERT_TRUE(assert_ok_value_.ok()) << ::pocketlm::testing::ErrorText(assert_ok_value_); \
  } while (false)

namespace pocketlm::testing {
inline std::string ErrorText(const Status& status) {
  return std::string(StatusCodeName(status.code())) + ": " + status.message();
}
template <typename T>
std::string ErrorText(const Result<T>& result) {
  return ErrorText(result.status());
}
}  // namespace pocketlm::testing
