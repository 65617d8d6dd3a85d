// plm_decider_….
#include "pocketlm/decide.h"

#include "capi/internal.h"
#include "decide/decider.h"

using namespace pocketlm;        // NOLINT: this file defines extern "C" functions only
using namespace pocketlm::capi;  // NOLINT

struct plm_decider {
  Decider decider;
};

extern "C" {

plm_status plm_decider_create(plm_session* session, plm_decider** decider) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(session);
    POCKETLM_REQUIRE_ARGUMENT(decider);
    *decider = new plm_decider{Decider(session->session.get())};
    return OkStatus();
  });
}

void plm_decider_free(plm_decider* decider) { delete decider; }

plm_status plm_decider_decide(plm_decider* decider, const char* request_json, char** answers_json) {
  return Guard([&]() -> Status {
    POCKETLM_REQUIRE_ARGUMENT(decider);
    POCKETLM_REQUIRE_ARGUMENT(request_json);
    POCKETLM_REQUIRE_ARGUMENT(answers_json);
    POCKETLM_ASSIGN_OR_RETURN(const DecisionRequest request, ParseDecisionRequest(request_json));
    POCKETLM_ASSIGN_OR_RETURN(const DecisionResult result, decider->decider.Decide(request));
    return CopyString(DecisionToJson(result).dump(-1, ' ', false,
                                                  nlohmann::ordered_json::error_handler_t::replace),
                      answers_json);
  });
}

}  // extern "C"
