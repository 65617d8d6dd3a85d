// Questions about a text whose answers are given, and what is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace pocketlm {

// One of the given answers.
struct DecisionOption {
  std::string label;  // what the answer is called
  std::string text;   // what the model would write for it; the label if nothing else was said
};

enum class DecisionKind { kChoice, kBoolean, kScore };

struct DecisionQuestion {
  DecisionKind kind = DecisionKind::kChoice;
  std::string question;                 // "" for a choice: which option fits the text
  std::vector<DecisionOption> options;  // of a choice; of a boolean and a score, made by the reader
};

struct DecisionRequest {
  std::string text;
  std::string instruction;  // before the text; may be empty
  std::vector<DecisionQuestion> questions;
  double abstain_below = 0.0;  // an answer less probable than this is marked
  bool correct_prior = true;   // see Decider
  bool raw = false;            // without the model's chat template, if it has one
};

struct DecisionAnswer {
  std::string question;
  std::string choice;  // a label
  std::vector<std::pair<std::string, double>>
      probabilities;    // by label, in the order given; their sum is 1
  double mass = 0.0;    // probability that the model writes one of the options at all, in [0, 1]
  double margin = 0.0;  // of the choice before the next likely option
  bool abstained = false;
  std::optional<double> score;  // of a score: its mean
};

struct DecisionResult {
  std::vector<DecisionAnswer> answers;
  uint64_t tokens_in = 0;  // that were computed
  double time_ms = 0.0;
};

inline constexpr size_t kMaxDecisionOptions = 200;
inline constexpr size_t kMaxDecisionQuestions = 64;

// Reads {"text", "instruction"?, "questions": [{"type"?: "choice", "question"?, "choices": ["label" | {"label", "text"}]} |
// {"type": "boolean", "question"} | {"type": "score", "question", "min", "max"}], "abstain_below"?, "correct_prior"?, "raw"?}.
// A choice has 2 to kMaxDecisionOptions options, a score as many whole numbers. kDataError: broken JSON. kInvalidArgument names the
// member, what was expected and what was given: unknown members, options that are empty, or equal in label or text, more than
// kMaxDecisionQuestions questions.
Result<DecisionRequest> ParseDecisionRequest(std::string_view json);

// {answers: [{question, choice, probabilities {label: p}, mass, margin, abstained, score?}], tokens_in, time_ms}.
nlohmann::ordered_json DecisionToJson(const DecisionResult& result);

}  // namespace pocketlm
