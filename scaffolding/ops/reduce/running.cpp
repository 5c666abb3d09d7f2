// cummax, cummin and logcumsumexp. Devices without a kernel take log2(n) steps of other ops: after step s each element
// knows the 2s elements that end with it.
#include "scaffolding/ops/reduce/running.h"

#include <cmath>
#include <limits>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/composed.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/reduce/reduce_internal.h"
#include "scaffolding/ops/reduce/running_kernel.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<RunningExtremum> running_extremum_kernel{"running_extremum"};
constinit KernelTable<RunningLogSum> running_log_sum_kernel{"running_log_sum"};

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_input(const char* op, const Tensor& x) {
  check_defined(op, "input", x);
  SF_CHECK_AS(TypeError, !is_float8(x.dtype()), op, ": ", x.dtype(), " is storage only; convert it to compute");
}

// Both tensors become what they are after all steps of doubling.
void extremum_by_doubling(Tensor& values, Tensor& indices, int64_t dim, bool largest) {
  int64_t n = values.size(dim);
  for (int64_t s = 1; s < n; s *= 2) {
    Tensor before = values.narrow(dim, 0, n - s), now = values.narrow(dim, s, n - s);
    Tensor stays =
        logical_or(logical_and(largest ? ge(now, before) : le(now, before), logical_not(isnan(before))), isnan(now));
    Tensor v = where(stays, now, before),
           i = where(stays, indices.narrow(dim, s, n - s), indices.narrow(dim, 0, n - s));
    values = clone(values), indices = clone(indices);
    copy_bytes(values.narrow(dim, s, n - s), v);
    copy_bytes(indices.narrow(dim, s, n - s), i);
  }
}

std::tuple<Tensor, Tensor> running(const char* op, const Tensor& x, int64_t dim, bool largest) {
  check_input(op, x);
  dim = wrap_dim(op, dim, x.ndim());
  Tensor values = empty_like(x), indices = empty(x.shape(), kInt64, x.device());
  {
    autograd::NoGrad off;
    RunningExtremum r{reduction::with_last(values, dim), reduction::with_last(x, dim),
                      reduction::with_last(indices, dim), largest};
    if (auto kernel = running_extremum_kernel.find(x.device(), r)) {
      if (x.numel() > 0) kernel(r);
    } else {
      values = x;
      int64_t n = x.ndim() ? x.shape()[dim] : 1;
      Shape line = Shape::filled(std::max<int64_t>(x.ndim(), 1), 1);
      line[dim] = n;
      indices = arange(0, n, 1, kInt64, x.device()).reshape(x.ndim() ? line : Shape{}).expand(x.shape());
      if (x.ndim()) extremum_by_doubling(values, indices, dim, largest);
      values = clone(values), indices = contiguous(indices);
    }
  }
  Tensors ys{values, indices};
  autograd::record_outputs(op, ys, {x}, [dim, indices, full = x.shape()](const Tensors& dys) -> Tensors {
    if (!dys[0]) return {Tensor()};
    if (full.empty()) return {dys[0]};
    return {scatter_add(zeros(full, dys[0].dtype(), dys[0].device()), dim, indices, dys[0])};
  });
  return {ys[0], ys[1]};
}

// Off the tape.
Tensor log_sums(const Tensor& x, int64_t dim, bool reverse) {
  autograd::NoGrad off;
  Tensor y = empty_like(x);
  RunningLogSum r{reduction::with_last(y, dim), reduction::with_last(x, dim), reverse};
  if (auto kernel = running_log_sum_kernel.find(x.device(), r)) {
    if (x.numel() > 0) kernel(r);
    return y;
  }
  y = clone(x);
  if (x.ndim() == 0) return y;
  int64_t n = x.shape()[dim];
  for (int64_t s = 1; s < n; s *= 2) {
    int64_t to = reverse ? 0 : s, from = reverse ? s : 0;
    Tensor sum = logaddexp(y.narrow(dim, to, n - s), y.narrow(dim, from, n - s));
    y = clone(y);
    copy_bytes(y.narrow(dim, to, n - s), sum);
  }
  return y;
}

// By an n x n table: for derivatives of derivatives.
Tensor log_sums_reference(const Tensor& input, int64_t dim) {
  Tensor x = (input.ndim() == 0 ? input.unsqueeze(0) : input.transpose(dim, input.ndim() - 1)).unsqueeze(-2);
  int64_t n = x.size(-1);
  Tensor at = arange(0, n, 1, {}, x.device()), taken = le(at.unsqueeze(0), at.unsqueeze(1));
  Tensor y = logsumexp(where(taken, x, wrapped(-kInf)), {-1});
  return input.ndim() == 0 ? y.reshape({}) : y.transpose(dim, y.ndim() - 1);
}

}  // namespace

std::tuple<Tensor, Tensor> cummax(const Tensor& input, int64_t dim) { return running("cummax", input, dim, true); }
std::tuple<Tensor, Tensor> cummin(const Tensor& input, int64_t dim) { return running("cummin", input, dim, false); }

Tensor logcumsumexp(const Tensor& input, int64_t dim) {
  check_input("logcumsumexp", input);
  check_floating("logcumsumexp", "input", input);
  dim = wrap_dim("logcumsumexp", dim, input.ndim());
  Tensor y = log_sums(input, dim, false);
  // dx[j] = sum over i >= j of dy[i] exp(x[j] - y[i]): in logarithms, apart for each sign of dy
  auto backward = [dim, x = autograd::save(input)](const Tensor& dy, const Tensor& y) -> Tensors {
    Tensor v = x.get();
    auto part = [&](const Tensor& g) { return exp(log_sums(log(clamp(g, 0)) - y, dim, true) + v); };
    return {part(dy) - part(-dy)};
  };
  return autograd::record("logcumsumexp", y, {input}, backward,
                          [dim](const Tensors& in) -> Tensors { return {log_sums_reference(in[0], dim)}; });
}

SF_OP(cummax, "input, dim")
    .doc("The largest element so far along dim and its index, of equals the last.")
    .kernels(running_extremum_kernel);
SF_OP(cummin, "input, dim")
    .doc("The smallest element so far along dim and its index, of equals the last.")
    .kernels(running_extremum_kernel);
SF_OP(logcumsumexp, "input, dim")
    .doc("log of the running sum of exp(input) along dim, without overflow.")
    .kernels(running_log_sum_kernel);

}  // namespace sf
