// searchsorted, bucketize and isin.
#include "scaffolding/ops/search/search.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/reduce/reduce.h"
#include "scaffolding/ops/search/kernel.h"
#include "scaffolding/ops/sort/kernel.h"
#include "scaffolding/ops/sort/sort.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<SearchSorted> searchsorted_kernel{"searchsorted"};

namespace {

void check_ordered(const char* op, const char* name, const Tensor& t) {
  check_defined(op, name, t);
  SF_CHECK_AS(TypeError, !is_float8(t.dtype()), op, ": ", t.dtype(), " is storage only; convert it to compute");
}

// sequence[..., n] and values[..., m] with the same leading sizes, or sequence[n].
Tensor places(const char* op, const Tensor& sequence, const Tensor& values, const Tensor& sorter, bool right,
              bool out_int32) {
  autograd::NoGrad off;
  int64_t n = sequence.shape().back(), last = sequence.ndim() - 1;
  SF_CHECK(!out_int32 || n <= INT32_MAX, op, ": ", n, " places do not fit into int32");
  bool shared = sequence.ndim() == 1;
  if (!shared) {
    SF_CHECK(values.ndim() == sequence.ndim(), op, ": input must have the leading dimensions of the sequence ",
             sequence.shape(), ", got ", values.shape());
    for (int64_t d = 0; d < last; ++d)
      SF_CHECK(values.shape()[d] == sequence.shape()[d], op,
               ": input must have the leading dimensions of the sequence ", sequence.shape(), ", got ", values.shape());
  }
  DType t = values.impl()->is_scalar ? result_type(sequence, values) : sequence.dtype();
  Tensor v = to_dtype(values, t);
  if (v.device() != sequence.device())  // a number, written by a kernel: a copy would wait for the device
    v = full({}, is_floating(t) ? Scalar(v.item()) : Scalar(v.item_int()), t, sequence.device());
  Tensor y = empty(values.shape(), kInt64, sequence.device());
  if (y.numel() > 0) {
    int64_t m = shared ? y.numel() : y.shape().back(), rows = y.numel() / m;
    auto as_rows = [](const Tensor& x, int64_t r, int64_t columns) { return contiguous(x).reshape({r, columns}); };
    Tensor found = y.reshape({rows, m}), wanted = as_rows(v, rows, m), in = as_rows(to_dtype(sequence, t), rows, n),
           order = sorter ? as_rows(sorter, rows, n) : Tensor();
    SearchSorted s{found, wanted, in, order ? TensorView(order) : TensorView{}, right};
    auto kernel = searchsorted_kernel.find(y.device(), s);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", t, " on ", y.device(), "; move the tensors to the CPU");
    kernel(s);
  }
  return out_int32 ? to_dtype(y, kInt32) : y;
}

void check_dtypes(const char* op, const Tensor& sequence, const Tensor& values) {
  if (values.impl()->is_scalar) return;
  SF_CHECK_AS(TypeError, values.dtype() == sequence.dtype(), op, ": input must have the dtype of the sequence, ",
              sequence.dtype(), ", got ", values.dtype());
  check_same_device(op, sequence, values);
}

constexpr int64_t kFew = 16;  // so many are compared one by one

}  // namespace

Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& input, bool out_int32, bool right,
                    const std::optional<std::string>& side, const Tensor& sorter) {
  const char* op = "searchsorted";
  check_ordered(op, "sorted_sequence", sorted_sequence);
  check_ordered(op, "input", input);
  SF_CHECK(!side || *side == "left" || *side == "right", op, ": side must be 'left' or 'right', got '",
           side.value_or(""), "'");
  SF_CHECK(!side || !right || *side == "right", op, ": side and right disagree: side 'left' with right=True");
  SF_CHECK(sorted_sequence.ndim() > 0, op, ": sorted_sequence must have a dimension");
  SF_CHECK(input.ndim() > 0 || sorted_sequence.ndim() == 1, op,
           ": a number is looked up in a sequence of one dimension, got ", sorted_sequence.shape());
  check_dtypes(op, sorted_sequence, input);
  if (sorter) {
    SF_CHECK_AS(TypeError, sorter.dtype() == kInt64, op, ": sorter must be int64, got ", sorter.dtype());
    check_shape(op, "sorter", sorter, sorted_sequence.shape());
    check_same_device(op, sorted_sequence, sorter);
    indexing::check_range(op, sorter, 0, sorted_sequence.shape().back(), sorted_sequence.ndim() - 1);
  }
  return places(op, sorted_sequence, input, sorter, right || (side && *side == "right"), out_int32);
}

Tensor bucketize(const Tensor& input, const Tensor& boundaries, bool out_int32, bool right) {
  const char* op = "bucketize";
  check_ordered(op, "input", input);
  check_ordered(op, "boundaries", boundaries);
  SF_CHECK(boundaries.ndim() == 1, op, ": boundaries must have one dimension, got ", boundaries.shape());
  check_dtypes(op, boundaries, input);
  return places(op, boundaries, input, {}, right, out_int32);
}

Tensor isin(const Tensor& elements, const Tensor& test_elements, bool, bool invert) {
  check_ordered("isin", "elements", elements);
  check_ordered("isin", "test_elements", test_elements);
  autograd::NoGrad off;
  Tensor tests = test_elements.reshape({-1}), found;
  int64_t n = tests.numel();
  if (n == 0) {
    found = full(elements.shape(), false, kBool, elements.device());
  } else if (n <= kFew) {
    for (int64_t i = 0; i < n; ++i) {
      Tensor test = tests.select(0, i);
      test.impl()->is_scalar = test_elements.impl()->is_scalar;
      Tensor one = eq(elements, test);
      found = found ? logical_or(found, one) : one;
    }
  } else {
    check_same_device("isin", elements, test_elements);
    DType t = result_type(elements, tests);
    Tensor in_order = std::get<0>(sort(to_dtype(tests, t))), wanted = to_dtype(elements, t);
    Tensor place = clamp(places("isin", in_order, wanted, {}, false, false), {}, n - 1);
    found = eq(index_select(in_order, 0, place.reshape({-1})).reshape(elements.shape()), wanted);
  }
  return invert ? logical_not(found) : found;
}

SF_OP(searchsorted, "sorted_sequence, input, out_int32=False, right=False, side=None, sorter=None")
    .doc(
        "The first place of sorted_sequence[..., n] whose element is not below (right: is above) each of input[..., "
        "m].")
    .like("torch.searchsorted(sorted_sequence, input, out_int32=out_int32, right=right, side=side, sorter=sorter)")
    .no_gradient()
    .kernels(searchsorted_kernel);
SF_OP(bucketize, "input, boundaries, out_int32=False, right=False")
    .doc("Which of the buckets between boundaries[n], sorted, each element falls into.")
    .like("torch.bucketize(input, boundaries, out_int32=out_int32, right=right)")
    .no_gradient()
    .kernels(searchsorted_kernel);
SF_OP(isin, "elements, test_elements, assume_unique=False, invert=False")
    .doc("Whether each of elements is (invert: is not) one of test_elements.")
    .like("torch.isin(elements, test_elements, assume_unique=assume_unique, invert=invert)")
    .no_gradient()
    .kernels(searchsorted_kernel, sort_kernel);

}  // namespace sf
