// Session::Perplexity.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/text_windows.h"

namespace pocketlm {
namespace {

// −log softmax(logits)[target], over the tokens that exist.
double NegativeLogLikelihood(std::span<const float> logits, int32_t target) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  return std::log(sum) - static_cast<double>(logits[static_cast<size_t>(target)] - largest);
}

Result<PerplexityResult> MeasurePerplexity(const Session& session, WindowPass* pass,
                                           std::string_view text, const PerplexityOptions& options,
                                           const ProgressSink& progress) {
  const Tokenizer& tokenizer = session.model().tokenizer();
  POCKETLM_ASSIGN_OR_RETURN(
      const TextWindows windows,
      TextWindows::Create(tokenizer, text, options, session.context_length()));
  PerplexityResult result;
  const auto count = [&](int32_t id, double nll) {
    ++result.tokens;
    result.bytes += tokenizer.TokenBytes(id).size();
    result.nll += nll;
  };
  if (windows.first_is_unconditional())
    count(windows.first_token(), std::log(static_cast<double>(tokenizer.vocab_size())));
  const auto score = [&](int32_t id, std::span<const std::span<const float>> logits) -> Status {
    const double nll = NegativeLogLikelihood(logits.front(), id);
    if (!std::isfinite(nll)) return Internal("the model's logits are not finite");
    count(id, nll);
    return OkStatus();
  };
  POCKETLM_RETURN_IF_ERROR(pass->Run(windows, progress, score));
  return result;
}

}  // namespace

double PerplexityResult::perplexity() const {
  return tokens == 0 ? 0.0 : std::exp(nll / static_cast<double>(tokens));
}

double PerplexityResult::bits_per_byte() const {
  return bytes == 0 ? 0.0 : nll / std::numbers::ln2 / static_cast<double>(bytes);
}

Result<PerplexityResult> Session::Perplexity(std::string_view text,
                                             const PerplexityOptions& options,
                                             const ProgressSink& progress) {
  POCKETLM_ASSIGN_OR_RETURN(WindowPass pass, WindowPass::Create({this}));
  const auto result = MeasurePerplexity(*this, &pass, text, options, progress);
  if (!result.ok()) return result.status().WithContext("perplexity");
  return result;
}

}  // namespace pocketlm
