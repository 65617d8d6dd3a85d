// What the commands print: JSON reports and the inputs they read.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pocketlm/measure.h"

namespace pocketlm::cli {

// Reports keep the order in which their keys were added.
using Json = nlohmann::ordered_json;

// One JSON object in one line on standard output. Bytes that are no UTF-8 become U+FFFD.
// Throws CliError if standard output cannot be written.
void PrintJson(const Json& report);

// JSON text of a value, with invalid UTF-8 replaced as above.
std::string ToJsonText(const Json& value);

// Writes text to standard output and flushes it. Throws CliError if that fails (a full disk, a closed pipe).
void WriteStdout(std::string_view text);
// The same without throwing: false on failure.
bool TryWriteStdout(std::string_view text);

// {peak_rss_bytes, anonymous_bytes, file_bytes, swap_bytes}
Json MemoryJson(const plm_memory_usage& usage);

// All bytes of a file, of standard input if path is "-". Throws CliError if it cannot be read.
std::string ReadWholeFile(const std::string& path);

// The text given by -p or by -f: exactly one must be there. Throws CliError (usage) otherwise.
std::string TextArgument(bool has_text, const std::string& text, const std::string& file);

// "1,234,567"
std::string Thousands(uint64_t value);

// snprintf into a string.
[[gnu::format(printf, 1, 2)]] std::string Printf(const char* format, ...);

}  // namespace pocketlm::cli
