// Chat messages: what callers send, brought into the form that templates expect.
#pragma once

#include <nlohmann/json.hpp>

#include "base/status.h"

namespace pocketlm {

// Checks an array of message objects and brings it into the form templates are written for:
//   role        a non-empty string, required
//   content     null or missing becomes ""; a string stays; an array of parts stays an array, each part
//               an object with a string "type", a text part with a string "text". Templates made for
//               strings refuse or misprint arrays: FlattenText joins them first.
//   tool_calls  an array of objects; function.arguments (or arguments) given as a string that holds a JSON
//               object becomes that object, so that tojson encodes it once; another string stays
//   other keys  kept in order; those that are null are dropped
// Errors: kInvalidArgument, "messages[2].content: expected …, got …".
Result<nlohmann::ordered_json> NormalizeMessages(nlohmann::ordered_json messages);

// Replaces each content array made of text parts only by their texts joined with "\n"; others stay.
void FlattenText(nlohmann::ordered_json* messages);

}  // namespace pocketlm
