#include "scaffolding/core/printing.h"

#include <ostream>

namespace sf {

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << (t ? t.str() : "undefined"); }
std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << str(s); }
std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }
std::ostream& operator<<(std::ostream& out, const Device& d) { return out << d.str(); }

}  // namespace sf
