#include "decide/decision.h"

#include <cmath>
#include <set>

#include "base/json.h"
#include "base/quote.h"

namespace pocketlm {
namespace {

using nlohmann::ordered_json;

Status Wrong(const std::string& where, const std::string& expected, const std::string& got) {
  return InvalidArgument("decide: " + where + ": expected " + expected + ", got " + got);
}

std::string Shown(const ordered_json& value) {
  return Quote(value.dump(-1, ' ', false, ordered_json::error_handler_t::replace), 60);
}

Status CheckMembers(const ordered_json& object, const std::string& where,
                    const std::set<std::string>& known) {
  if (!object.is_object()) return Wrong(where, "an object", Shown(object));
  for (const auto& [key, value] : object.items()) {
    if (known.contains(key)) continue;
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return Wrong(where, "the members " + names, Quote(key));
  }
  return OkStatus();
}

Status ReadText(const ordered_json& object, const std::string& where, const char* key,
                bool required, std::string* out) {
  const auto found = object.find(key);
  if (found == object.end() && !required) return OkStatus();
  if (found == object.end() || !found->is_string() ||
      (required && found->get_ref<const std::string&>().empty()))
    return Wrong(where + key, "a text", found == object.end() ? "nothing" : Shown(*found));
  *out = found->get<std::string>();
  return OkStatus();
}

Status ReadBool(const ordered_json& object, const char* key, bool* out) {
  const auto found = object.find(key);
  if (found == object.end()) return OkStatus();
  if (!found->is_boolean()) return Wrong(key, "true or false", Shown(*found));
  *out = found->get<bool>();
  return OkStatus();
}

Status ReadChoices(const ordered_json& question, const std::string& where, DecisionQuestion* out) {
  const auto choices = question.find("choices");
  if (choices == question.end() || !choices->is_array())
    return Wrong(where + "choices", "a list of options",
                 choices == question.end() ? "nothing" : Shown(*choices));
  if (choices->size() < 2 || choices->size() > kMaxDecisionOptions)
    return Wrong(where + "choices", "2 to " + std::to_string(kMaxDecisionOptions) + " options",
                 std::to_string(choices->size()));
  std::set<std::string> labels, texts;
  for (size_t i = 0; i < choices->size(); ++i) {
    const ordered_json& choice = (*choices)[i];
    const std::string at = where + "choices[" + std::to_string(i) + "]";
    DecisionOption option;
    if (choice.is_string()) {
      option.label = choice.get<std::string>();
    } else {
      POCKETLM_RETURN_IF_ERROR(CheckMembers(choice, at, {"label", "text"}));
      POCKETLM_RETURN_IF_ERROR(ReadText(choice, at + ".", "label", true, &option.label));
      POCKETLM_RETURN_IF_ERROR(ReadText(choice, at + ".", "text", false, &option.text));
    }
    if (option.text.empty()) option.text = option.label;
    if (option.text.find_first_not_of(" \t\r\n") == std::string::npos)
      return Wrong(at, "an option with a text", Quote(option.text));
    if (!labels.insert(option.label).second || !texts.insert(option.text).second)
      return Wrong(at, "options that differ", Quote(option.label) + " twice");
    out->options.push_back(std::move(option));
  }
  return OkStatus();
}

Status ReadScale(const ordered_json& question, const std::string& where, DecisionQuestion* out) {
  const auto bound = [&](const char* key) -> Result<int64_t> {
    const auto found = question.find(key);
    if (found == question.end() || !found->is_number_integer())
      return Wrong(where + key, "a whole number",
                   found == question.end() ? "nothing" : Shown(*found));
    return found->get<int64_t>();
  };
  POCKETLM_ASSIGN_OR_RETURN(const int64_t low, bound("min"));
  POCKETLM_ASSIGN_OR_RETURN(const int64_t high, bound("max"));
  constexpr int64_t kFar = 1000000;
  const bool near = low >= -kFar && high <= kFar && low < high;
  if (!near || high - low + 1 > static_cast<int64_t>(kMaxDecisionOptions))
    return Wrong(where + "min, max",
                 "a scale of 2 to " + std::to_string(kMaxDecisionOptions) + " numbers",
                 std::to_string(low) + " to " + std::to_string(high));
  for (int64_t value = low; value <= high; ++value)
    out->options.push_back({std::to_string(value), std::to_string(value)});
  return OkStatus();
}

Result<DecisionQuestion> ReadQuestion(const ordered_json& question, const std::string& where) {
  DecisionQuestion out;
  std::string type = "choice";
  if (!question.is_object()) return Wrong(where, "an object", Shown(question));
  POCKETLM_RETURN_IF_ERROR(ReadText(question, where + ".", "type", false, &type));
  if (type == "choice") {
    POCKETLM_RETURN_IF_ERROR(CheckMembers(question, where, {"type", "question", "choices"}));
    POCKETLM_RETURN_IF_ERROR(ReadText(question, where + ".", "question", false, &out.question));
    POCKETLM_RETURN_IF_ERROR(ReadChoices(question, where + ".", &out));
    return out;
  }
  if (type == "boolean") {
    out.kind = DecisionKind::kBoolean;
    POCKETLM_RETURN_IF_ERROR(CheckMembers(question, where, {"type", "question"}));
  } else if (type == "score") {
    out.kind = DecisionKind::kScore;
    POCKETLM_RETURN_IF_ERROR(CheckMembers(question, where, {"type", "question", "min", "max"}));
    POCKETLM_RETURN_IF_ERROR(ReadScale(question, where + ".", &out));
  } else {
    return Wrong(where + ".type", "choice, boolean or score", Quote(type));
  }
  POCKETLM_RETURN_IF_ERROR(ReadText(question, where + ".", "question", true, &out.question));
  return out;
}

}  // namespace

Result<DecisionRequest> ParseDecisionRequest(std::string_view json) {
  POCKETLM_ASSIGN_OR_RETURN(const ordered_json request, ParseOrderedJson(json));
  POCKETLM_RETURN_IF_ERROR(
      CheckMembers(request, "request",
                   {"text", "instruction", "questions", "abstain_below", "correct_prior", "raw"}));
  DecisionRequest out;
  if (!request.contains("text") || !request["text"].is_string())
    return Wrong("text", "a text", request.contains("text") ? Shown(request["text"]) : "nothing");
  out.text = request["text"].get<std::string>();
  POCKETLM_RETURN_IF_ERROR(ReadText(request, "", "instruction", false, &out.instruction));
  const auto questions = request.find("questions");
  if (questions == request.end() || !questions->is_array() || questions->empty() ||
      questions->size() > kMaxDecisionQuestions)
    return Wrong("questions", "a list of 1 to " + std::to_string(kMaxDecisionQuestions),
                 questions == request.end() ? "nothing"
                 : questions->is_array()    ? std::to_string(questions->size())
                                            : Shown(*questions));
  for (size_t i = 0; i < questions->size(); ++i) {
    POCKETLM_ASSIGN_OR_RETURN(
        out.questions.emplace_back(),
        ReadQuestion((*questions)[i], "questions[" + std::to_string(i) + "]"));
  }
  if (const auto below = request.find("abstain_below"); below != request.end()) {
    if (!below->is_number() || !(below->get<double>() >= 0.0 && below->get<double>() <= 1.0))
      return Wrong("abstain_below", "a probability", Shown(*below));
    out.abstain_below = below->get<double>();
  }
  POCKETLM_RETURN_IF_ERROR(ReadBool(request, "correct_prior", &out.correct_prior));
  POCKETLM_RETURN_IF_ERROR(ReadBool(request, "raw", &out.raw));
  return out;
}

ordered_json DecisionToJson(const DecisionResult& result) {
  ordered_json answers = ordered_json::array();
  for (const DecisionAnswer& answer : result.answers) {
    ordered_json probabilities = ordered_json::object();
    for (const auto& [label, probability] : answer.probabilities)
      probabilities[label] = probability;
    ordered_json one = {{"question", answer.question},
                        {"choice", answer.choice},
                        {"probabilities", std::move(probabilities)},
                        {"mass", answer.mass},
                        {"margin", answer.margin},
                        {"abstained", answer.abstained}};
    if (answer.score) one["score"] = *answer.score;
    answers.push_back(std::move(one));
  }
  return {{"answers", std::move(answers)},
          {"tokens_in", result.tokens_in},
          {"time_ms", result.time_ms}};
}

}  // namespace pocketlm
