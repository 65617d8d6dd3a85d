#include "html_page.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli_error.h"
#include "report.h"

namespace pocketlm::cli {
namespace {

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}"
    "th:first-child,td:first-child{text-align:left}"
    "svg{font-size:12px;max-width:100%}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#1a1a1a}th,td{border-color:#444}"
    "svg text{fill:#ddd}}";

constexpr int kLabelWidth = 210, kBarWidth = 420, kTextWidth = 90, kRowHeight = 20;

std::string Row(const std::vector<std::string>& cells, const char* tag) {
  std::string out = "<tr>";
  for (const std::string& cell : cells)
    out += std::string("<") + tag + ">" + HtmlText(cell) + "</" + tag + ">";
  return out + "</tr>\n";
}

}  // namespace

std::string HtmlText(const std::string& text) {
  // A JSON string of it has valid UTF-8.
  const std::string valid = Json::parse(ToJsonText(text)).get<std::string>();
  std::string out;
  for (const char c : valid) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<table>\n" + Row(head, "th");
  for (const std::vector<std::string>& row : rows) out += Row(row, "td");
  return out + "</table>\n";
}

std::string HtmlBars(const std::string& caption, const std::vector<Bar>& bars) {
  double low = 0.0, high = 0.0;
  for (const Bar& bar : bars) {
    low = std::min(low, bar.value);
    high = std::max(high, bar.value);
  }
  const double scale = high > low ? kBarWidth / (high - low) : 0.0;
  const double zero = kLabelWidth - low * scale;
  const int height = kRowHeight * static_cast<int>(bars.size());
  std::string out = "<h2>" + HtmlText(caption) + "</h2>\n" +
                    Printf("<svg viewBox=\"0 0 %d %d\" role=\"img\">\n",
                           kLabelWidth + kBarWidth + kTextWidth, height);
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const int y = kRowHeight * static_cast<int>(i);
    const double x = zero + std::min(bar.value, 0.0) * scale;
    out +=
        Printf("<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", kLabelWidth - 8, y + 14) +
        HtmlText(bar.label) + "</text>" +
        Printf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"14\" fill=\"%s\"/>", x, y + 3,
               std::fabs(bar.value) * scale, bar.value < 0 ? "#2a7" : "#38c") +
        Printf("<text x=\"%.1f\" y=\"%d\">", zero + std::max(bar.value, 0.0) * scale + 6, y + 14) +
        HtmlText(bar.text) + "</text>\n";
  }
  return out + "</svg>\n";
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" +
         HtmlText(title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" +
         HtmlText(title) + "</h1>\n" + body + "</body>\n</html>\n";
}

void WriteHtmlFile(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary);
  file << page << std::flush;
  if (!file) Fail("write: " + path + ": expected a place to write, check the folder and the disk");
}

}  // namespace pocketlm::cli
