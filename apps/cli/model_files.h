// Where models lie on this machine.
#pragma once

#include <filesystem>
#include <string>

namespace pocketlm::cli {

// $POCKETLM_HOME, else $XDG_CACHE_HOME/pocketlm, else ~/.cache/pocketlm. Not created. Throws CliError if none of
// the variables is set and there is no HOME.
std::filesystem::path CacheFolder();

// The file or folder that MODEL means: an existing path; models/NAME or models/NAME.gguf below the current folder;
// NAME.gguf or the folder NAME in the cache ("hf:ORG/REPO" counts as ORG/REPO). Throws CliError with advice if
// there is none.
std::string ResolveModel(const std::string& model);

}  // namespace pocketlm::cli
