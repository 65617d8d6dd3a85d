#include "chat/lexer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/utf8.h"
#include "chat/python_format.h"
#include "chat/unicode.h"

namespace pocketlm::chat {
namespace {

[[noreturn]] void FailAt(int line, std::string message, StatusCode code = StatusCode::kDataError) {
  throw TemplateError{code, std::move(message), line};
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Line ends become "\n"; one at the very end is dropped.
std::string NormalizeSource(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Decodes the escapes of a string literal as Python's unicode-escape codec does.
class StringDecoder {
 public:
  StringDecoder(std::string_view body, int line) : body_(body), line_(line) {}

  std::string Decode() {
    while (pos_ < body_.size()) {
      if (body_[pos_] != '\\') {
        out_ += body_[pos_++];
      } else {
        ++pos_;
        Escape();
      }
    }
    return std::move(out_);
  }

 private:
  void Escape() {
    if (pos_ >= body_.size()) FailAt(line_, "\\ at end of string");
    const char c = body_[pos_];
    if (static_cast<unsigned char>(c) >= 0x80) return EscapedNonAscii();
    ++pos_;
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kFrom.find(c);
    if (simple != std::string_view::npos) {
      out_ += kTo[simple];
    } else if (c >= '0' && c <= '7') {
      uint32_t value = static_cast<uint32_t>(c - '0');
      for (int i = 0; i < 2 && pos_ < body_.size() && body_[pos_] >= '0' && body_[pos_] <= '7';
           ++i) {
        value = value * 8 + static_cast<uint32_t>(body_[pos_++] - '0');
      }
      AppendUtf8(value, &out_);
    } else if (c == 'x') {
      Hex(2);
    } else if (c == 'u') {
      Hex(4);
    } else if (c == 'U') {
      Hex(8);
    } else if (c == 'N') {
      FailAt(line_, "\\N{...} in a string is not supported", StatusCode::kUnsupported);
    } else if (c != '\n') {
      out_ += '\\';
      out_ += c;
    }
  }

  void Hex(size_t digits) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(
        body_.data() + pos_, body_.data() + std::min(pos_ + digits, body_.size()), value, 16);
    if (error != std::errc() || end != body_.data() + pos_ + digits)
      FailAt(line_, "truncated escape in string");
    if (value > 0x10FFFF) FailAt(line_, "illegal Unicode character in string");
    if (value >= 0xD800 && value < 0xE000)
      FailAt(line_, "surrogate in a string is not supported", StatusCode::kUnsupported);
    AppendUtf8(value, &out_);
    pos_ += digits;
  }

  // jinja2 escapes non-ASCII text before it decodes, so the backslash pairs with that escape's own.
  void EscapedNonAscii() {
    const DecodedCodepoint c = DecodeUtf8(body_, pos_);
    char buffer[12];
    const auto cp = static_cast<unsigned>(c.codepoint);
    std::snprintf(buffer, sizeof(buffer),
                  cp < 0x100     ? "\\x%02x"
                  : cp < 0x10000 ? "\\u%04x"
                                 : "\\U%08x",
                  cp);
    out_ += buffer;
    pos_ += c.size_bytes;
  }

  std::string_view body_;
  int line_;
  size_t pos_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeSource(source)), s_(source_) {}

  std::vector<Token> Run() {
    while (pos_ < s_.size()) Root();
    Push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  char At(size_t pos) const { return pos < s_.size() ? s_[pos] : '\0'; }
  bool StartsWith(size_t pos, std::string_view text) const {
    return s_.substr(std::min(pos, s_.size()), text.size()) == text;
  }

  // Moves to `pos` and keeps the line count.
  void Advance(size_t pos) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<ptrdiff_t>(pos_),
                                         s_.begin() + static_cast<ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  void Push(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text)}); }

  size_t SkipSpace(size_t pos) const {
    while (pos < s_.size()) {
      const DecodedCodepoint c = DecodeUtf8(s_, pos);
      if (!IsSpace(c.codepoint)) break;
      pos += c.size_bytes;
    }
    return pos;
  }

  bool AllSpace(std::string_view text) const {
    for (size_t i = 0; i < text.size();) {
      const DecodedCodepoint c = DecodeUtf8(text, i);
      if (!IsSpace(c.codepoint)) return false;
      i += c.size_bytes;
    }
    return !text.empty();
  }

  static size_t RightTrimmed(std::string_view text) {
    size_t end = 0;
    for (size_t i = 0; i < text.size();) {
      const DecodedCodepoint c = DecodeUtf8(text, i);
      i += c.size_bytes;
      if (!IsSpace(c.codepoint)) end = i;
    }
    return end;
  }

