#include "scaffolding/ops/matmul/matmul.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/matmul/linear_gradient.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {
using autograd::save;

void gemm_into(const char* op, const Tensor& a, const Tensor& b, const Tensor& c, double beta, const GemmOptions& o) {
  if (c.numel() == 0) return;
  Gemm g{a, b, o.bias, c, o.alpha, beta, o.act, o.pre, 0};
  if (o.b_is_weight && b.device().is_cpu()) {
    g.b_version = uint64_t(b.version()) + 1;
    b.storage()->packed = true;  // the storage tells the packed copies when it goes
  }
  auto kernel = gemm.find(a.device(), g);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", a.dtype(), " on ", a.device());
  kernel(g);
}

Tensor gemm_product(const char* op, const Tensor& a, const Tensor& b, const GemmOptions& o) {
  Tensor c = empty({a.size(0), a.size(1), b.size(2)}, a.dtype(), a.device());
  gemm_into(op, a, b, c, 0, o);
  return c;
}

namespace {

void check_pair(const char* op, const Tensor& a, const Tensor& b) {
  check_defined(op, "input", a);
  check_defined(op, "other", b);
  SF_CHECK_AS(TypeError, a.dtype() == b.dtype(), op, ": both operands must have one dtype, got ", a.dtype(), " and ",
              b.dtype());
  SF_CHECK_AS(TypeError, !is_float8(a.dtype()) && a.dtype() != kBool, op, ": is not defined for ", a.dtype(),
              "; convert it first");
  SF_CHECK(a.device() == b.device(), op, ": tensors must be on one device, got ", a.device(), " and ", b.device());
}

// a[B, M, K] @ b[B, K, N] as a tensor of shape `out` that owns its bytes alone: a view of a [B, M, N] would share them
// with its base, and backward copies a gradient that is shared.
Tensor product_in_shape(const char* op, const Tensor& a, const Tensor& b, const Shape& out, const GemmOptions& o = {}) {
  Tensor y = empty(out, a.dtype(), a.device());
  gemm_into(op, a, b, y.view({a.size(0), a.size(1), b.size(2)}), 0, o);
  return y;
}

// a and b have batch sizes already equal: [.., M, K] and [.., K, N].
Tensor product(const char* op, const Tensor& a, const Tensor& b) {
  Shape out = a.shape();
  out[out.size() - 1] = b.shape().back();
  int64_t batch = 1;
  for (int64_t i = 0; i + 2 < a.ndim(); ++i) batch *= a.shape()[i];
  Tensor y;
  {
    autograd::NoGrad off;
    Tensor a3 = a.reshape({batch, a.size(-2), a.size(-1)}), b3 = b.reshape({batch, b.size(-2), b.size(-1)});
    y = product_in_shape(op, a3, b3, out);
  }
  return autograd::record(
      op, y, {a, b},
      [a = save(a), b = save(b), na = a.requires_grad(), nb = b.requires_grad()](const Tensor& dy) -> Tensors {
        return {na ? matmul(dy, b.get().transpose(-2, -1)) : Tensor(),
                nb ? matmul(a.get().transpose(-2, -1), dy) : Tensor()};
      });
}

Shape with_tail(Shape batch, int64_t m, int64_t n) {
  batch.push_back(m);
  batch.push_back(n);
  return batch;
}

}  // namespace

// matmul in the operands' own types.
static Tensor multiplied(const Tensor& input, const Tensor& other) {
  check_pair("matmul", input, other);
  SF_CHECK(input.ndim() > 0 && other.ndim() > 0, "matmul: both operands need at least one dimension, got ",
           input.shape(), " and ", other.shape());
  int64_t inner_a = input.shape().back(), inner_b = other.size(other.ndim() == 1 ? 0 : -2);
  SF_CHECK(inner_a == inner_b, "matmul: ", input.shape(), " @ ", other.shape(), " needs equal inner sizes, got ",
           inner_a, " and ", inner_b);
  if (input.ndim() == 1 && other.ndim() == 1)
    return product("matmul", input.reshape({1, inner_a}), other.reshape({inner_a, 1})).reshape({});
  if (input.ndim() == 1) return multiplied(input.unsqueeze(0), other).squeeze(-2);
  if (other.ndim() == 1) return multiplied(input, other.unsqueeze(1)).squeeze(-1);
  if (other.ndim() == 2 && input.ndim() > 2) {  // one product with all rows
    Shape out = input.shape();
    out.back() = other.size(1);
    return product("matmul", input.flatten(0, -2), other).reshape(out);
  }
  if (input.ndim() == 2 && other.ndim() == 2) return product("matmul", input, other);
  Shape ba(input.shape().data(), input.ndim() - 2), bb(other.shape().data(), other.ndim() - 2),
      batch = broadcast_shapes("matmul", ba, bb);
  return product("matmul", input.expand(with_tail(batch, input.size(-2), inner_a)),
                 other.expand(with_tail(batch, inner_b, other.size(-1))));
}

