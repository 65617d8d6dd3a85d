#include "tensor_lines.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cli_error.h"
#include "progress.h"

namespace pocketlm::cli {
namespace {

std::string Text(const Json& object, const char* key) { return object.value(key, std::string()); }

std::string Shape(const Json& tensor) {
  std::string text;
  for (const Json& size : tensor.value("shape", Json::array()))
    text += (text.empty() ? "" : ", ") + size.dump();
  return "[" + text + "]";
}

// A number that may be null: there was no finite value.
std::string Value(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? Printf("%.4g", found->get<double>()) : "-";
}

// Sixteen bars, one a code or sixteen codes. An empty one is a space.
std::string Bars(const Json& tensor) {
  static constexpr const char* kBars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int first = tensor.value("first_code", 0);
  const auto codes = tensor.value("codes", std::vector<uint64_t>());
  const bool eight_bits = first < 0 || codes.size() > 16;
  std::array<uint64_t, 16> counts{};
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t code = static_cast<size_t>(first + (eight_bits ? 128 : 0)) + i;
    counts[std::min<size_t>(eight_bits ? code / 16 : code, 15)] += codes[i];
  }
  const uint64_t largest = *std::max_element(counts.begin(), counts.end());
  std::string out;
  for (const uint64_t count : counts) {
    const double share =
        largest == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(largest);
    out += kBars[count == 0 ? 0 : 1 + static_cast<size_t>(share * 7.0 + 0.5)];
  }
  return out;
}

std::string Details(const Json& tensor) {
  std::string text = "      values " + Value(tensor, "minimum") + " … " + Value(tensor, "maximum") +
                     ", RMS " + Value(tensor, "rms");
  if (tensor.contains("codes")) {
    text += "  scales " + Value(tensor, "scale_minimum") + " … " + Value(tensor, "scale_maximum") +
            "  codes |" + Bars(tensor) + "|";
  }
  if (tensor.contains("maximum_error") && tensor["maximum_error"] == 0) {
    text += "  exact";
  } else if (tensor.contains("maximum_error")) {
    text += Printf("  error %.4g%% RMS, at most ", 100 * tensor.value("relative_rms_error", 0.0)) +
            Value(tensor, "maximum_error");
  }
  for (const auto& [key, label] : {std::pair{"zero_groups", "groups of zeros"},
                                   {"constant_groups", "groups of one value"},
                                   {"non_finite_scales", "scales NOT FINITE"},
                                   {"non_finite", "values NOT FINITE"}}) {
    const auto count = tensor.value(key, uint64_t{0});
    if (count > 0) text += "  " + Thousands(count) + " " + label;
  }
  return text + "\n";
}

std::string Summary(const Json& tensors) {
  uint64_t zero_groups = 0, groups = 0, non_finite = 0;
  for (const Json& tensor : tensors) {
    groups += tensor.value("groups", uint64_t{0});
    zero_groups += tensor.value("zero_groups", uint64_t{0});
    non_finite +=
        tensor.value("non_finite", uint64_t{0}) + tensor.value("non_finite_scales", uint64_t{0});
  }
  return "  " + Thousands(zero_groups) + " of " + Thousands(groups) + " groups are zeros; " +
         Thousands(non_finite) + " values or scales are not finite\n";
}

}  // namespace

std::string TensorLines(const Json& tensors) {
  std::map<std::string, std::pair<size_t, uint64_t>> by_type;
  size_t name_width = 0;
  bool detailed = false;
  for (const Json& tensor : tensors) {
    auto& sum = by_type[Text(tensor, "type")];
    ++sum.first;
    sum.second += tensor.value("bytes", uint64_t{0});
    name_width = std::max(name_width, Text(tensor, "name").size());
  }
  std::string lines = Printf("tensors (%zu)\n", tensors.size());
  for (const auto& [type, sum] : by_type) {
    lines += Printf("  %-15s %4zu tensors, %s\n", type.c_str(), sum.first,
                    HumanBytes(static_cast<double>(sum.second)).c_str());
  }
  for (const Json& tensor : tensors) {
    lines += Printf("  %-*s  %-15s %s\n", static_cast<int>(std::min<size_t>(name_width, 60)),
                    OneLine(Text(tensor, "name")).c_str(), Text(tensor, "type").c_str(),
                    Shape(tensor).c_str());
    if (!tensor.contains("non_finite")) continue;
    detailed = true;
    lines += Details(tensor);
  }
  return detailed ? lines + Summary(tensors) : lines;
}

}  // namespace pocketlm::cli