  // Emits the text before a tag that starts at `tag`, stripped as `sign` and lstrip_blocks say.
  void PushData(size_t tag, char sign, bool is_variable) {
    std::string_view text = s_.substr(pos_, tag - pos_);
    if (sign == '-') {
      text = text.substr(0, RightTrimmed(text));
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_start > 0 || line_starting_) && AllSpace(text.substr(line_start)))
        text = text.substr(0, line_start);
    }
    if (!text.empty()) Push(TokenType::kData, std::string(text));
    Advance(tag);
  }

  // If a raw block begins at `pos`, the position after its opening tag, else npos.
  size_t RawBegin(size_t pos) const {
    size_t p = pos + 2;
    if (At(p) == '-' || At(p) == '+') ++p;
    p = SkipSpace(p);
    if (!StartsWith(p, "raw")) return std::string::npos;
    p = SkipSpace(p + 3);
    if (StartsWith(p, "-%}")) return SkipSpace(p + 3);
    return StartsWith(p, "%}") ? p + 2 : std::string::npos;
  }

  void Root() {
    size_t tag = pos_;
    while ((tag = s_.find('{', tag)) != std::string_view::npos) {
      const char next = At(tag + 1);
      if (next == '%' || next == '#' || next == '{') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      Push(TokenType::kData, std::string(s_.substr(pos_)));
      return Advance(s_.size());
    }
    const char type = s_[tag + 1];
    const char sign = At(tag + 2);
    const bool signed_tag = sign == '-' || sign == '+';
    const size_t raw = type == '%' ? RawBegin(tag) : std::string::npos;
    PushData(tag, signed_tag ? sign : '\0', type == '{');
    if (raw != std::string::npos) return Raw(raw);
    Advance(tag + (signed_tag ? 3 : 2));
    line_starting_ = false;
    if (type == '#') return Comment();
    Push(type == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    Tag(type == '%');
  }

  // After the tag's content: the position behind the end mark at `pos`, or npos if there is none.
  // `close` is "%}" or "#}".
  size_t CloseMark(size_t pos, std::string_view close) const {
    if (At(pos) == '+' && StartsWith(pos + 1, close)) return pos + 1 + close.size();
    if (At(pos) == '-' && StartsWith(pos + 1, close)) return SkipSpace(pos + 1 + close.size());
    if (!StartsWith(pos, close)) return std::string::npos;
    return pos + close.size() + (At(pos + close.size()) == '\n' ? 1 : 0);
  }

  void Finish(size_t end) {
    line_starting_ = end > 0 && s_[end - 1] == '\n';
    Advance(end);
  }

  void Comment() {
    for (size_t p = pos_; p < s_.size(); ++p) {
      if (s_[p] != '#' && s_[p] != '+' && s_[p] != '-') continue;
      const size_t end = CloseMark(p, "#}");
      if (end != std::string::npos) return Finish(end);
    }
    FailAt(line_, "missing end of comment tag");
  }

  void Raw(size_t begin) {
    Advance(begin);
    line_starting_ = s_[begin - 1] == '\n';
    for (size_t p = pos_; (p = s_.find("{%", p)) != std::string_view::npos; ++p) {
      const char sign = At(p + 2);
      const bool is_signed = sign == '-' || sign == '+';
      const size_t name = SkipSpace(p + (is_signed ? 3 : 2));
      if (!StartsWith(name, "endraw")) continue;
      const size_t end = CloseMark(SkipSpace(name + 6), "%}");
      if (end == std::string::npos) continue;
      PushData(p, is_signed ? sign : '\0', false);
      return Finish(end);
    }
    FailAt(line_, "missing end of raw directive");
  }

  void Tag(bool block) {
    std::string open;  // unclosed brackets
    while (true) {
      const size_t space = SkipSpace(pos_);
      if (open.empty()) {
        size_t end = std::string::npos;
        if (block) {
          end = CloseMark(pos_, "%}");
        } else if (StartsWith(pos_, "-}}")) {
          end = SkipSpace(pos_ + 3);
        } else if (StartsWith(pos_, "}}")) {
          end = pos_ + 2;
        }
        if (end != std::string::npos) {
          Push(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          return Finish(end);
        }
      }
      if (space != pos_) {
        Advance(space);
        continue;
      }
      if (pos_ >= s_.size()) return;  // the parser reports the missing end
      if (!Number() && !Name() && !String() && !Operator(&open)) {
        FailAt(line_,
               "unexpected character '" + std::string(s_.substr(pos_, CharSize(s_, pos_))) + "'");
      }
    }
  }

  // The end of `digits` with single underscores between, or `pos` if there are none.
  template <typename IsDigitFn>
  size_t Digits(size_t pos, IsDigitFn is_digit, bool leading_underscore = false) const {
    if (leading_underscore && At(pos) == '_') ++pos;
    if (!is_digit(At(pos))) return leading_underscore ? std::string::npos : pos;
    while (true) {
      while (is_digit(At(pos))) ++pos;
      if (At(pos) != '_' || !is_digit(At(pos + 1))) return pos;
      ++pos;
    }
  }

  bool Number() {
    if (!IsDigit(At(pos_))) return false;
    return (pos_ == 0 || s_[pos_ - 1] != '.') && FloatNumber() ? true : IntegerNumber();
  }

  bool FloatNumber() {
    size_t end = Digits(pos_, IsDigit);
    bool real = false;
    if (At(end) == '.' && IsDigit(At(end + 1))) {
      end = Digits(end + 1, IsDigit);
      real = true;
    }
    if (At(end) == 'e' || At(end) == 'E') {
      const size_t digits = end + 1 + (At(end + 1) == '+' || At(end + 1) == '-' ? 1 : 0);
      if (IsDigit(At(digits))) {
        end = Digits(digits, IsDigit);
        real = true;
      }
    }
    if (!real) return false;
    Token token{TokenType::kFloat, line_, std::string(s_.substr(pos_, end - pos_))};
    std::string clean = token.text;
    clean.erase(std::remove(clean.begin(), clean.end(), '_'), clean.end());
    if (!ParsePythonFloat(clean, &token.real)) FailAt(line_, "bad number");
    tokens_.push_back(std::move(token));
    Advance(end);
    return true;
  }

  bool IntegerNumber() {
    size_t end = std::string::npos;
    int base = 10;
    if (At(pos_) == '0') {
      const char p = static_cast<char>(At(pos_ + 1) | 0x20);
      if (p == 'b')
        end = Digits(
            pos_ + 2, [](char c) { return c == '0' || c == '1'; }, true),
        base = 2;
      if (p == 'o')
        end = Digits(
            pos_ + 2, [](char c) { return c >= '0' && c <= '7'; }, true),
        base = 8;
      if (p == 'x')
        end = Digits(
            pos_ + 2, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; },
            true),
        base = 16;
      if (end == std::string::npos) {
        base = 10;
        end = Digits(pos_, [](char c) { return c == '0'; });
      }
    } else {
      end = Digits(pos_, IsDigit);
    }
    std::string clean(s_.substr(pos_, end - pos_));
    clean.erase(std::remove(clean.begin(), clean.end(), '_'), clean.end());
    Token token{TokenType::kInteger, line_, clean};
    if (!ParsePythonInt(clean, base, &token.integer)) FailAt(line_, "bad number");
    tokens_.push_back(std::move(token));
    Advance(end);
    return true;
  }

  bool Name() {
    size_t end = pos_;
    while (end < s_.size()) {
      const DecodedCodepoint c = DecodeUtf8(s_, end);
      const bool word =
          c.codepoint == '_' ||
          (CharFlags(c.codepoint) & (kCharAlpha | kCharNumeric | kCharDecimal | kCharDigit)) != 0;
      if (!word) break;
      end += c.size_bytes;
    }
    if (end == pos_) return false;
    if ((CharFlags(DecodeUtf8(s_, pos_).codepoint) & kCharAlpha) == 0 && s_[pos_] != '_')
      FailAt(line_, "invalid character in identifier");
    Push(TokenType::kName, std::string(s_.substr(pos_, end - pos_)));
    Advance(end);
    return true;
  }

  bool String() {
    const char quote = At(pos_);
    if (quote != '\'' && quote != '"') return false;
    size_t end = pos_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) return false;
    Push(TokenType::kString, StringDecoder(s_.substr(pos_ + 1, end - pos_ - 1), line_).Decode());
    Advance(end + 1);
    return true;
  }

  bool Operator(std::string* open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t size = 1;
    for (const std::string_view op : kTwo) {
      if (StartsWith(pos_, op)) size = 2;
    }
    const char c = s_[pos_];
    if (size == 1 && std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      return false;
    if (c == '(' || c == '[' || c == '{') *open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) FailAt(line_, std::string("unexpected '") + c + "'");
      open->pop_back();
    }
    Push(TokenType::kOperator, std::string(s_.substr(pos_, size)));
    Advance(pos_ + size);
    return true;
  }

  std::string source_;
  std::string_view s_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData:
      return "template text";
    case TokenType::kVariableBegin:
      return "begin of print statement";
    case TokenType::kVariableEnd:
      return "end of print statement";
    case TokenType::kBlockBegin:
      return "begin of statement block";
    case TokenType::kBlockEnd:
      return "end of statement block";
    case TokenType::kEnd:
      return "end of template";
    case TokenType::kString:
      return "string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace pocketlm::chat
