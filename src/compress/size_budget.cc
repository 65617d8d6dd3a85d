#include "compress/size_budget.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace pocketlm {
namespace {

double Slope(const SizeChoice& from, const SizeChoice& to) {
  return (from.loss - to.loss) / static_cast<double>(to.bytes - from.bytes);
}

// The choices that are best at some price of a byte, smallest first: more bytes, less loss, ever less of it a byte.
std::vector<size_t> LowerHull(const std::vector<SizeChoice>& choices) {
  std::vector<size_t> order(choices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return choices[a].bytes != choices[b].bytes ? choices[a].bytes < choices[b].bytes
                                                : choices[a].loss < choices[b].loss;
  });
  std::vector<size_t> hull;
  for (const size_t next : order) {
    if (!hull.empty() && choices[next].loss >= choices[hull.back()].loss) continue;
    if (!hull.empty() && choices[next].bytes == choices[hull.back()].bytes) continue;
    while (hull.size() >= 2 && Slope(choices[hull[hull.size() - 2]], choices[hull.back()]) <=
                                   Slope(choices[hull.back()], choices[next]))
      hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

struct Step {
  size_t list;
  size_t to;  // index in the hull
  uint64_t bytes;
  double slope;
};

}  // namespace

Result<std::vector<size_t>> ChooseWithinBudget(std::span<const std::vector<SizeChoice>> lists,
                                               uint64_t budget) {
  std::vector<std::vector<size_t>> hulls;
  std::vector<Step> steps;
  uint64_t bytes = 0;
  for (size_t list = 0; list < lists.size(); ++list) {
    const std::vector<SizeChoice>& choices = lists[list];
    const std::vector<size_t>& hull = hulls.emplace_back(LowerHull(choices));
    bytes += choices[hull[0]].bytes;
    for (size_t to = 1; to < hull.size(); ++to) {
      const SizeChoice &from_choice = choices[hull[to - 1]], &to_choice = choices[hull[to]];
      steps.push_back(
          {list, to, to_choice.bytes - from_choice.bytes, Slope(from_choice, to_choice)});
    }
  }
  if (bytes > budget)
    return InvalidArgument("size: expected at least " + std::to_string(bytes) +
                           " bytes for the matrices, got " + std::to_string(budget));
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.slope > b.slope; });
  std::vector<size_t> taken(lists.size(), 0);
  // Steps of a list come in their order; one that is too large bars those behind it in its list only.
  for (const Step& step : steps) {
    if (step.to != taken[step.list] + 1 || bytes + step.bytes > budget) continue;
    bytes += step.bytes;
    taken[step.list] = step.to;
  }
  std::vector<size_t> chosen;
  for (size_t list = 0; list < lists.size(); ++list) chosen.push_back(hulls[list][taken[list]]);
  return chosen;
}

}  // namespace pocketlm
