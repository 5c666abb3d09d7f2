#include "scaffolding/nn/format.h"

#include <charconv>
#include <cmath>

namespace sf::nn {

std::string text(bool b) { return b ? "True" : "False"; }
std::string text(int64_t n) { return std::to_string(n); }

// The shortest digits that read back as d, laid out as Python does: an exponent below 1e-4 and from 1e16.
std::string text(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  double size = std::fabs(d);
  bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, d,
                           scientific ? std::chars_format::scientific : std::chars_format::fixed)
                 .ptr;
  std::string s(buffer, end);
  return scientific || s.find('.') != s.npos ? s : s + ".0";
}

std::string text(const Scalar& s) { return s.is_float() ? text(s.to_double()) : text(s.to_int()); }

template <class List> static std::string tuple(const List& list) {
  std::string out = "(";
  for (size_t i = 0; i < size_t(list.size()); ++i) out += (i ? ", " : "") + text(list[i]);
  return out + (list.size() == 1 ? ",)" : ")");
}
std::string text(const Shape& s) { return tuple(s); }
std::string text(const Floats& f) { return tuple(f); }
std::string text(const Ints& n) { return n.single ? text(n.values[0]) : text(n.values); }
std::string quoted(const std::string& s) { return "'" + s + "'"; }

}  // namespace sf::nn
