#include "decide/decider.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/utf8.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

// Past so many, priors of older questions are forgotten.
constexpr size_t kMaxPriors = 256;

bool IsChinese(const std::string& text) {
  size_t han = 0, letters = 0;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      letters += std::isalpha(lead) != 0 ? 1 : 0;
      ++i;
      continue;
    }
    // U+4E00 … U+9FFF, in three bytes.
    if (lead >= 0xE4 && lead <= 0xE9) ++han;
    ++i;
    while (i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) ++i;
  }
  return han * 3 > letters;
}

std::string QuestionText(const DecisionQuestion& question, bool chinese) {
  if (!question.question.empty()) return question.question;
  return chinese ? "这段文字属于哪一类？" : "Which category does the text belong to?";
}

std::string Labelled(const std::string& text, const DecisionQuestion& question, bool chinese) {
  return chinese ? "文本：" + text + "\n问题：" + QuestionText(question, chinese) + "\n答案："
                 : "Text: " + text + "\nQuestion: " + QuestionText(question, chinese) + "\nAnswer:";
}

double LogSumExp(const std::vector<double>& values) {
  const double largest = *std::max_element(values.begin(), values.end());
  if (!std::isfinite(largest)) return largest;
  double sum = 0.0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// Distinct beginnings but for whole branches: what a pass over them computes.
uint64_t NodesOf(const std::vector<std::vector<int32_t>>& branches) {
  std::set<std::vector<int32_t>> nodes;
  for (const std::vector<int32_t>& branch : branches) {
    for (size_t size = 1; size < branch.size(); ++size)
      nodes.emplace(branch.begin(), branch.begin() + static_cast<ptrdiff_t>(size));
  }
  return nodes.size();
}

}  // namespace

Result<Decider::Prompt> Decider::RawPrompt(const std::string& text, const DecisionRequest& request,
                                           const DecisionQuestion& question, bool chinese) const {
  const Tokenizer& tokenizer = session_->model().tokenizer();
  std::string prompt = request.instruction.empty() ? "" : request.instruction + "\n\n";
  prompt += Labelled(text, question, chinese);
  Prompt out;
  for (const DecisionOption& option : question.options) {
    std::vector<int32_t> ids = tokenizer.Encode(prompt + (chinese ? "" : " ") + option.text + "\n");
    if (tokenizer.add_bos()) ids.insert(ids.begin(), tokenizer.bos_id());
    out.branches.push_back(std::move(ids));
  }
  // They part where the first two of them do, but each keeps a token.
  size_t common = out.branches[0].size() - 1;
  for (const std::vector<int32_t>& ids : out.branches) {
    const size_t limit = std::min(common, ids.size() - 1);
    common =
        static_cast<size_t>(std::mismatch(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(limit),
                                          out.branches[0].begin())
                                .first -
                            ids.begin());
  }
  if (common == 0) return InvalidArgument("decide: expected a text before the options, got none");
  const auto cut = static_cast<ptrdiff_t>(common);
  out.text.assign(out.branches[0].begin(), out.branches[0].begin() + cut);
  for (std::vector<int32_t>& ids : out.branches) ids.erase(ids.begin(), ids.begin() + cut);
  return out;
}

Result<Decider::Prompt> Decider::ChatPromptOf(const std::string& text,
                                              const DecisionRequest& request,
                                              const DecisionQuestion& question,
                                              bool chinese) const {
  const Tokenizer& tokenizer = session_->model().tokenizer();
  ordered_json messages = ordered_json::array();
  if (!request.instruction.empty())
    messages.push_back({{"role", "system"}, {"content", request.instruction}});
  messages.push_back(
      {{"role", "user"}, {"content", text + "\n\n" + QuestionText(question, chinese)}});
  ChatRequest chat;
  chat.messages_json = messages.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  POCKETLM_ASSIGN_OR_RETURN(
      ChatPrompt prompt, BuildChatPrompt(session_->model(), chat, session_->context_length(), 0));
  Prompt out;
  out.text = std::move(prompt.ids);
  for (const DecisionOption& option : question.options) {
    std::vector<int32_t> ids = tokenizer.Encode(option.text);
    if (tokenizer.eos_id() >= 0) ids.push_back(tokenizer.eos_id());
    out.branches.push_back(std::move(ids));
  }
  return out;
}

