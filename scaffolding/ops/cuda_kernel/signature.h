// The parameters of a __global__ function, read from its source or from a list of declarations.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "scaffolding/core/dtype.h"

namespace sf::cuda {

struct KernelParameter {
  enum Kind { Pointer, Integer, Real } kind = Pointer;
  std::string type, name;      // as written: "const float*", "x"
  std::optional<DType> dtype;  // of what a pointer points at; absent for void*
  bool is_const = false;       // the kernel only reads what it points at
  int bytes = 8;               // of a number
  bool is_signed = true;
};

// ValueError where there is no such kernel, or a parameter has a type that is not known here.
std::vector<KernelParameter> parameters_of(const std::string& source, const std::string& name);
KernelParameter parameter_of(const std::string& kernel, const std::string& declaration);  // "const float* x" or "int"

}  // namespace sf::cuda
