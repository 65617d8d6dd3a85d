// Strings that remember which of their bytes came from data, and the limits of one rendering.
//
// Internal to src/chat. Everything here belongs to one rendering (one thread), except constants of a
// parsed template, which are immutable and shared. Failures are thrown as TemplateError and turned into
// a Status at the border (ChatTemplate::Parse, ChatTemplate::Render); no exception leaves the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "chat/chat_template.h"

namespace pocketlm::chat {

struct TemplateError {
  StatusCode code;
  std::string message;
  int line = 0;  // 0: not known where it was thrown; the interpreter fills it in
};

// A wrong operation of the template on its values (Python would raise TypeError, ValueError, …).
[[noreturn]] void Fail(std::string message);
// Something that jinja2 can do and this engine cannot.
[[noreturn]] void FailUnsupported(std::string message);
// A limit of RenderLimits or a depth limit is exceeded.
[[noreturn]] void FailLimit(std::string message);

// Work and memory of one rendering. Live bytes count strings and containers while they exist.
class Meter {
 public:
  explicit Meter(const RenderLimits& limits) : limits_(limits) {}

  void Step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) FailLimit("the template takes too many steps");
  }
  // Throws if `bytes` more could not be held now.
  void Check(size_t bytes) const {
    if (bytes > limits_.max_live_bytes || live_bytes_ > limits_.max_live_bytes - bytes) {
      FailLimit("the template uses too much memory");
    }
  }
  void Add(size_t bytes) {
    Check(bytes);
    live_bytes_ += bytes;
  }
  void Remove(size_t bytes) { live_bytes_ -= bytes; }
  const RenderLimits& limits() const { return limits_; }

  // The meter of the rendering that runs on this thread, or nullptr while a template is parsed.
  static Meter* Current();

  // Sets Current() for a scope.
  class Use {
   public:
    explicit Use(Meter* meter);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Meter* previous_;
  };

 private:
  RenderLimits limits_;
  uint64_t steps_ = 0;
  size_t live_bytes_ = 0;
};

// Charges steps to the current rendering, if there is one.
inline void ChargeSteps(uint64_t count) {
  if (Meter* meter = Meter::Current()) meter->Step(count);
}

// Base of every heap value. `depth` bounds the recursion of walks and of destruction.
class Object {
 public:
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  int depth() const { return depth_; }

 protected:
  Object(size_t bytes, int depth);

 private:
  Meter* meter_;
  size_t bytes_;
  int depth_;
};

class TextData final : public Object {
 public:
  TextData(std::string bytes, std::vector<TextRange> literal, bool markup);
  const std::string bytes;
  const std::vector<TextRange> literal;  // sorted, disjoint, not adjacent
  const bool markup;                     // made by the filters safe and escape
  size_t char_count = 0;                 // code points; an ill-formed part counts as one
};

// An immutable string with provenance; copies share it. Positions are bytes unless a name says chars.
class Text {
 public:
  Text() : Text(std::string()) {}
  explicit Text(std::string trusted);
  explicit Text(std::shared_ptr<const TextData> data) : data_(std::move(data)) {}
  static Text Literal(std::string from_data);
  // All literal or all trusted.
  static Text Of(std::string bytes, bool literal) {
    return literal ? Literal(std::move(bytes)) : Text(std::move(bytes));
  }

  const std::string& bytes() const { return data_->bytes; }
  std::string_view view() const { return data_->bytes; }
  size_t size() const { return data_->bytes.size(); }
  bool empty() const { return data_->bytes.empty(); }
  size_t char_count() const { return data_->char_count; }
  bool ascii() const { return data_->char_count == data_->bytes.size(); }
  bool markup() const { return data_->markup; }
  bool any_literal() const { return !data_->literal.empty(); }
  const std::vector<TextRange>& literal() const { return data_->literal; }
  const std::shared_ptr<const TextData>& data() const { return data_; }

  // Whether any byte of [begin, end) is literal.
  bool LiteralIn(size_t begin, size_t end) const;
  // Bytes [begin, end) with their provenance.
  Text Slice(size_t begin, size_t end) const;
  Text WithMarkup(bool markup) const;
  // Byte offset of code point `index`; size() if index ≥ char_count().
  size_t ByteOffset(size_t char_index) const;

 private:
  std::shared_ptr<const TextData> data_;
};

// The length in bytes of the character (code point or ill-formed part) at `offset`.
size_t CharSize(std::string_view bytes, size_t offset);

// Collects pieces with their provenance. Grows only within the limits of the current rendering.
class TextBuilder {
 public:
  TextBuilder() = default;
  ~TextBuilder() { Release(); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void Append(const Text& text) { Append(text, 0, text.size()); }
  void Append(const Text& text, size_t begin, size_t end);
  void AppendTrusted(std::string_view bytes) { AppendBytes(bytes, false); }
  void AppendBytes(std::string_view bytes, bool literal);
  void AppendRepeated(const Text& text, uint64_t count);
  size_t size() const { return bytes_.size(); }
  Text Build(bool markup = false);
  // The finished bytes and ranges, for the rendered prompt itself.
  RenderedPrompt TakePrompt();

 private:
  void Reserve(size_t more);
  void Release();
  void AddRange(size_t begin, size_t end);

  size_t charged_bytes_ = 0;
  std::string bytes_;
  std::vector<TextRange> literal_;
};

}  // namespace pocketlm::chat