Tensor matmul(const Tensor& input, const Tensor& other) {
  SF_AUTOCAST(matmul, input, other);
  return multiplied(input, other);
}

Tensor mm(const Tensor& input, const Tensor& mat2) {
  SF_AUTOCAST(mm, input, mat2);
  check_pair("mm", input, mat2);
  SF_CHECK(input.ndim() == 2 && mat2.ndim() == 2, "mm: needs two matrices, got ", input.shape(), " and ", mat2.shape());
  return matmul(input, mat2);
}

Tensor bmm(const Tensor& input, const Tensor& mat2) {
  SF_AUTOCAST(bmm, input, mat2);
  check_pair("bmm", input, mat2);
  SF_CHECK(input.ndim() == 3 && mat2.ndim() == 3 && input.size(0) == mat2.size(0),
           "bmm: needs [B, M, K] and [B, K, N], got ", input.shape(), " and ", mat2.shape());
  return matmul(input, mat2);
}

Tensor mv(const Tensor& input, const Tensor& vec) {
  SF_AUTOCAST(mv, input, vec);
  check_pair("mv", input, vec);
  SF_CHECK(input.ndim() == 2 && vec.ndim() == 1, "mv: needs a matrix and a vector, got ", input.shape(), " and ",
           vec.shape());
  return multiplied(input, vec);
}

Tensor dot(const Tensor& input, const Tensor& tensor) {
  SF_AUTOCAST(dot, input, tensor);
  check_pair("dot", input, tensor);
  SF_CHECK(input.ndim() == 1 && tensor.ndim() == 1, "dot: needs two vectors, got ", input.shape(), " and ",
           tensor.shape());
  return multiplied(input, tensor);
}

Tensor outer(const Tensor& input, const Tensor& vec2) {
  check_defined("outer", "input", input);
  check_defined("outer", "vec2", vec2);
  SF_CHECK(input.ndim() == 1 && vec2.ndim() == 1, "outer: needs two vectors, got ", input.shape(), " and ",
           vec2.shape());
  return mul(input.unsqueeze(1), vec2.unsqueeze(0));
}

static Tensor scaled(const Tensor& x, const Scalar& s) { return s.to_double() == 1 ? x : x * s; }

Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  SF_AUTOCAST(addmm, input, mat1, mat2, beta, alpha);
  check_defined("addmm", "input", input);
  Tensor product = scaled(mm(mat1, mat2), alpha);
  SF_CHECK(broadcast_shapes("addmm", input.shape(), product.shape()) == product.shape(), "addmm: input ", input.shape(),
           " does not broadcast to ", product.shape());
  if (beta.to_double() == 0) return product;  // input is not read, as in torch
  return add(product, input, beta);
}

Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha) {
  SF_AUTOCAST(baddbmm, input, batch1, batch2, beta, alpha);
  check_defined("baddbmm", "input", input);
  Tensor product = scaled(bmm(batch1, batch2), alpha);
  SF_CHECK(broadcast_shapes("baddbmm", input.shape(), product.shape()) == product.shape(), "baddbmm: input ",
           input.shape(), " does not broadcast to ", product.shape());
  if (beta.to_double() == 0) return product;
  return add(product, input, beta);
}

// {dw, db} by a kernel that makes both in one pass; empty where there is none,
// or where they must be differentiable themselves.
static std::pair<Tensor, Tensor> both_gradients(const Tensor& dy, const Tensor& x) {
  if (autograd::any_requires_grad({dy, x}) || dy.dtype() != x.dtype()) return {};
  Tensor dw = empty({dy.size(1), x.size(1)}, x.dtype(), x.device()), db = empty({dy.size(1)}, x.dtype(), x.device());
  LinearGradient g{dy.unsqueeze(0), x.unsqueeze(0), dw.unsqueeze(0), db};
  auto kernel = linear_gradient.find(x.device(), g);
  if (!kernel) return {};
  kernel(g);
  return {dw, db};
}

