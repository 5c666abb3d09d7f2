#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/fused/linear_add/linear_add.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/quantize/coded_kernel.h"
#include "scaffolding/ops/reduce/reduce.h"

namespace sf {

constinit KernelTable<CodedProduct> coded_product{"coded_product"};

bool coded_product_into(const CodedProduct& p) {
  auto kernel = coded_product.find(p.c.device, p);
  if (kernel) kernel(p);
  return bool(kernel);
}

void check_coded_linear(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias) {
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2 && input.shape().back() == weight.size(1), op,
           ": needs input [..., K] and weight [N, K], got ", input.shape(), " and ", weight.shape());
  check_same_device(op, input, weight);
  check_shape(op, "bias", bias, {weight.size(0)});
  check_same_device(op, input, bias);
}

Tensor linear_of_codes(const char* op, const Tensor& input, const Tensor& bias, int64_t n,
                       const std::function<Tensor()>& whole, const std::function<bool(CodedProduct&)>& on_the_way,
                       const ProductEnd& end) {
  const Tensor& residual = end.residual;
  const Activation act = pointwise_activation(op, end.activation);
  const int64_t k = input.shape().back();
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  Shape out = input.shape();
  out.back() = n;
  check_shape(op, "residual", residual, out);
  check_same_device(op, input, residual);
  const bool learns = autograd::any_requires_grad({input, bias, residual});
  bool done = false;
  Tensor y;
  {
    autograd::NoGrad off;
    if (input.numel() > 0 && n > 0 && input.dtype() != kFloat64) {
      y = empty(out, input.dtype(), input.device());
      const Tensor x = contiguous(input).view({rows, k}), c = y.view({rows, n});
      Tensor b = bias && bias.dtype() != kFloat32 ? to_dtype(bias, input.dtype()) : bias, r;
      if (b) b = contiguous(b);
      if (residual && !learns) r = contiguous(to_dtype(residual, input.dtype())).view({rows, n});
      CodedProduct p{x, {}, c, {}};
      if (b) p.bias = b;
      if (r) p.residual = r;
      p.act = learns ? Activation::None : act;
      done = on_the_way(p);
    }
    if (!done && residual && !learns) return activated(linear_add(input, whole(), bias, residual), act);
    if (!done) y = linear(input, whole(), bias);
    if (done && !learns) return y;
  }
  y = autograd::record(
      op, y, {input, bias},
      [=, shape = input.shape(), nx = input.requires_grad(), nb = bias && bias.requires_grad()](const Tensor& dy) {
        const Tensor g = dy.reshape({rows, n});
        return Tensors{nx ? matmul(g, whole()).reshape(shape) : Tensor(), nb ? sum(g, Shape{0}) : Tensor()};
      });
  return activated(residual ? y + residual : y, act);
}

}  // namespace sf
