// roll and flip: every element moves, once.
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/cat/cat.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

// Copies x to y, rolled by shift[d] along each dimension d from `dim` on: two blocks per rolled dimension.
static void roll_blocks(const Tensor& y, const Tensor& x, const Shape& shift, int64_t dim) {
  while (dim < x.ndim() && shift[dim] == 0) ++dim;
  if (dim == x.ndim()) return copy_bytes(y, x);
  int64_t n = x.shape()[dim], s = shift[dim];
  roll_blocks(y.narrow(dim, s, n - s), x.narrow(dim, 0, n - s), shift, dim + 1);
  roll_blocks(y.narrow(dim, 0, s), x.narrow(dim, n - s, s), shift, dim + 1);
}

Tensor roll(const Tensor& input, const Shape& shifts, const Shape& dims) {
  check_defined("roll", "input", input);
  SF_CHECK(!shifts.empty(), "roll: needs at least one shift");
  if (dims.empty()) {
    SF_CHECK(shifts.size() == 1, "roll: without dims one shift is needed, got ", shifts);
    return roll(input.reshape({input.numel()}), shifts, {0}).reshape(input.shape());
  }
  SF_CHECK(shifts.size() == dims.size(), "roll: shifts and dims must have the same length, got ", shifts, " and ",
           dims);
  Shape shift = Shape::filled(input.ndim(), 0), back;
  for (int64_t i = 0; i < dims.size(); ++i) {
    int64_t d = wrap_dim("roll", dims[i], input.ndim());
    int64_t n = input.ndim() ? input.shape()[d] : 0;
    if (n > 0) shift[d] = ((shift[d] + shifts[i] % n) % n + n) % n;
  }
  Tensor y = empty_like(input);
  if (y.numel() > 0) {
    autograd::NoGrad off;
    roll_blocks(y, input, shift, 0);
  }
  Shape all;
  for (int64_t i = 0; i < shift.size(); ++i) {
    back.push_back(-shift[i]);
    all.push_back(i);
  }
  return autograd::record("roll", y, {input}, [back, all](const Tensor& dy) -> Tensors {
    return {all.empty() ? dy : roll(dy, back, all)};
  });
}

Tensor flip(const Tensor& input, const Shape& dims) {
  check_defined("flip", "input", input);
  Shape flipped = dims.empty() ? Shape{} : wrap_dims("flip", dims, input.ndim());
  Tensor y = empty_like(input);
  if (y.numel() > 0) {
    // The source is read backwards: its view starts at the last entry and has negative strides.
    Copy c{y, input};
    for (auto d : flipped) {
      if (!c.src.device.is_meta())
        c.src.data =
            static_cast<char*>(c.src.data) + (input.shape()[d] - 1) * input.strides()[d] * int64_t(input.itemsize());
      c.src.strides[d] = -input.strides()[d];
    }
    auto kernel = copy_kernel.find(input.device(), c);
    SF_CHECK_AS(NotSupported, kernel, "flip: no kernel on ", input.device());
    kernel(c);
  }
  return autograd::record("flip", y, {input}, [flipped](const Tensor& dy) -> Tensors { return {flip(dy, flipped)}; });
}

SF_OP(roll, "input, shifts, dims=None")
    .doc("Entries shifted along dims; those pushed out come in again at the other end.")
    .like("torch.roll(input, shifts, dims if dims is not None else ())")
    .kernels(copy_kernel);
SF_OP(flip, "input, dims").doc("A copy with the order of entries along dims reversed.").kernels(copy_kernel);

}  // namespace sf
