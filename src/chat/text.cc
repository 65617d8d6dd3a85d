#include "chat/text.h"

#include <algorithm>

#include "base/utf8.h"

namespace pocketlm::chat {
namespace {

thread_local Meter* current_meter = nullptr;

size_t CountChars(std::string_view bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); i += CharSize(bytes, i)) ++count;
  return count;
}

}  // namespace

void Fail(std::string message) { throw TemplateError{StatusCode::kDataError, std::move(message)}; }

void FailUnsupported(std::string message) {
  throw TemplateError{StatusCode::kUnsupported, std::move(message)};
}

void FailLimit(std::string message) {
  throw TemplateError{StatusCode::kUnsupported, std::move(message)};
}

Meter* Meter::Current() { return current_meter; }
Meter::Use::Use(Meter* meter) : previous_(current_meter) { current_meter = meter; }
Meter::Use::~Use() { current_meter = previous_; }

Object::Object(size_t bytes, int depth)
    : meter_(current_meter), bytes_(bytes + sizeof(TextData)), depth_(depth) {
  if (depth > kMaxValueDepth) FailLimit("values are nested too deeply");
  if (meter_ != nullptr) meter_->Add(bytes_);
}

Object::~Object() {
  if (meter_ != nullptr) meter_->Remove(bytes_);
}

TextData::TextData(std::string bytes_in, std::vector<TextRange> literal_in, bool markup_in)
    : Object(bytes_in.size() + literal_in.size() * sizeof(TextRange), 0),
      bytes(std::move(bytes_in)),
      literal(std::move(literal_in)),
      markup(markup_in),
      char_count(CountChars(bytes)) {
  ChargeSteps(bytes.size() / 32);
}

size_t CharSize(std::string_view bytes, size_t offset) {
  if (static_cast<unsigned char>(bytes[offset]) < 0x80) return 1;
  return DecodeUtf8(bytes, offset).size_bytes;
}

Text::Text(std::string trusted)
    : data_(std::make_shared<TextData>(std::move(trusted), std::vector<TextRange>(), false)) {}

Text Text::Literal(std::string from_data) {
  std::vector<TextRange> ranges;
  if (!from_data.empty()) ranges.push_back({0, from_data.size()});
  return Text(std::make_shared<TextData>(std::move(from_data), std::move(ranges), false));
}

bool Text::LiteralIn(size_t begin, size_t end) const {
  const auto& ranges = data_->literal;
  const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                       [&](const TextRange& r) { return r.end <= begin; });
  return it != ranges.end() && it->begin < end;
}

Text Text::Slice(size_t begin, size_t end) const {
  if (begin == 0 && end == size()) return *this;
  TextBuilder builder;
  builder.Append(*this, begin, end);
  return builder.Build(markup());
}

Text Text::WithMarkup(bool markup) const {
  if (data_->markup == markup) return *this;
  return Text(std::make_shared<TextData>(data_->bytes, data_->literal, markup));
}

size_t Text::ByteOffset(size_t char_index) const {
  if (char_index >= char_count()) return size();
  if (ascii()) return char_index;
  ChargeSteps(char_index / 16);
  size_t offset = 0;
  for (size_t i = 0; i < char_index; ++i) offset += CharSize(view(), offset);
  return offset;
}

void TextBuilder::Reserve(size_t more) {
  Meter* meter = Meter::Current();
  if (meter == nullptr) return;
  meter->Step(more / 32);
  meter->Add(more);
  charged_bytes_ += more;
}

void TextBuilder::Release() {
  if (charged_bytes_ != 0) Meter::Current()->Remove(charged_bytes_);
  charged_bytes_ = 0;
}

void TextBuilder::AddRange(size_t begin, size_t end) {
  if (begin >= end) return;
  if (!literal_.empty() && literal_.back().end == begin) {
    literal_.back().end = end;
  } else {
    literal_.push_back({begin, end});
  }
}

void TextBuilder::Append(const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  Reserve(end - begin);
  const size_t base = bytes_.size();
  bytes_.append(text.bytes(), begin, end - begin);
  const auto& ranges = text.literal();
  auto it = std::partition_point(ranges.begin(), ranges.end(),
                                 [&](const TextRange& r) { return r.end <= begin; });
  for (; it != ranges.end() && it->begin < end; ++it) {
    AddRange(base + std::max(it->begin, begin) - begin, base + std::min(it->end, end) - begin);
  }
}

void TextBuilder::AppendBytes(std::string_view bytes, bool literal) {
  Reserve(bytes.size());
  const size_t base = bytes_.size();
  bytes_.append(bytes);
  if (literal) AddRange(base, bytes_.size());
}

void TextBuilder::AppendRepeated(const Text& text, uint64_t count) {
  if (text.empty() || count == 0) return;
  if (count > SIZE_MAX / text.size()) FailLimit("the template uses too much memory");
  const size_t total = text.size() * static_cast<size_t>(count);
  Reserve(total);
  const size_t base = bytes_.size();
  bytes_.reserve(base + total);
  for (uint64_t i = 0; i < count; ++i) bytes_.append(text.bytes());
  for (uint64_t i = 0; i < count && text.any_literal(); ++i) {
    const size_t offset = base + text.size() * static_cast<size_t>(i);
    for (const TextRange& range : text.literal())
      AddRange(offset + range.begin, offset + range.end);
  }
}

Text TextBuilder::Build(bool markup) {
  Release();
  Text text(std::make_shared<TextData>(std::move(bytes_), std::move(literal_), markup));
  bytes_.clear();
  literal_.clear();
  return text;
}

RenderedPrompt TextBuilder::TakePrompt() {
  RenderedPrompt prompt{std::move(bytes_), std::move(literal_)};
  bytes_.clear();
  literal_.clear();
  return prompt;
}

}  // namespace pocketlm::chat
