// Reports as web pages that need nothing but themselves: no script, no file beside them, no network.
#pragma once

#include <string>
#include <vector>

namespace pocketlm::cli {

// Text with <, >, & and quotes as entities, invalid UTF-8 replaced.
std::string HtmlText(const std::string& text);

// A table; the first column is text, the others are aligned to the right.
std::string HtmlTable(const std::vector<std::string>& head,
                      const std::vector<std::vector<std::string>>& rows);

struct Bar {
  std::string label;
  double value = 0.0;
  std::string text;  // the value as people read it
};

// Horizontal bars around 0 as an SVG drawing, with a caption.
std::string HtmlBars(const std::string& caption, const std::vector<Bar>& bars);

// A whole page: `body` is HTML.
std::string HtmlPage(const std::string& title, const std::string& body);

// Writes it to `path`. Throws CliError if that fails.
void WriteHtmlFile(const std::string& path, const std::string& page);

}  // namespace pocketlm::cli
