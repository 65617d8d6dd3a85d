// What a model file or folder says about a model, brought to one form.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/tensor_view.h"
#include "format/gguf.h"
#include "format/hf_folder.h"
#include "format/plm.h"
#include "model/config.h"
#include "tokenizer/tokenizer.h"

namespace pocketlm {

// An opened model: the mapped files and their common description. Immutable after opening; moving keeps the
// tensors where they are.
struct ModelSource {
  std::optional<GgufFile> gguf;  // exactly one of gguf, folder and plm is set
  std::optional<HfFolder> folder;
  std::optional<PlmFile> plm;
  ModelConfig config;
  TokenizerSpec tokenizer;
  std::optional<std::string> chat_template;
  // Every id that some part of the file declares to end an answer; sorted.
  std::vector<int32_t> end_tokens;

  // Finds a tensor by its Hugging Face name without prefix ("layers.0.mlp.up_proj.weight"; "lm_head.weight")
  // or its GGUF name, whichever the file uses; a .plm file has the GGUF name where there is no other. Null if it
  // is not there.
  Result<const TensorView*> Find(const std::string& hf_name, const std::string& gguf_name) const;

  // All tensors in file order.
  std::vector<const TensorView*> Tensors() const;

  // Asks the system to read the weights ahead, where the file's layout is that of the kernels. Returns at once.
  void PrefetchWeights() const;
};

// Opens a .plm or GGUF file, told apart by their first bytes, or a Hugging Face folder. Reads metadata only;
// weights stay mapped.
Result<ModelSource> OpenModelSource(const std::string& path);

// Compares all weights with the checksums that the file holds: kDataError naming the first tensor that differs,
// kUnsupported for a file that has none, which is any but .plm. Reads the whole file.
Status VerifyModelFile(const std::string& path);

// Reads only the tokenizer: of a .plm or GGUF file, of a folder with tokenizer.json (weights not needed), or of a
// tokenizer.json file.
Result<TokenizerSpec> OpenTokenizerSpec(const std::string& path);

// The parts, by file type.
Result<ModelSource> ModelSourceFromGguf(GgufFile file);
Result<ModelSource> ModelSourceFromFolder(HfFolder folder);
Result<ModelSource> ModelSourceFromPlm(PlmFile file);
Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);
Result<TokenizerSpec> TokenizerSpecFromPlm(const PlmFile& file);

}  // namespace pocketlm
