// strftime with English names, whatever the locale of the process.
#include <ctime>

#include "chat/interpreter.h"

namespace pocketlm::chat {
namespace {

constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                 "Thursday", "Friday", "Saturday"};
constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                   "May",       "June",     "July",     "August",
                                   "September", "October",  "November", "December"};

// A number with `width` digits; `flag` '-' drops the padding, '_' and '0' choose it.
std::string Padded(int value, int width, char flag, char fill = '0') {
  std::string digits = std::to_string(value);
  if (flag == '-') return digits;
  if (flag == '_') fill = ' ';
  if (flag == '0') fill = '0';
  while (static_cast<int>(digits.size()) < width) digits.insert(digits.begin(), fill);
  return digits;
}

// ISO 8601 week and its year.
void IsoWeek(const std::tm& t, int* year, int* week) {
  const int weekday = (t.tm_wday + 6) % 7;  // Monday is 0
  *year = t.tm_year + 1900;
  *week = (t.tm_yday - weekday + 10) / 7;
  const auto weeks_in = [](int y) {
    const auto p = [](int v) { return (v + v / 4 - v / 100 + v / 400) % 7; };
    return p(y) == 4 || p(y - 1) == 3 ? 53 : 52;
  };
  if (*week < 1) {
    --*year;
    *week = weeks_in(*year);
  } else if (*week > weeks_in(*year)) {
    ++*year;
    *week = 1;
  }
}

std::string Number(const std::tm& t, char c, char flag, bool* known) {
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  const int year = t.tm_year + 1900;
  int iso_year = 0;
  int iso_week = 0;
  IsoWeek(t, &iso_year, &iso_week);
  switch (c) {
    case 'Y':
      return Padded(year, 1, flag);
    case 'C':
      return Padded(year / 100, 2, flag);
    case 'y':
      return Padded(year % 100, 2, flag);
    case 'G':
      return Padded(iso_year, 1, flag);
    case 'g':
      return Padded(iso_year % 100, 2, flag);
    case 'V':
      return Padded(iso_week, 2, flag);
    case 'U':
      return Padded((t.tm_yday + 7 - t.tm_wday) / 7, 2, flag);
    case 'W':
      return Padded((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2, flag);
    case 'm':
      return Padded(t.tm_mon + 1, 2, flag);
    case 'd':
      return Padded(t.tm_mday, 2, flag);
    case 'e':
      return Padded(t.tm_mday, 2, flag, ' ');
    case 'j':
      return Padded(t.tm_yday + 1, 3, flag);
    case 'H':
      return Padded(t.tm_hour, 2, flag);
    case 'k':
      return Padded(t.tm_hour, 2, flag, ' ');
    case 'I':
      return Padded(hour12, 2, flag);
    case 'l':
      return Padded(hour12, 2, flag, ' ');
    case 'M':
      return Padded(t.tm_min, 2, flag);
    case 'S':
      return Padded(t.tm_sec, 2, flag);
    case 'u':
      return Padded(t.tm_wday == 0 ? 7 : t.tm_wday, 1, flag);
    case 'w':
      return Padded(t.tm_wday, 1, flag);
    default:
      *known = false;
      return "";
  }
}

std::string Directive(const std::tm& t, char c, char flag) {
  const auto both = [&](const char* codes) {
    std::string out;
    for (const char* p = codes; *p != '\0'; ++p)
      out += std::isalpha(static_cast<unsigned char>(*p)) != 0 ? Directive(t, *p, '\0')
                                                               : std::string(1, *p);
    return out;
  };
  switch (c) {
    case 'A':
      return kDays[t.tm_wday];
    case 'a':
      return std::string(kDays[t.tm_wday]).substr(0, 3);
    case 'B':
      return kMonths[t.tm_mon];
    case 'b':
    case 'h':
      return std::string(kMonths[t.tm_mon]).substr(0, 3);
    case 'p':
      return t.tm_hour < 12 ? "AM" : "PM";
    case 'P':
      return t.tm_hour < 12 ? "am" : "pm";
    case 'F':
      return both("Y-m-d");
    case 'D':
    case 'x':
      return both("m/d/y");
    case 'T':
    case 'X':
      return both("H:M:S");
    case 'R':
      return both("H:M");
    case 'r':
      return both("I:M:S p");
    case 'c':
      return both("a b e H:M:S Y");
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case 'f':
      return "000000";  // the clock counts whole seconds
    case 'Z':
    case 'z':
      return "";  // as for Python's naive local time
    case '%':
      return "%";
    default:
      break;
  }
  bool known = true;
  std::string number = Number(t, c, flag, &known);
  if (!known) FailUnsupported(std::string("strftime_now: %") + c);
  return number;
}

}  // namespace

Text FormatTime(const Text& format, int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  if (localtime_r(&time, &local) == nullptr) Fail("strftime_now: time out of range");
  TextBuilder out;
  const std::string_view s = format.view();
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '%') {
      out.Append(format, i, i + 1);
      continue;
    }
    const size_t begin = i++;
    char flag = '\0';
    if (i < s.size() && (s[i] == '-' || s[i] == '_' || s[i] == '0')) flag = s[i++];
    if (i >= s.size()) FailUnsupported("strftime_now: format ends with %");
    out.AppendBytes(Directive(local, s[i], flag), format.LiteralIn(begin, i + 1));
  }
  return out.Build();
}

}  // namespace pocketlm::chat
