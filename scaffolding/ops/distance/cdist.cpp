#include "scaffolding/ops/distance/cdist.h"

#include <algorithm>

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/matmul/matmul.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/search/kernel.h"
#include "scaffolding/ops/search/search.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

namespace {

constexpr int64_t kFewRows = 25;  // torch's bound: above, differences take longer than products

// |a|^2 - 2 a.b + |b|^2, in float32 or wider: what is left of the difference is a small part of its terms.
Tensor by_products(const Tensor& x1, const Tensor& x2) {
  Tensor y;
  {
    autograd::NoGrad off;
    DType wide = x1.dtype() == kFloat64 ? kFloat64 : kFloat32;
    Tensor a = to_dtype(x1, wide), b = to_dtype(x2, wide);
    Tensor squares = sum(a * a, {-1}, true) + sum(b * b, {-1}).unsqueeze(-2) - matmul(a, b.transpose(-2, -1)) * 2;
    y = to_dtype(sqrt(clamp(squares, 0)), x1.dtype());
  }
  return autograd::record(
      "cdist", y, {x1, x2},
      [x1 = autograd::save(x1), x2 = autograd::save(x2)](const Tensor& dy, const Tensor& y) -> Tensors {
        Tensor a = x1.get(), b = x2.get(), w = masked_fill(dy / y, eq(y, wrapped(0.0)), 0.0);
        return {a * sum(w, {-1}, true) - matmul(w, b), b * sum(w, {-2}).unsqueeze(-1) - matmul(w.transpose(-2, -1), a)};
      });
}

// The first and the second row of each of the `count` pairs i < j of n, in order, n > 1.
std::pair<Tensor, Tensor> pairs_of(int64_t n, int64_t count, Device device) {
  autograd::NoGrad off;
  Tensor row = arange(0, n - 1, 1, kInt64, device), pair = arange(0, count, 1, kInt64, device);
  Tensor begin = row * (n - 1) - floor_divide(row * (row - 1), wrapped(2));  // of the pairs of each row
  Tensor first = searchsorted(begin, pair, false, true) - 1;
  return {first, pair - index_select(begin, 0, first) + first + 1};
}

}  // namespace

Tensor pdist(const Tensor& input, double p) {
  check_defined("pdist", "input", input);
  check_floating("pdist", "input", input);
  SF_CHECK(input.ndim() == 2, "pdist: input must be [N, M], got ", input.shape());
  SF_CHECK(p >= 0, "pdist: p must not be negative, got ", p);
  int64_t n = input.shape()[0];
  int64_t pairs = 0;
  SF_CHECK(!__builtin_mul_overflow(n, std::max<int64_t>(n - 1, 0), &pairs), "pdist: input has too many rows, got ", n);
  if (pairs == 0 || input.shape()[1] == 0) return zeros({pairs / 2}, input.dtype(), input.device());
  auto [first, second] = pairs_of(n, pairs / 2, input.device());
  return norm(index_select(input, 0, first) - index_select(input, 0, second), p, {1});
}

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, const std::string& compute_mode) {
  const char* op = "cdist";
  check_defined(op, "x1", x1);
  check_defined(op, "x2", x2);
  check_floating(op, "x1", x1);
  check_floating(op, "x2", x2);
  check_same_device(op, x1, x2);
  SF_CHECK_AS(TypeError, x1.dtype() == x2.dtype(), op, ": x1 and x2 must have one dtype, got ", x1.dtype(), " and ",
              x2.dtype());
  SF_CHECK(x1.ndim() >= 2 && x2.ndim() >= 2, op, ": x1 and x2 must have at least two dimensions, got ", x1.shape(),
           " and ", x2.shape());
  SF_CHECK(x1.shape().back() == x2.shape().back(), op, ": x1 and x2 must have the same number of columns, got ",
           x1.shape(), " and ", x2.shape());
  SF_CHECK(p >= 0, op, ": p must not be negative, got ", p);
  bool always = compute_mode == "use_mm_for_euclid_dist", never = compute_mode == "donot_use_mm_for_euclid_dist";
  SF_CHECK(always || never || compute_mode == "use_mm_for_euclid_dist_if_necessary", op,
           ": compute_mode must be 'use_mm_for_euclid_dist_if_necessary', 'use_mm_for_euclid_dist' or "
           "'donot_use_mm_for_euclid_dist', got '",
           compute_mode, "'");
  auto leading = [](const Tensor& x) { return Shape(x.shape().data(), x.ndim() - 2); };
  auto with_leading = [](Shape batch, const Tensor& x) {
    batch.push_back(x.shape()[x.ndim() - 2]);
    batch.push_back(x.shape().back());
    return x.expand(batch);
  };
  Shape batch = broadcast_shapes(op, leading(x1), leading(x2));
  Tensor a = with_leading(batch, x1), b = with_leading(batch, x2);
  int64_t rows1 = a.shape()[a.ndim() - 2], rows2 = b.shape()[b.ndim() - 2];
  if (a.shape().back() == 0) {
    batch.push_back(rows1), batch.push_back(rows2);
    return zeros(batch, a.dtype(), a.device());
  }
  if (p == 2 && !never && (always || rows1 > kFewRows || rows2 > kFewRows)) return by_products(a, b);
  return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, {-1});
}

SF_OP(cdist, "x1, x2, p=2.0, compute_mode='use_mm_for_euclid_dist_if_necessary'")
    .doc("The p-norms of x1[..., P, M] - x2[..., R, M] for each pair of rows: [..., P, R].")
    .like("torch.cdist(x1, x2, p, compute_mode)");

SF_OP(pdist, "input, p=2.0")
    .doc("The p-norms of the differences of each pair of rows of input[N, M]: [N * (N - 1) / 2].")
    .like("F.pdist(input, p)")
    .kernels(take_kernel, searchsorted_kernel);

}  // namespace sf
