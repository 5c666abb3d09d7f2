#include "scaffolding/tokenizers/html_unescape.h"

#include <charconv>
#include <unordered_map>

#include "scaffolding/tokenizers/embedded.h"
#include "scaffolding/tokenizers/unicode.h"

namespace sf::tokenizers {

namespace {

constexpr size_t kEntitiesBytes = 29727;
constexpr size_t kLongestName = 32;  // characters, without the semicolon

using Entities = std::unordered_map<std::string_view, std::string>;  // names are parts of a text that stays

Entities read_entities() {
  static const std::string text = inflated("html_unescape: the names", html_entities_file(), kEntitiesBytes);
  Entities out;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view entry = rest.substr(0, rest.find(' '));
    rest.remove_prefix(entry.size() + 1);
    size_t at = entry.find('=');
    std::string characters;
    for (const char *p = entry.data() + at + 1, *end = entry.data() + entry.size(); p < end; ++p) {
      uint32_t c = 0;
      p = std::from_chars(p, end, c, 16).ptr;
      append_character(characters, c);
    }
    out.emplace(entry.substr(0, at), std::move(characters));
  }
  return out;
}
const Entities& entities() {
  static const Entities table = read_entities();
  return table;
}

// What HTML 5 makes of a number that is no character: those of Windows-1252, U+FFFD, or nothing.
void append_reference(std::string& out, uint32_t number) {
  constexpr char32_t kWindows[] = {0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021,
                                   0x2C6,  0x2030, 0x160,  0x2039, 0x152,  0x8D,   0x17D,  0x8F,
                                   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                   0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  if (number == 0 || (number >= 0xD800 && number < 0xE000) || number > 0x10FFFF) return append_character(out, 0xFFFD);
  if (number >= 0x80 && number < 0xA0) return append_character(out, kWindows[number - 0x80]);
  bool control =
      (number < 0x20 && number != '\t' && number != '\n' && number != '\f' && number != '\r') || number == 0x7F;
  bool no_character = (number >= 0xFDD0 && number <= 0xFDEF) || (number & 0xFFFE) == 0xFFFE;
  if (!control && !no_character) append_character(out, number);
}

// "#60;" or "#x3C" at the beginning of `s`: appends its character and gives its length, 0 where there is none.
size_t numeric(std::string_view s, std::string& out) {
  bool hex = s.size() > 1 && (s[1] == 'x' || s[1] == 'X');
  size_t begin = hex ? 2 : 1, at = begin;
  uint32_t number = 0;
  auto digit = [&](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    char lower = char(c | 0x20);
    return hex && lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  for (int d; at < s.size() && (d = digit(s[at])) >= 0; ++at)
    if (number <= 0x10FFFF) number = number * (hex ? 16 : 10) + uint32_t(d);
  if (at == begin) return 0;
  append_reference(out, number);
  return at + (at < s.size() && s[at] == ';');
}

// A name at the beginning of `s`, or the longest known beginning of it.
size_t named(std::string_view s, std::string& out) {
  size_t end = 0;
  for (size_t n = 0;
       n < kLongestName && end < s.size() && std::string_view("\t\n\f <&#;").find(s[end]) == std::string_view::npos;
       ++n)
    next_character(s, end);
  if (end == 0) return 0;
  if (end < s.size() && s[end] == ';') ++end;
  for (; end > 1; --end)
    if (auto known = entities().find(s.substr(0, end)); known != entities().end()) {
      out += known->second;
      return end;
    }
  return 0;
}

}  // namespace

std::string html_unescape(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t next = std::min(text.find('&', at), text.size());
    out += text.substr(at, next - at);
    if (next == text.size()) break;
    std::string_view rest = text.substr(next + 1);
    size_t taken = rest.starts_with('#') ? numeric(rest, out) : named(rest, out);
    if (!taken) out += '&';
    at = next + 1 + taken;
  }
  return out;
}

}  // namespace sf::tokenizers
