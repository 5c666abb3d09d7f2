#include "scaffolding/server/http/url.h"

#include "scaffolding/core/error.h"
#include "scaffolding/core/utf8.h"

namespace sf::server {

namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string decode_percent(std::string_view text, bool in_query) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
      SF_CHECK(high >= 0 && low >= 0, "url: behind a percent sign stand two hexadecimal digits");
      out += char(high * 16 + low);
      i += 2;
    } else {
      out += in_query && text[i] == '+' ? ' ' : text[i];
    }
  }
  SF_CHECK(out.find('\0') == out.npos, "url: must not have a NUL");
  SF_CHECK(is_utf8(out), "url: must be UTF-8");
  return out;
}

std::string encode_percent(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~';
    if (plain) out += c;
    else out += '%', out += kDigits[uint8_t(c) >> 4], out += kDigits[uint8_t(c) & 15];
  }
  return out;
}

Target parse_target(std::string_view target) {
  SF_CHECK(target.starts_with('/'), "url: must begin with '/'");
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  Target out{.path = decode_percent(target.substr(0, mark)), .query = {}};
  if (mark == target.npos) return out;
  std::string_view rest = target.substr(mark + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    out.query[decode_percent(pair.substr(0, equals), true)] =
        equals == pair.npos ? "" : decode_percent(pair.substr(equals + 1), true);
  }
  return out;
}

std::string host_of(std::string_view authority) {
  std::string out;
  const size_t end = authority.starts_with('[') ? std::min(authority.find(']'), authority.size() - 1) + 1
                                                : std::min(authority.find(':'), authority.size());
  for (char c : authority.substr(0, end)) out += c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return out;
}

}  // namespace sf::server
