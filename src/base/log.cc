#include "base/log.h"

#include <mutex>
#include <utility>

namespace pocketlm {
namespace {

std::mutex& SinkMutex() {
  static std::mutex mutex;
  return mutex;
}

LogSink& Sink() {
  static LogSink sink;
  return sink;
}

}  // namespace

void SetLogSink(LogSink sink) {
  std::lock_guard<std::mutex> lock(SinkMutex());
  Sink() = std::move(sink);
}

void Log(LogLevel level, const std::string& message) {
  std::lock_guard<std::mutex> lock(SinkMutex());
  if (Sink()) Sink()(level, message);
}

}  // namespace pocketlm
