#include "progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "platform.h"

namespace pocketlm::cli {
namespace {

constexpr int kBarCells = 24;
constexpr std::chrono::milliseconds kRedrawInterval(100);

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Bar(double fraction) {
  const int filled = static_cast<int>(fraction * kBarCells);
  return "[" + std::string(static_cast<size_t>(filled), '#') +
         std::string(static_cast<size_t>(kBarCells - filled), '.') + "]";
}

std::string Clock(double seconds) {
  const int whole = static_cast<int>(std::min(seconds, 359999.0));
  char text[32];
  std::snprintf(text, sizeof(text), "%d:%02d", whole / 60, whole % 60);
  return text;
}

}  // namespace

std::string HumanBytes(double bytes) {
  if (bytes < 1e3) return Format("%.0f B", bytes);
  if (bytes < 1e6) return Format("%.1f kB", bytes / 1e3);
  if (bytes < 1e9) return Format("%.1f MB", bytes / 1e6);
  return Format("%.2f GB", bytes / 1e9);
}

Progress::Progress(std::string label, Unit unit)
    : label_(std::move(label)),
      unit_(unit),
      enabled_(StderrIsTerminal()),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string Progress::Line(double done, double total) const {
  std::string line = label_;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double rate = seconds > 0 ? (done - first_done_) / seconds : 0;
  if (total > 0) {
    const double fraction = std::clamp(done / total, 0.0, 1.0);
    line += " " + Format("%3.0f", fraction * 100) + "% " + Bar(fraction);
  }
  if (unit_ == Unit::kBytes) {
    line += " " + HumanBytes(done);
    if (total > 0) line += " of " + HumanBytes(total);
    if (rate > 0) line += ", " + HumanBytes(rate) + "/s";
  }
  if (total > 0 && rate > 0) line += ", " + Clock((total - done) / rate) + " left";
  return line;
}

void Progress::Update(double done, double total) {
  if (!enabled_) return;
  if (first_done_ < 0) first_done_ = done;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < kRedrawInterval) return;
  last_ = now;
  drawn_ = true;
  std::string line = Line(done, total);
  const auto width = static_cast<size_t>(std::max(TerminalWidth() - 1, 10));
  if (line.size() > width) line.resize(width);
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
}

}  // namespace pocketlm::cli
