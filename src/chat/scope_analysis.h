// Finds the names that a block hides before it assigns them.
//
// jinja2 decides when it compiles whether a name in a block is local. A name that the block assigns
// (outside of an if) before the block itself reads it, and that no block around it knows, is undefined
// until the assignment, even if the caller passes a variable of that name:
//   {% macro m() %}{{ tools }}{% endmacro %}{{ m() }}{% set tools = 1 %}   writes nothing
#pragma once

#include "chat/ast.h"

namespace pocketlm::chat {

// Fills Stmt::hidden and Stmt::else_hidden below `body`; returns the names that the template hides.
HiddenNames AnalyzeScopes(const Block& body);

}  // namespace pocketlm::chat
