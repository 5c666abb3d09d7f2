// cumsum and cumprod.
#include "scaffolding/ops/reduce/scan.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Scan> scan_kernel{"scan"};

namespace scan {

Tensor run(const char* op, Scanning what, const Tensor& x, int64_t dim, bool reverse, const Tensor& factor) {
  Tensor y = empty_like(x);
  Scan s{reduction::with_last(y, dim), reduction::with_last(x, dim),
         factor ? reduction::with_last(factor, dim) : TensorView{}, what, reverse};
  auto kernel = scan_kernel.find(x.device(), s);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", x.dtype(), " on ", x.device());
  kernel(s);
  return y;
}

// y shifted by one along dim, with `first` moving in: [first, y0, .., yn-2], or the mirror image.
static Tensor shifted(const Tensor& y, int64_t dim, double first, bool reverse) {
  int64_t n = y.size(dim);
  Tensor s = full_like(y, first);
  if (n > 1) copy_bytes(s.narrow(dim, reverse ? 0 : 1, n - 1), y.narrow(dim, reverse ? 1 : 0, n - 1));
  return s;
}

Tensor product_of_others(const Tensor& rows) {
  autograd::NoGrad off;
  int64_t last = rows.ndim() - 1;
  Tensor before = run("prod", Scanning::CumProd, rows, last, false),
         after = run("prod", Scanning::CumProd, rows, last, true);
  return shifted(before, last, 1, false) * shifted(after, last, 1, true);
}

}  // namespace scan

namespace {

Tensor prepared(const char* op, const Tensor& input, int64_t& dim, std::optional<DType> dtype) {
  check_defined(op, "input", input);
  dim = wrap_dim(op, dim, input.ndim());
  DType t = dtype.value_or(is_floating(input.dtype()) ? input.dtype() : kInt64);
  SF_CHECK_AS(TypeError, !is_float8(t) && !is_float8(input.dtype()) && t != kBool, op, ": ", t,
              " cannot hold running sums or products");
  return to_dtype(input, t);
}

Tensor running_sum(const Tensor& x, int64_t dim, bool reverse) {
  Tensor y = scan::run("cumsum", Scanning::CumSum, x, dim, reverse);
  return autograd::record("cumsum", y, {x},
                          [dim, reverse](const Tensor& dy) -> Tensors { return {running_sum(dy, dim, !reverse)}; });
}

// out[.., i] = product of x[.., j] over j <= i, by an n x n table: for derivatives of derivatives.
Tensor cumprod_reference(const Tensor& input, int64_t dim) {
  Tensor x = (input.ndim() == 0 ? input.unsqueeze(0) : input.transpose(dim, input.ndim() - 1)).unsqueeze(-2);
  int64_t n = x.size(-1);
  Tensor at = arange(0, n, 1, {}, x.device()), taken = le(at.unsqueeze(0), at.unsqueeze(1));
  Tensor y = prod(where(taken, x, scalar_tensor(1.0, x.dtype(), x.device())), {-1});
  return input.ndim() == 0 ? y.reshape({}) : y.transpose(dim, y.ndim() - 1);
}

}  // namespace

Tensor cumsum(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  SF_AUTOCAST(cumsum, input, dim, dtype);
  Tensor x = prepared("cumsum", input, dim, dtype);
  return running_sum(x, dim, false);
}

Tensor cumprod(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  SF_AUTOCAST(cumprod, input, dim, dtype);
  Tensor x = prepared("cumprod", input, dim, dtype);
  Tensor y = scan::run("cumprod", Scanning::CumProd, x, dim, false);
  // dx[k] = y[k-1] * s[k] with s[k] = dy[k] + x[k+1] * s[k+1]: no division, so zeros need no special case.
  auto backward = [dim, x = autograd::save(x)](const Tensor& dy, const Tensor& y) -> Tensors {
    Tensor v = x.get(), s = scan::run("cumprod", Scanning::Weighted, to_dtype(dy, v.dtype()), dim, true, v);
    if (v.ndim() == 0) return {s};
    return {s * scan::shifted(y, dim, 1, false)};
  };
  return autograd::record("cumprod", y, {x}, backward,
                          [dim](const Tensors& in) -> Tensors { return {cumprod_reference(in[0], dim)}; });
}

SF_OP(cumsum, "input, dim, dtype=None").doc("Running sums along dim.").inplace().kernels(scan_kernel);
SF_OP(cumprod, "input, dim, dtype=None").doc("Running products along dim.").inplace().kernels(scan_kernel);

}  // namespace sf
