// Session::ScoreBranches: the branches as a tree of tokens, computed in preorder.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "runtime/session.h"

namespace pocketlm {
namespace {

constexpr size_t kLogitRows = 16;  // that are held at once

// Of a row of logits: log Σ exp, in double.
double LogSum(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return static_cast<double>(largest) + std::log(sum);
}

// A place of a branch: its token is judged by the logits of a node.
struct Place {
  size_t branch = 0;
  size_t index = 0;
};

// The beginnings of the branches that need a pass, which is all but whole branches, each once.
struct Tree {
  std::vector<int32_t> ids;              // in preorder
  std::vector<size_t> depths;            // 0 for the first token after the text
  std::vector<std::vector<Place>> next;  // the tokens that follow each node
  std::vector<Place> first;              // the tokens that follow the text
};

// Branches in lexicographic order meet the nodes of their tree in preorder.
Tree MakeTree(std::span<const std::vector<int32_t>> branches) {
  std::vector<size_t> order(branches.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return branches[a] < branches[b]; });
  Tree tree;
  std::vector<size_t> path;  // nodes of the branch before
  const std::vector<int32_t>* before = nullptr;
  for (const size_t branch : order) {
    const std::vector<int32_t>& ids = branches[branch];
    size_t common = 0;
    if (before != nullptr)
      common = static_cast<size_t>(
          std::mismatch(before->begin(), before->end(), ids.begin(), ids.end()).first -
          before->begin());
    path.resize(std::min(common, path.size()));
    for (size_t depth = path.size(); depth + 1 < ids.size(); ++depth) {
      path.push_back(tree.ids.size());
      tree.ids.push_back(ids[depth]);
      tree.depths.push_back(depth);
      tree.next.emplace_back();
    }
    tree.first.push_back({branch, 0});
    for (size_t i = 1; i < ids.size(); ++i) tree.next[path[i - 1]].push_back({branch, i});
    before = &ids;
  }
  return tree;
}

}  // namespace

class BranchPass {
 public:
  BranchPass(Session* session, std::span<const std::vector<int32_t>> branches)
      : s_(*session), branches_(branches) {}

  Result<std::vector<std::vector<float>>> Run() {
    POCKETLM_RETURN_IF_ERROR(Check());
    POCKETLM_RETURN_IF_ERROR(s_.ComputeLogits());
    for (const std::vector<int32_t>& branch : branches_) scores_.emplace_back(branch.size());
    const Tree tree = MakeTree(branches_);
    Judge(s_.logits_, tree.first);
    std::vector<size_t> positions(tree.ids.size());
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = s_.tokens_.size() + tree.depths[i];
    for (size_t begin = 0; begin < tree.ids.size(); begin += s_.decoder_.max_rows()) {
      const size_t rows = std::min(tree.ids.size() - begin, s_.decoder_.max_rows());
      POCKETLM_RETURN_IF_ERROR(RunNodes(tree, positions, begin, rows));
    }
    return std::move(scores_);
  }

 private:
  Status Check() const {
    size_t longest = 0;
    for (size_t b = 0; b < branches_.size(); ++b) {
      const auto wrong = [&](const std::string& what) {
        return InvalidArgument("session: branch " + std::to_string(b) + ": expected " + what);
      };
      if (branches_[b].empty()) return wrong("at least one token, got none");
      for (const int32_t id : branches_[b]) {
        if (!s_.model_->tokenizer().IsValid(id))
          return wrong("token ids of the vocabulary (below " +
                       std::to_string(s_.model_->tokenizer().vocab_size()) + "), got " +
                       std::to_string(id));
      }
      longest = std::max(longest, branches_[b].size());
    }
    // The last token of a branch is judged, not computed.
    if (s_.tokens_.size() + longest > s_.context_length() + 1)
      return ContextFull("session: the text has " + std::to_string(s_.tokens_.size()) +
                         " tokens and the longest branch " + std::to_string(longest) +
                         ", the context holds " + std::to_string(s_.context_length()));
    return OkStatus();
  }

  Status RunNodes(const Tree& tree, std::span<const size_t> positions, size_t begin, size_t rows) {
    const size_t vocab = s_.model_->config().vocab_size;
    logits_.resize(std::min(rows, kLogitRows) * vocab);
    // Another session may take its turn on the backend between two passes, but not before the logits of this one are there.
    std::lock_guard<std::mutex> lock(s_.model_->compute_mutex());
    POCKETLM_RETURN_IF_ERROR(s_.decoder_.ForwardTree(std::span(tree.ids).subspan(begin, rows),
                                                     positions.subspan(begin, rows), &s_.cache_,
                                                     &s_.cancel_));
    for (size_t row = 0; row < rows; row += kLogitRows) {
      if (s_.cancel_.load(std::memory_order_relaxed))
        return Cancelled("branches: cancelled by the caller");
      const size_t count = std::min(rows - row, kLogitRows);
      s_.decoder_.Logits(row, count, logits_.data());
      for (size_t i = 0; i < count; ++i) {
        const std::span<float> logits(logits_.data() + i * vocab, vocab);
        for (const int32_t id : s_.model_->unused_ids())
          logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
        Judge(logits, tree.next[begin + row + i]);
      }
    }
    return OkStatus();
  }

  void Judge(std::span<const float> logits, const std::vector<Place>& places) {
    // Rows of padding behind the last token do not count.
    const double log_sum =
        LogSum(logits.first(static_cast<size_t>(s_.model_->tokenizer().vocab_size())));
    for (const Place& place : places) {
      const auto id = static_cast<size_t>(branches_[place.branch][place.index]);
      scores_[place.branch][place.index] =
          static_cast<float>(static_cast<double>(logits[id]) - log_sum);
    }
  }

  Session& s_;
  std::span<const std::vector<int32_t>> branches_;
  std::vector<std::vector<float>> scores_;
  std::vector<float> logits_;
};

Result<std::vector<std::vector<float>>> Session::ScoreBranches(
    std::span<const std::vector<int32_t>> branches) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  cancel_.store(false, std::memory_order_relaxed);
  return BranchPass(this, branches).Run();
}

}  // namespace pocketlm
