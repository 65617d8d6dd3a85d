// Decisions by what a model finds likely: the options are scored as ways to go on after text and question.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "decide/decision.h"
#include "runtime/session.h"

namespace pocketlm {

// Answers questions with any model.
//
// Scoring      The log-probability of the whole option and of what ends it (a newline, or the end of a chat turn), after
//              text and question, tokenized together with them. Every option is scored as if it were alone, all in one pass
//              (Session::ScoreBranches), so their order cannot matter.
// Prior        With correct_prior, the same score after a text without content is subtracted: what an option
//              gains by its length and by being a common word cancels out (Zhao et al. 2021, "Calibrate before use"; Holtzman et al. 2021,
//              "Surface form competition"). It is computed once for a question and its options, and kept.
// Probability  The softmax of the scores over the options.
//
// Not thread-safe; uses its session alone while a call runs.
class Decider {
 public:
  // `session` outlives the object. Its tokens are replaced.
  explicit Decider(Session* session) : session_(session) {}

  // kContextFull: text, question and the longest option do not fit; kCancelled by Session::Cancel.
  Result<DecisionResult> Decide(const DecisionRequest& request);

 private:
  struct Prompt {
    std::vector<int32_t> text;                   // up to where the options part
    std::vector<std::vector<int32_t>> branches;  // the rest of each option
  };

  Result<DecisionAnswer> Answer(const DecisionRequest& request, const DecisionQuestion& question);
  Result<std::vector<double>> Score(const std::string& text, const DecisionRequest& request,
                                    const DecisionQuestion& question, bool chinese);
  Result<Prompt> RawPrompt(const std::string& text, const DecisionRequest& request,
                           const DecisionQuestion& question, bool chinese) const;
  Result<Prompt> ChatPromptOf(const std::string& text, const DecisionRequest& request,
                              const DecisionQuestion& question, bool chinese) const;

  Session* session_;
  uint64_t tokens_ = 0;  // computed by the call that runs
  // Scores after a text without content, by all else that they depend on.
  std::map<std::string, std::vector<double>> priors_;
};

}  // namespace pocketlm
