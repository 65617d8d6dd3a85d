#include "tokenizer/detokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace pocketlm {

std::string IncrementalDetokenizer::Push(int32_t id) {
  if (skip_special_ && tokenizer_->IsControl(id)) return {};
  return PushBytes(tokenizer_->TokenBytes(id));
}

std::string IncrementalDetokenizer::PushBytes(std::string_view bytes) {
  if (bytes.empty()) return {};
  if (at_start_ && tokenizer_->strips_leading_space() && bytes[0] == ' ') bytes.remove_prefix(1);
  at_start_ = false;
  pending_.append(bytes);
  const size_t keep = IncompleteUtf8Suffix(pending_);
  std::string text =
      ReplaceInvalidUtf8(std::string_view(pending_).substr(0, pending_.size() - keep));
  pending_.erase(0, pending_.size() - keep);
  return text;
}

std::string IncrementalDetokenizer::Flush() {
  at_start_ = true;
  return ReplaceInvalidUtf8(std::exchange(pending_, {}));
}

}  // namespace pocketlm
