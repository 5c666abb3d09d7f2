// Tensors and what describes them, written to streams: std::cout << x.
#pragma once
#include <iosfwd>

#include "scaffolding/core/tensor.h"

namespace sf {

std::ostream& operator<<(std::ostream& out, const Tensor& t);  // torch's repr; of an undefined tensor "undefined"
std::ostream& operator<<(std::ostream& out, const Shape& s);   // [2, 3]
std::ostream& operator<<(std::ostream& out, DType t);          // float32
std::ostream& operator<<(std::ostream& out, const Device& d);  // cuda:0

}  // namespace sf
