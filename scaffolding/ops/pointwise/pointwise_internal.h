// Shared by the files of this folder: operands of a two-tensor op, brought to one shape, dtype and device.
#pragma once
#include "scaffolding/core/tensor.h"
#include "scaffolding/ops/pointwise/pointwise_loop.h"

namespace sf::pointwise {

struct Operands {
  const Tensor &a, &b;
  Shape shape;  // broadcast
  DType dtype;  // of the computation
  Device device;
};
Operands prepare(const char* op, const Tensor& a, const Tensor& b, bool float_only);
Tensor result_like(const Shape& shape, DType t, Device device, const Tensor& a, const Tensor& b);
TensorView operand(const Tensor& x, const Operands& o, Tensor& keep);  // keep owns a converted copy
// RuntimeError when an element of an integer divisor is 0 (the CPU would trap).
void check_divisor(const char* op, const Operands& o);
Tensor binary_forward(const char* op, const PointwiseTable& table, const Operands& o, double p0, DType out);

}  // namespace sf::pointwise
