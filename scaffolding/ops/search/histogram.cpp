// bincount and histc.
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/cuda_graph.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/search/kernel.h"
#include "scaffolding/ops/search/search.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<CountNumbers> count_numbers{"count_numbers"};
constinit KernelTable<CountParts> count_parts{"count_parts"};

Tensor bincount(const Tensor& input, const Tensor& weights, int64_t minlength) {
  const char* op = "bincount";
  check_defined(op, "input", input);
  SF_CHECK_AS(TypeError, is_integral(input.dtype()), op, ": input must be integers, got ", input.dtype());
  SF_CHECK(input.ndim() == 1, op, ": input must have one dimension, got ", input.shape());
  SF_CHECK(minlength >= 0, op, ": minlength must not be negative, got ", minlength);
  check_shape(op, "weights", weights, input.shape());
  check_same_device(op, input, weights);
  SF_CHECK_AS(TypeError, !weights || !is_float8(weights.dtype()), op, ": ",
              weights.defined() ? weights.dtype() : kInt64, " is storage only; convert it to compute");
  SF_CHECK_AS(RuntimeError, !input.device().is_meta(),
              "bincount: the shape depends on the values, which a meta tensor does not have");
  autograd::NoGrad off;
  Tensor at = contiguous(to_dtype(input, kInt64));
  int64_t size = minlength, least = 0, most = 0;
  CountNumbers c{{}, at, &least, &most};
  auto counter = count_numbers.find(at.device(), c);
  if (at.numel() > 0) {
    if (at.device().is_cuda()) cuda::refuse_while_capturing(op, "a result whose shape depends on values");
    if (counter) counter(c);
    else least = amin(at).item_int(), most = amax(at).item_int();
    SF_CHECK(least >= 0, op, ": input must not be negative, got ", least);
    SF_CHECK(most < INT64_MAX, op, ": input is too large, got ", most);
    size = std::max(size, most + 1);
  }
  if (!weights && counter) {
    Tensor counts = zeros({size}, kInt64, at.device());
    c.counts = counts;
    if (at.numel() > 0) counter(c);
    return counts;
  }
  if (!weights) return index_add(zeros({size}, kInt64, at.device()), 0, at, ones(at.shape(), kInt64, at.device()));
  Tensor w = to_dtype(weights, weights.dtype() == kFloat32 ? kFloat32 : kFloat64);
  return index_add(zeros({size}, w.dtype(), at.device()), 0, at, w);
}

Tensor histc(const Tensor& input, int64_t bins, const Scalar& min, const Scalar& max) {
  const char* op = "histc";
  check_defined(op, "input", input);
  check_floating(op, "input", input);
  SF_CHECK_AS(TypeError, !is_float8(input.dtype()), op, ": ", input.dtype(), " is storage only; convert it to compute");
  SF_CHECK(bins > 0 && bins < INT64_MAX, op, ": bins must be positive, got ", bins);
  double low = min.to_double(), high = max.to_double();
  SF_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, op,
           ": min and max must be finite, and min not above max, got ", low, " and ", high);
  autograd::NoGrad off;
  // 16-bit floats cannot hold counts, and a bin's border is where float32 has it
  DType wide = input.dtype() == kFloat64 ? kFloat64 : kFloat32;
  Tensor x = to_dtype(input.reshape({-1}), wide), counts = zeros({bins + 1}, kInt64, x.device());
  if (x.numel() == 0) return zeros({bins}, input.dtype(), x.device());
  Tensor from = full({}, low, wide, x.device()), to = full({}, high, wide, x.device());
  if (low == high) {
    from = amin(x), to = amax(x);
    SF_CHECK(indexing::all_hold(op, logical_and(isfinite(from), isfinite(to))), op,
             ": input must be finite where min and max do not give the range");
    Tensor one = to_dtype(eq(from, to), wide);
    from = from - one, to = to + one;
  }
  x = contiguous(x);
  Tensor parts = counts.narrow(0, 0, bins);
  CountParts c{parts, x, from, to};
  if (auto counter = count_parts.find(x.device(), c)) {
    counter(c);
    return to_dtype(parts, input.dtype());
  }
  Tensor outside = logical_not(logical_and(ge(x, from), le(x, to)));
  Tensor place = masked_fill((x - from) / (to - from) * double(bins), outside, 0.0);
  Tensor bin = where(outside, wrapped(bins), clamp(to_dtype(place, kInt64), {}, bins - 1));
  counts = index_add(counts, 0, bin, ones(bin.shape(), kInt64, x.device()));
  return to_dtype(counts.narrow(0, 0, bins), input.dtype());
}

SF_OP(bincount, "input, weights=None, minlength=0")
    .doc("How often (or with what sum of weights) each number from 0 on is in input[n], at least minlength of them.")
    .no_gradient()
    .kernels(count_numbers, put_kernel);
SF_OP(histc, "input, bins=100, min=0, max=0")
    .doc(
        "How many elements fall into each of bins equal parts of [min, max], or of input's range where both are equal.")
    .no_gradient()
    .kernels(count_parts, put_kernel);

}  // namespace sf
