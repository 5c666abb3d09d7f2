#include "scaffolding/core/printable.h"

namespace sf {

// Bytes of the character that a text begins with, 0 where they are no UTF-8.
static size_t utf8_length(std::string_view text) {
  const auto c = static_cast<unsigned char>(text[0]);
  const size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
  if (n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  return n;
}

std::string printable(std::string_view text) {
  std::string out;
  const auto hex = [&](unsigned c) {
    out += "\\x";
    out += "0123456789abcdef"[c >> 4 & 15];
    out += "0123456789abcdef"[c & 15];
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
    if (c == '\n') out += "\\n";
    else if (c == '\r') out += "\\r";
    else if (c == '\t') out += "\\t";
    else if (c < 32 || c == 127) hex(c);
    else if (c == 0xc2 && next >= 0x80 && next < 0xa0) hex(next), ++i;  // U+0080 to U+009F in UTF-8
    else if (const size_t n = utf8_length(text.substr(i)); n > 0) out += text.substr(i, n), i += n - 1;
    else hex(c);
  }
  return out;
}

}  // namespace sf
