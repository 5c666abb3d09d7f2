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
  const Tensor* number = nullptr;  // &a or &b: an operand that the kernel takes as p1, not as memory
  double value = 0;                // of that number
};
inline bool has_16_bits(DType t) { return t == kFloat16 || t == kBFloat16; }
// Sides on which a number takes part in 32 bits where the tensor has 16, as in torch; on the others it is rounded to
// the tensor's dtype first, and so is a 0-d tensor that comes first (torch takes only its second operand for a number).
struct Precise {
  bool left = false, right = false;
};
// Makes a number, or a 0-d tensor of the host, beside a tensor an argument of the kernel,
// where the kernels of the device take one.
void take_number(Operands& o, Precise precise);
Operands prepare(const char* op, const Tensor& a, const Tensor& b, bool float_only);
Tensor result_like(const Shape& shape, DType t, Device device, const Tensor& a, const Tensor& b);
// keep owns a converted copy; absent for o.number
TensorView operand(const Tensor& x, const Operands& o, Tensor& keep);
// RuntimeError when an element of an integer divisor is 0 (the CPU would trap).
void check_divisor(const char* op, const Operands& o);
// alpha of add and sub as the kernels take it.
double factor(const char* op, const Tensor& a, const Tensor& b, const Scalar& alpha);
Tensor binary_forward(const char* op, const PointwiseTable& table, const Operands& o, double p0, DType out);

}  // namespace sf::pointwise
