// Template source to syntax tree.
#pragma once

#include <string_view>

#include "chat/ast.h"

namespace pocketlm::chat {

// Parses and checks that every filter, test, called function and called method exists. Throws
// TemplateError with a line.
TemplateTree ParseTemplate(std::string_view source);

}  // namespace pocketlm::chat
