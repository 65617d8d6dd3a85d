// What the filter files share.
#pragma once

#include <string_view>

#include "chat/interpreter.h"

namespace pocketlm::chat {

const Filter* FindSequenceFilter(std::string_view name);

}  // namespace pocketlm::chat
