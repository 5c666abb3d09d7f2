// Values as Python's repr shows them, for the text of modules.
#pragma once
#include <string>

#include "scaffolding/nn/layer.h"

namespace sf::nn {

std::string text(bool b);           // True
std::string text(int64_t n);        // 3
std::string text(double d);         // 0.1, 1.0, 1e-05
std::string text(const Scalar& s);  // 0 or 0.0
inline std::string text(const Number& n) { return text(n.given()); }
std::string text(const Shape& s);          // (3, 3), (3,)
std::string text(const Ints& n);           // 3 or (3, 3)
std::string text(const Floats& f);         // (2.0, 3.0)
std::string quoted(const std::string& s);  // 'same'
template <class T> std::string text(const std::optional<T>& v) { return v ? text(*v) : "None"; }

}  // namespace sf::nn
