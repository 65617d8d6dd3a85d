// The library's log hook: it never prints by itself.
#pragma once

#include <functional>
#include <string>

namespace pocketlm {

enum class LogLevel { kInfo, kWarning };

using LogSink = std::function<void(LogLevel, const std::string& message)>;

// Installs the receiver of log lines for the whole process; an empty sink drops them (the default).
// Thread-safe; the sink may be called from any thread, one call at a time.
void SetLogSink(LogSink sink);

void Log(LogLevel level, const std::string& message);

}  // namespace pocketlm
