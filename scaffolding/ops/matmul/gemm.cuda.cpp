// Products of floating matrices on CUDA through cuBLASLt. Nothing is copied unless an operand has no dimension of
// stride 1.
#include "scaffolding/backend/cuda/scratch.h"
#include "scaffolding/backend/precision.h"
#include "scaffolding/ops/copy/kernel.h"
#include "scaffolding/ops/matmul/cublaslt_product.h"
#include "scaffolding/ops/matmul/gemm_finish.h"
#include "scaffolding/ops/matmul/linear_gradient.h"
#include "scaffolding/ops/matmul/tall.h"

namespace sf::cuda {
namespace {

// An operand that cuBLASLt can read: the view itself, or a dense copy of one that has no dimension of stride 1.
struct Readable {
  std::optional<Scratch> copy;
  Columns columns;

  explicit Readable(const TensorView& x) {
    if (auto c = columns_of(x)) {
      columns = *c;
      return;
    }
    Copy to{x, x};
    copy.emplace(x.device, size_t(x.numel()) * size_of(x.dtype));
    to.dst.data = copy->as<void>();
    to.dst.strides[2] = 1, to.dst.strides[1] = x.sizes[2], to.dst.strides[0] = x.sizes[1] * x.sizes[2];
    copy_kernel.find(x.device, to)(to);
    columns = *columns_of(to.dst);
  }
};

// The epilogue that does all of what follows the product, if there is one (cublasLtMatmul, "Supported configurations"):
// none in float64, no sum after an activation, no GELU but the one by tanh and that for 16 bits alone (its tanh may be
// the GPU's approximate one, 2^-11 away), a bias of the result's dtype, and rows of `pre` a multiple of 8 apart.
std::optional<ProductEpilogue> whole_epilogue(const Gemm& g) {
  bool bias = g.bias.defined();
  ProductEpilogue e{CUBLASLT_EPILOGUE_DEFAULT, g.bias, g.pre};
  if (!bias && !g.pre && g.act == Activation::None) return e;
  if (g.a.dtype == kFloat64 || (bias && g.bias.dtype != g.c.dtype) || (g.act != Activation::None && g.beta != 0))
    return {};
  switch (g.act) {
    case Activation::None:
      if (g.pre) return {};
      e.kind = CUBLASLT_EPILOGUE_BIAS;
      return e;
    case Activation::Relu:
      if (g.pre) return {};
      e.kind = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
      return e;
    case Activation::GeluTanh:
      if (!is_reduced(g.c.dtype)) return {};
      if (!g.pre) {
        e.kind = bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
        return e;
      }
      if (g.pre.dtype != g.c.dtype || g.pre.strides[2] != 1 || g.pre.strides[1] % 8 != 0 ||
          g.pre.strides[1] < g.c.sizes[2] || g.pre.strides[0] % 8 != 0)
        return {};
      e.kind = bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
      return e;
    default: return {};
  }
}

Product product_of(const Gemm& g, const Columns& a, const Columns& b, const TensorView& c,
                   const ProductEpilogue& epilogue) {
  return {g.b.dtype,      g.a.dtype, c.dtype,
          c.sizes[0],     b,         a,
          *columns_of(c), epilogue,  g.a.dtype == kFloat32 && matmul_allow_tf32(),
          c.device};
}

void run(const Gemm& given) {
  Gemm g = tall(given);
  Readable a(g.a), b(g.b);
  if (auto epilogue = whole_epilogue(g))
    if (product_of(g, a.columns, b.columns, g.c, *epilogue).run(g.alpha, g.beta)) return;
  // The product first, the rest in a pass of its own. The product is rounded to the dtype it is kept in, as where the
  // ops are called one by one.
  std::optional<Scratch> kept;
  TensorView product = g.c;
  if (g.beta != 0) {
    kept.emplace(g.c.device, size_t(g.c.numel()) * size_of(g.c.dtype));
    product.data = kept->as<void>();
    product.strides[2] = 1, product.strides[1] = g.c.sizes[2], product.strides[0] = g.c.sizes[1] * g.c.sizes[2];
  }
  Product plain = product_of(g, a.columns, b.columns, product, {});
  if (!plain.run(g.alpha, 0)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "matmul");
  finish_product(g, product);
}

// Every product of floats that has something to sum; the library's absence is an error of the call and not a reason to
// take a slower kernel.
bool supports(const Gemm& g) {
  if (!is_floating(g.a.dtype) || is_float8(g.a.dtype) || g.a.sizes[2] == 0 || !columns_of(g.c)) return false;
  return !columns_of(g.c)->as_written && (g.c.dtype == g.a.dtype || (is_reduced(g.a.dtype) && g.c.dtype == kFloat32));
}

SF_KERNEL(gemm, DeviceType::CUDA, "cublaslt", 10, run, supports)

// Both gradients of a linear layer's parameters in one call: what is multiplied is summed on the way. A single row or
// column of dy, which can be read either way, is read as all others are, transposed: there are kernels for that.
Product gradients_of(const LinearGradient& g) {
  Columns dy = *columns_of(g.dy);
  dy.as_written = !dy.as_written;  // dy^T[1, N, M]
  return {g.x.dtype,
          g.dy.dtype,
          g.dw.dtype,
          1,
          *columns_of(g.x),
          dy,
          *columns_of(g.dw),
          {CUBLASLT_EPILOGUE_BGRADB, g.db, {}},
          g.x.dtype == kFloat32 && matmul_allow_tf32(),
          g.dw.device};
}
void linear_gradients(const LinearGradient& g) {
  if (!gradients_of(g).run(1, 0)) check_cublas(CUBLAS_STATUS_NOT_SUPPORTED, "linear");
}
bool gradients_support(const LinearGradient& g) {
  bool floats = g.x.dtype == kFloat32 || is_reduced(g.x.dtype);
  return floats && g.dw.numel() > 0 && g.dy.sizes[1] > 0 && columns_of(g.x) && columns_of(g.dy) &&
         gradients_of(g).exists();
}
SF_KERNEL(linear_gradient, DeviceType::CUDA, "cublaslt", 10, linear_gradients, gradients_support)

}  // namespace
}  // namespace sf::cuda
