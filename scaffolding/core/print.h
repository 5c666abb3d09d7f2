// How tensors are printed: torch's layout and rules (its _tensor_str.py), so that people and doctests can compare.
#pragma once
#include <optional>
#include <string>

#include "scaffolding/core/tensor.h"

namespace sf {

struct PrintOptions {
  int precision = 4;         // digits after the point
  int64_t threshold = 1000;  // more elements than this are summarised
  int64_t edgeitems = 3;     // entries shown at each end of a summarised dimension
  int linewidth = 80;
  std::optional<bool> sci_mode;  // scientific notation; decided from the values when absent
};
PrintOptions& print_options();  // process-wide; not locked

// "tensor([1., 2.], requires_grad=True)"; prefix is "tensor(" or the name of a subclass with its bracket.
std::string to_string(const Tensor& t, const std::string& prefix = "tensor(", const std::string& dtype_prefix = "");
std::string grad_fn_name(const char* op);  // "log_softmax" -> "LogSoftmaxBackward0"
std::string place_on_tape(
    const Tensor& t);  // "grad_fn=<AddBackward0>", "requires_grad=True" or nothing; defined by autograd/

}  // namespace sf