Result<std::vector<double>> Decider::Score(const std::string& text, const DecisionRequest& request,
                                           const DecisionQuestion& question, bool chinese) {
  const bool chat = session_->model().chat_template() != nullptr && !request.raw;
  POCKETLM_ASSIGN_OR_RETURN(const Prompt prompt,
                            chat ? ChatPromptOf(text, request, question, chinese)
                                 : RawPrompt(text, request, question, chinese));
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<int32_t> before, session_->Tokens());
  const auto known =
      std::mismatch(before.begin(), before.end(), prompt.text.begin(), prompt.text.end()).first -
      before.begin();
  tokens_ += prompt.text.size() - static_cast<size_t>(known) + NodesOf(prompt.branches);
  POCKETLM_RETURN_IF_ERROR(session_->SetTokens(prompt.text));
  POCKETLM_ASSIGN_OR_RETURN(const std::vector<std::vector<float>> scores,
                            session_->ScoreBranches(prompt.branches));
  std::vector<double> sums;
  for (const std::vector<float>& score : scores) {
    double sum = 0.0;
    for (const float value : score) sum += static_cast<double>(value);
    sums.push_back(sum);
  }
  return sums;
}

Result<DecisionAnswer> Decider::Answer(const DecisionRequest& request,
                                       const DecisionQuestion& asked) {
  const bool chinese = IsChinese(request.text + asked.question);
  DecisionQuestion question = asked;
  if (question.kind == DecisionKind::kBoolean)
    question.options = {{"true", chinese ? "是" : "Yes"}, {"false", chinese ? "否" : "No"}};
  POCKETLM_ASSIGN_OR_RETURN(std::vector<double> scores,
                            Score(request.text, request, question, chinese));
  DecisionAnswer answer;
  answer.question = asked.question;
  answer.mass = std::min(std::exp(LogSumExp(scores)), 1.0);
  if (request.correct_prior) {
    ordered_json key = {request.instruction, request.raw, question.question, chinese};
    for (const DecisionOption& option : question.options) key.push_back(option.text);
    const std::string name = key.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    auto prior = priors_.find(name);
    if (prior == priors_.end()) {
      POCKETLM_ASSIGN_OR_RETURN(std::vector<double> without,
                                Score(chinese ? "无" : "N/A", request, question, chinese));
      if (priors_.size() >= kMaxPriors) priors_.clear();
      prior = priors_.emplace(name, std::move(without)).first;
    }
    for (size_t i = 0; i < scores.size(); ++i) scores[i] -= prior->second[i];
  }
  const double sum = LogSumExp(scores);
  if (!std::isfinite(sum))
    return DataError("decide: expected finite scores, got others: the model's weights are broken");
  std::vector<double> probabilities;
  for (const double score : scores) probabilities.push_back(std::exp(score - sum));
  // Of equal ones the label decides, not its place.
  const auto ahead = [&](size_t a, size_t b) {
    return probabilities[a] != probabilities[b]
               ? probabilities[a] > probabilities[b]
               : question.options[a].label < question.options[b].label;
  };
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::partial_sort(order.begin(), order.begin() + 2, order.end(), ahead);
  answer.choice = question.options[order[0]].label;
  answer.margin = probabilities[order[0]] - probabilities[order[1]];
  answer.abstained = probabilities[order[0]] < request.abstain_below;
  for (size_t i = 0; i < probabilities.size(); ++i)
    answer.probabilities.emplace_back(question.options[i].label, probabilities[i]);
  if (question.kind == DecisionKind::kScore) {
    double mean = 0.0;
    for (size_t i = 0; i < probabilities.size(); ++i)
      mean += probabilities[i] * std::stod(question.options[i].label);
    answer.score = mean;
  }
  return answer;
}

Result<DecisionResult> Decider::Decide(const DecisionRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  tokens_ = 0;
  DecisionResult result;
  for (const DecisionQuestion& question : request.questions) {
    POCKETLM_ASSIGN_OR_RETURN(result.answers.emplace_back(), Answer(request, question));
  }
  result.tokens_in = tokens_;
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  result.time_ms = elapsed.count();
  return result;
}

}  // namespace pocketlm
