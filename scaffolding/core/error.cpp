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

}  // namespace sf