Tensors linear_gradients(const Tensor& dy, const Tensor& input, const Tensor& weight, bool of_bias) {
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < dy.ndim(); ++i) rows *= dy.shape()[i];
  Tensor g = dy.reshape({rows, dy.shape().back()}), x = input ? input.reshape({rows, input.shape().back()}) : input, dx;
  if (weight) {
    Shape sizes = dy.shape();
    sizes.back() = weight.size(1);
    dx = matmul(g, weight).reshape(sizes);
  }
  if (x && of_bias)
    if (auto [dw, db] = both_gradients(g, x); dw) return {dx, dw, db};
  return {dx, x ? matmul(g.t(), x) : x, of_bias ? g.sum({0}) : Tensor()};
}

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  SF_AUTOCAST(linear, input, weight, bias);
  check_pair("linear", input, weight);
  if (weight.ndim() == 1) return bias ? matmul(input, weight) + bias : matmul(input, weight);
  SF_CHECK(input.ndim() >= 1 && weight.ndim() == 2, "linear: needs input [..., K] and weight [N, K], got ",
           input.shape(), " and ", weight.shape());
  int64_t k = weight.size(1), n = weight.size(0);
  SF_CHECK(input.shape().back() == k, "linear: the last size of input ", input.shape(), " must be weight's second, ",
           k);
  check_shape("linear", "bias", bias, {n});
  if (bias)
    SF_CHECK_AS(TypeError, is_floating(bias.dtype()) == is_floating(input.dtype()),
                "linear: bias must be of the input's kind, got ", bias.dtype());
  if (!is_floating(input.dtype()) && bias) return matmul(input, weight.t()) + bias;
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < input.ndim(); ++i) rows *= input.shape()[i];
  Shape out = input.shape();
  out.back() = n;
  Tensor y;
  const bool in_training = weight.requires_grad() && (autograd::grad_enabled() || cpu::LeanMemory::keeps_few());
  {
    autograd::NoGrad off;
    Tensor b = bias && bias.dtype() != input.dtype() && bias.dtype() != kFloat32 ? to_dtype(bias, input.dtype()) : bias;
    if (b) b = contiguous(b);
    y = product_in_shape("linear", input.reshape({1, rows, k}), weight.t().unsqueeze(0), out,
                         {.bias = b, .b_is_weight = !in_training});
  }
  return autograd::record("linear", y, {input, weight, bias},
                          [x = save(input), w = save(weight), nx = input.requires_grad(), nw = weight.requires_grad(),
                           nb = bias.requires_grad()](const Tensor& dy) -> Tensors {
                            return linear_gradients(dy, nw ? x.get() : Tensor(), nx ? w.get() : Tensor(), nb);
                          });
}

Tensor Tensor::matmul(const Tensor& other) const { return sf::matmul(*this, other); }

SF_OP(matmul, "input, other")
    .doc("Matrix product: vectors, matrices, or batches of matrices that broadcast.")
    .kernels(gemm);
SF_OP(mm, "input, mat2").doc("input[M, K] @ mat2[K, N].").kernels(gemm);
SF_OP(bmm, "input, mat2").doc("input[B, M, K] @ mat2[B, K, N].").kernels(gemm);
SF_OP(mv, "input, vec").doc("input[M, K] @ vec[K].").kernels(gemm);
SF_OP(dot, "input, tensor").doc("Inner product of two vectors.").kernels(gemm);
SF_OP(outer, "input, vec2").doc("All products of two vectors' elements: [len(input), len(vec2)].").kernels(gemm);
SF_OP(addmm, "input, mat1, mat2, beta=1, alpha=1")
    .doc("beta * input + alpha * (mat1 @ mat2).")
    .like("torch.addmm(input, mat1, mat2, beta=beta, alpha=alpha)")
    .inplace()
    .kernels(gemm);
SF_OP(baddbmm, "input, batch1, batch2, beta=1, alpha=1")
    .doc("beta * input + alpha * bmm(batch1, batch2).")
    .like("torch.baddbmm(input, batch1, batch2, beta=beta, alpha=alpha)")
    .inplace()
    .kernels(gemm);
SF_OP(linear, "input, weight, bias=None")
    .doc("input[..., K] @ weight[N, K]^T + bias[N].")
    .like("torch.nn.functional.linear")
    .kernels(gemm, linear_gradient);

}  // namespace sf
