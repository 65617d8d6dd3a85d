// Session::Perplexity.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "runtime/session.h"

namespace pocketlm {
namespace {

// Rows of the head computed at once: bounds the logits buffer (16 MB for 262,144 tokens).
constexpr size_t kLogitRows = 16;

// −log softmax(logits)[target], over the tokens that exist.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)] - largest);
}

}  // namespace

double PerplexityResult::perplexity() const {
  return tokens == 0 ? 0.0 : std::exp(nll / static_cast<double>(tokens));
}

double PerplexityResult::bits_per_byte() const {
  return bytes == 0 ? 0.0 : nll / std::numbers::ln2 / static_cast<double>(bytes);
}

// Scores the tokens of one text.
class PerplexityScorer {
 public:
  PerplexityScorer(Session* session, std::vector<int32_t> ids)
      : session_(*session), ids_(std::move(ids)), window_(session->context_length()) {}

  // llama.cpp's way.
  Status ScoreHalves(size_t max_windows, const ProgressSink& progress) {
    const Tokenizer& tokenizer = session_.model_->tokenizer();
    if (tokenizer.add_bos()) ids_.insert(ids_.begin(), tokenizer.bos_id());
    size_t windows = ids_.size() / window_;
    if (window_ < 4) {
      return InvalidArgument("perplexity: expected a context of at least 4 tokens, got " +
                             std::to_string(window_));
    }
    if (windows == 0) {
      return InvalidArgument("perplexity: expected a text of at least one window of " +
                             std::to_string(window_) + " tokens, got " +
                             std::to_string(ids_.size()));
    }
    if (max_windows > 0) windows = std::min(windows, max_windows);
    for (size_t i = 0; i < windows; ++i) {
      std::vector<int32_t> window(ids_.begin() + static_cast<ptrdiff_t>(i * window_),
                                  ids_.begin() + static_cast<ptrdiff_t>((i + 1) * window_));
      if (tokenizer.add_bos()) window.front() = tokenizer.bos_id();
      POCKETLM_RETURN_IF_ERROR(ScoreWindow(window, window_ / 2 + 1));
      POCKETLM_RETURN_IF_ERROR(Report(progress, i + 1, windows));
    }
    return OkStatus();
  }

  // Every token once.
  Status ScoreAll(size_t max_windows, const ProgressSink& progress) {
    if (ids_.empty()) return InvalidArgument("perplexity: expected a text, got none");
    const Tokenizer& tokenizer = session_.model_->tokenizer();
    const int32_t start = tokenizer.add_bos() ? tokenizer.bos_id() : tokenizer.eos_id();
    if (start >= 0) {
      ids_.insert(ids_.begin(), start);
    } else {
      result_.nll += std::log(static_cast<double>(tokenizer.vocab_size()));
      Count(ids_.front());
    }
    const size_t stride = std::max<size_t>(window_ / 2, 1);
    const size_t windows =
        ids_.size() <= window_ ? 1 : 1 + (ids_.size() - window_ + stride - 1) / stride;
    size_t scored = 1;  // the first token of ids_ only gives context
    for (size_t i = 0; i < windows && (max_windows == 0 || i < max_windows); ++i) {
      const size_t begin = i * stride;
      const size_t end = std::min(begin + window_, ids_.size());
      const std::span<const int32_t> window(ids_.data() + begin, end - begin);
      POCKETLM_RETURN_IF_ERROR(ScoreWindow(window, scored - begin));
      scored = end;
      POCKETLM_RETURN_IF_ERROR(Report(progress, i + 1, windows));
    }
    return OkStatus();
  }

  const PerplexityResult& result() const { return result_; }

 private:
  void Count(int32_t id) {
    ++result_.tokens;
    result_.bytes += session_.model_->tokenizer().TokenBytes(id).size();
  }

  static Status Report(const ProgressSink& progress, size_t done, size_t total) {
    if (progress && !progress(static_cast<double>(done) / static_cast<double>(total))) {
      return Cancelled("perplexity: cancelled by the caller");
    }
    return OkStatus();
  }

  // Runs a window from an empty cache and scores its tokens [first_scored, size).
  Status ScoreWindow(std::span<const int32_t> window, size_t first_scored) {
    const size_t max_rows = session_.decoder_.max_rows();
    for (size_t begin = 0; begin < window.size(); begin += max_rows) {
      const size_t rows = std::min(max_rows, window.size() - begin);
      std::lock_guard<std::mutex> lock(session_.model_->compute_mutex());
      POCKETLM_RETURN_IF_ERROR(session_.decoder_.Forward(window.subspan(begin, rows), begin,
                                                         &session_.cache_, &session_.cancel_));
      // The logits of row r score token begin + r + 1.
      const size_t first_row = first_scored > begin + 1 ? first_scored - begin - 1 : 0;
      const size_t end_row = std::min(rows, window.size() - 1 - begin);
      if (first_row < end_row)
        POCKETLM_RETURN_IF_ERROR(ScoreRows(window.subspan(begin + 1), first_row, end_row));
    }
    return OkStatus();
  }

  // `targets`[r] is the token after row r.
  Status ScoreRows(std::span<const int32_t> targets, size_t first_row, size_t end_row) {
    const size_t row_size = session_.model_->config().vocab_size;
    const size_t vocab_size = static_cast<size_t>(session_.model_->tokenizer().vocab_size());
    logits_.resize(kLogitRows * row_size);
    for (size_t row = first_row; row < end_row; row += kLogitRows) {
      const size_t count = std::min(kLogitRows, end_row - row);
      session_.decoder_.Logits(row, count, logits_.data());
      for (size_t i = 0; i < count; ++i) {
        const double nll =
            NegativeLogLikelihood({logits_.data() + i * row_size, vocab_size}, targets[row + i]);
        if (!std::isfinite(nll)) return Internal("perplexity: the model's logits are not finite");
        result_.nll += nll;
        Count(targets[row + i]);
      }
    }
    return OkStatus();
  }

  Session& session_;
  std::vector<int32_t> ids_;
  size_t window_;
  std::vector<float> logits_;
  PerplexityResult result_;
};

Result<PerplexityResult> Session::Perplexity(std::string_view text,
                                             const PerplexityOptions& options,
                                             const ProgressSink& progress) {
  POCKETLM_ASSIGN_OR_RETURN(const Lease lease, Acquire());
  cancel_.store(false, std::memory_order_relaxed);
  Truncate(0);
  PerplexityScorer scorer(this, model_->tokenizer().Encode(text));
  const Status status = options.score_all ? scorer.ScoreAll(options.max_windows, progress)
                                          : scorer.ScoreHalves(options.max_windows, progress);
  POCKETLM_RETURN_IF_ERROR(status);
  return scorer.result();
}

}  // namespace pocketlm
