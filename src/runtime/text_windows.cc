#include "runtime/text_windows.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace pocketlm {
namespace {

// Rows of the head computed at once: bounds the logits buffer (16 MB for 262,144 tokens).
constexpr size_t kLogitRows = 16;

}  // namespace

Result<TextWindows> TextWindows::Create(const Tokenizer& tokenizer, std::string_view text,
                                        const PerplexityOptions& options, size_t window) {
  TextWindows out;
  out.score_all_ = options.score_all;
  out.window_ = window;
  out.ids_ = tokenizer.Encode(text);
  std::vector<int32_t>& ids = out.ids_;
  if (options.score_all) {
    if (ids.empty()) return InvalidArgument("expected a text, got none");
    const int32_t start = tokenizer.add_bos() ? tokenizer.bos_id() : tokenizer.eos_id();
    out.first_is_unconditional_ = start < 0;
    if (start >= 0) ids.insert(ids.begin(), start);
    out.stride_ = std::max<size_t>(window / 2, 1);
    out.count_ =
        ids.size() <= window ? 1 : 1 + (ids.size() - window + out.stride_ - 1) / out.stride_;
  } else {
    if (tokenizer.add_bos()) {
      out.bos_ = tokenizer.bos_id();
      ids.insert(ids.begin(), out.bos_);
    }
    if (window < 4) {
      return InvalidArgument("expected a context of at least 4 tokens, got " +
                             std::to_string(window));
    }
    out.stride_ = window;
    out.count_ = ids.size() / window;
    if (out.count_ == 0) {
      return InvalidArgument("expected a text of at least one window of " + std::to_string(window) +
                             " tokens, got " + std::to_string(ids.size()));
    }
  }
  if (options.max_windows > 0) out.count_ = std::min(out.count_, options.max_windows);
  return out;
}

TextWindow TextWindows::at(size_t index) const {
  const size_t begin = index * stride_;
  const size_t end = std::min(begin + window_, ids_.size());
  TextWindow out;
  out.ids.assign(ids_.begin() + static_cast<ptrdiff_t>(begin),
                 ids_.begin() + static_cast<ptrdiff_t>(end));
  if (!score_all_) {
    out.first_scored = window_ / 2 + 1;
    if (bos_ >= 0) out.ids.front() = bos_;
  } else if (index > 0) {
    out.first_scored = window_ - stride_;  // where the window before ended
  }
  return out;
}

Result<WindowPass> WindowPass::Create(std::vector<Session*> sessions) {
  WindowPass pass(std::move(sessions));
  for (Session* session : pass.sessions_) {
    POCKETLM_ASSIGN_OR_RETURN(Session::Lease lease, session->Acquire());
    pass.leases_.push_back(std::move(lease));
  }
  for (Session* session : pass.sessions_) {
    session->cancel_.store(false, std::memory_order_relaxed);
    session->Truncate(0);
    pass.logits_.emplace_back(kLogitRows * session->model_->config().vocab_size);
  }
  return pass;
}

Status WindowPass::Run(const TextWindows& windows, const ProgressSink& progress,
                       const ScoredTokenSink& sink) {
  for (size_t i = 0; i < windows.count(); ++i) {
    POCKETLM_RETURN_IF_ERROR(RunWindow(windows.at(i), sink));
    if (progress && !progress(static_cast<double>(i + 1) / static_cast<double>(windows.count()))) {
      return Cancelled("cancelled by the caller");
    }
  }
  return OkStatus();
}

Status WindowPass::RunWindow(const TextWindow& window, const ScoredTokenSink& sink) {
  const std::span<const int32_t> ids(window.ids);
  size_t max_rows = std::numeric_limits<size_t>::max();
  for (const Session* session : sessions_)
    max_rows = std::min(max_rows, session->decoder_.max_rows());
  for (size_t begin = 0; begin < ids.size(); begin += max_rows) {
    const size_t rows = std::min(max_rows, ids.size() - begin);
    for (Session* session : sessions_) {
      std::lock_guard<std::mutex> lock(session->model_->compute_mutex());
      POCKETLM_RETURN_IF_ERROR(session->decoder_.Forward(ids.subspan(begin, rows), begin,
                                                         &session->cache_, &session->cancel_));
    }
    // The logits of row r score token begin + r + 1.
    const size_t first_row = window.first_scored > begin + 1 ? window.first_scored - begin - 1 : 0;
    const size_t end_row = std::min(rows, ids.size() - 1 - begin);
    if (first_row < end_row)
      POCKETLM_RETURN_IF_ERROR(ScoreRows(ids.subspan(begin + 1), first_row, end_row, sink));
  }
  return OkStatus();
}

// `targets`[r] is the token after row r.
Status WindowPass::ScoreRows(std::span<const int32_t> targets, size_t first_row, size_t end_row,
                             const ScoredTokenSink& sink) {
  std::vector<std::span<const float>> rows(sessions_.size());
  for (size_t row = first_row; row < end_row; row += kLogitRows) {
    const size_t count = std::min(kLogitRows, end_row - row);
    for (size_t s = 0; s < sessions_.size(); ++s) {
      std::lock_guard<std::mutex> lock(sessions_[s]->model_->compute_mutex());
      sessions_[s]->decoder_.Logits(row, count, logits_[s].data());
    }
    for (size_t i = 0; i < count; ++i) {
      for (size_t s = 0; s < sessions_.size(); ++s) {
        const Model& model = *sessions_[s]->model_;
        rows[s] = {logits_[s].data() + i * model.config().vocab_size,
                   static_cast<size_t>(model.tokenizer().vocab_size())};
      }
      POCKETLM_RETURN_IF_ERROR(sink(targets[row + i], rows));
    }
  }
  return OkStatus();
}

}  // namespace pocketlm
