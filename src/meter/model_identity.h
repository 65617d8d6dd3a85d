// Which model file a measurement was made with.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace pocketlm {

struct ModelIdentity {
  uint64_t file_bytes = 0;   // of the file, or of all *.safetensors of a folder
  std::string hash;          // 16 hexadecimal digits
  std::string largest_file;  // the file itself, or the largest of the folder
};

// The hash is XXH3 (64 bits) over the first and the last MiB and the length of the file; of a folder, over those of
// its *.safetensors in the order of their names. Tells models apart; it is no check of integrity.
// kNotFound: no such file, no weights in the folder. kIoError.
Result<ModelIdentity> IdentifyModel(const std::string& path);

}  // namespace pocketlm
