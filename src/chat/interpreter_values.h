// How the values that belong to the interpreter print.
#pragma once

#include <string>

#include "chat/value.h"

namespace pocketlm::chat {

std::string MacroName(const Value& macro);
std::string LoopRepr(const Value& loop);

}  // namespace pocketlm::chat
