// Chat templates: the Jinja dialect in which models declare how a conversation becomes a prompt.
//
// The output is byte-equal to jinja2 3.1.6 as Hugging Face's apply_chat_template runs it: immutable
// sandbox, trim_blocks, lstrip_blocks, break/continue, {% generation %}, raise_exception, strftime_now
// (local time, English names) and tojson without HTML escapes.
//
// What the engine cannot do is an error, never a guess: a tag, filter, test, function or method that is
// unknown, or known to jinja2 but not built here, fails Parse with line and name. The differences:
//   include, import, extends, block: refused by Parse
//   filters refused: filesizeformat, groupby, pprint, random, striptags, urlencode, urlize, wordwrap, xmlattr
//   integers have 128 bits; beyond that is a render error
//   a slice of a constant that cannot be sliced raises; jinja2 folds it to an undefined value
//   printing a generator, function or method (an address in Python) is a render error
//
// Provenance. A prompt mixes what the template wrote with what users and tools wrote, and only the first
// may hold control tokens. Every byte of the output that comes from data (messages, roles and tool schemas
// included) lies in RenderedPrompt::literal: text keeps its origin through every operation; a number keeps
// it through arithmetic; the output of tojson, and of printing a container, is literal as a whole as soon
// as it contains data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace pocketlm {

// Bytes [begin, end).
struct TextRange {
  size_t begin;
  size_t end;
};

struct RenderedPrompt {
  std::string text;
  // Bytes in which no control token is recognized: sorted, disjoint, not empty ranges.
  std::vector<TextRange> literal;
};

// Bounds on one rendering; exceeding one is an error (kUnsupported), never a truncated prompt.
struct RenderLimits {
  uint64_t max_steps = 20'000'000;            // evaluated nodes, loop turns, 32 bytes of text made
  size_t max_live_bytes = size_t{256} << 20;  // strings and containers alive at once
  size_t max_output_bytes = size_t{64} << 20;
};

// Nesting of statements and expressions in the source.
inline constexpr int kMaxTemplateDepth = 200;
// Nested evaluations, macro calls included.
inline constexpr int kMaxRenderDepth = 800;
// Nesting of lists and dicts, in data and made by a template.
inline constexpr int kMaxValueDepth = 200;
inline constexpr size_t kMaxTemplateBytes = size_t{4} << 20;

struct RenderInput {
  nlohmann::ordered_json messages;  // array of objects, as NormalizeMessages (message.h) returns
  nlohmann::ordered_json tools;     // null if there are none; else an array of JSON schemas
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra;  // null or an object of further variables, e.g. enable_thinking
  std::string bos_token;         // trusted; undefined in the template if empty
  std::string eos_token;         // trusted; undefined in the template if empty
  std::optional<int64_t> now;    // seconds since 1970 for strftime_now; default: the clock
  RenderLimits limits;
};

// A parsed template. Immutable; all const functions are safe to call at the same time.
class ChatTemplate {
 public:
  // Errors: kDataError for a syntax error, kUnsupported for what the engine cannot do. The message is
  // "chat template, line N: …".
  static Result<ChatTemplate> Parse(std::string source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ChatTemplate(const ChatTemplate&);  // shares the parsed template
  ChatTemplate& operator=(const ChatTemplate&);
  ~ChatTemplate();

  // Errors: kInvalidArgument if the template itself refuses the conversation (raise_exception; the message
  // contains its text) or the input is malformed; kDataError where an operation of the template fails
  // (undefined value, wrong type); kUnsupported for a limit. With the line, as in Parse.
  Result<RenderedPrompt> Render(const RenderInput& input) const;

  const std::string& source() const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed);
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace pocketlm
