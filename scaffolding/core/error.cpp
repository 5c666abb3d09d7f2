#include "scaffolding/core/error.h"

#include <cstdio>

#include "scaffolding/core/device.h"
#include "scaffolding/core/dtype.h"
#include "scaffolding/core/shape.h"

namespace sf {

Message& Message::operator<<(const char* s) {
  text_ += s ? s : "(null)";
  return *this;
}
Message& Message::operator<<(std::string_view s) {
  text_ += s;
  return *this;
}
Message& Message::operator<<(const std::string& s) {
  text_ += s;
  return *this;
}
Message& Message::operator<<(bool v) {
  text_ += v ? "true" : "false";
  return *this;
}
Message& Message::operator<<(int v) {
  text_ += std::to_string(v);
  return *this;
}
Message& Message::operator<<(unsigned v) {
  text_ += std::to_string(v);
  return *this;
}
Message& Message::operator<<(long v) {
  text_ += std::to_string(v);
  return *this;
}
Message& Message::operator<<(unsigned long v) {
  text_ += std::to_string(v);
  return *this;
}
Message& Message::operator<<(long long v) {
  text_ += std::to_string(v);
  return *this;
}
Message& Message::operator<<(double v) {
  char b[32];
  std::snprintf(b, sizeof b, "%g", v);
  text_ += b;
  return *this;
}
Message& Message::operator<<(const Shape& s) {
  text_ += sf::str(s);
  return *this;
}
Message& Message::operator<<(DType t) {
  text_ += name(t);
  return *this;
}
Message& Message::operator<<(const Device& d) {
  text_ += d.str();
  return *this;
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
    else out += text[i];
  }
  return out;
}

}  // namespace sf
