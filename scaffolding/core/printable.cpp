#include "scaffolding/core/printable.h"

#include "scaffolding/core/utf8.h"

namespace sf {

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
