// Advanced indexing: index tensors are turned into offsets into memory, which one kernel reads or writes.
#include "scaffolding/ops/index/index.h"

#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index_internal.h"
#include "scaffolding/ops/index/kernel.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf {

constinit KernelTable<Positions> positions_kernel{"index_positions"};
constinit KernelTable<Take> take_kernel{"index_take"};
constinit KernelTable<Put> put_kernel{"index_put"};

namespace {

bool is_mask(const Tensor& t) { return t.dtype() == kBool || t.dtype() == kUInt8; }

// Whether dimensions first .. last - 1 of x are one, as memory lies.
bool merges(const Tensor& x, int64_t first, int64_t last) {
  for (int64_t d = first; d + 1 < last; ++d)
    if (x.strides()[d] != x.strides()[d + 1] * x.shape()[d + 1]) return false;
  return true;
}

// One entry per dimension of x, each empty or int64 on x's device.
// Masks become the positions of their nonzero elements; x then has their dimensions as one where it can.
// A 0-d mask indexes a new dimension of size 1, which x then has.
Tensors positions_per_dim(const char* op, Tensor& x, const Tensors& indices) {
  Tensors out;
  bool any = false;
  for (auto& t : indices) {
    int64_t d = int64_t(out.size());
    if (!t) {
      out.emplace_back();
    } else if (is_mask(t)) {
      if (t.ndim() == 0) {
        SF_CHECK_AS(RuntimeError, !t.device().is_meta(), op,
                    ": a mask on the meta device has no values, and the shape depends on them");
        SF_CHECK_AS(IndexError, d <= x.ndim(), op, ": too many indices for a tensor of shape ", x.shape());
        x = x.unsqueeze(d);
        out.push_back(zeros({t.item() != 0}, kInt64, x.device()));
      } else {
        SF_CHECK_AS(IndexError, d + t.ndim() <= x.ndim(), op, ": too many indices for a tensor of shape ", x.shape());
        for (int64_t i = 0; i < t.ndim(); ++i)
          SF_CHECK_AS(IndexError, t.shape()[i] == x.shape()[d + i], op, ": the mask of shape ", t.shape(),
                      " does not match ", x.shape(), " at dimension ", d + i);
        Tensor mask = t;
        if (mask.ndim() > 1 && merges(x, d, d + mask.ndim())) {  // then one position names an element
          x = x.flatten(d, d + mask.ndim() - 1);
          mask = mask.flatten();
        }
        Tensor where = to_device(nonzero(mask), x.device());
        for (int64_t i = 0; i < mask.ndim(); ++i) out.push_back(where.select(1, i));
      }
      any = true;
    } else {
      out.push_back(indexing::as_positions(op, "an index", t, x.device()));
      any = true;
    }
    SF_CHECK_AS(IndexError, int64_t(out.size()) <= x.ndim(), op, ": too many indices for a tensor of shape ",
                x.shape());
  }
  SF_CHECK_AS(IndexError, any, op, ": needs at least one index tensor");
  out.resize(size_t(x.ndim()));
  return out;
}

struct Plan {
  Shape before, points, after;  // the result is before + points + after
  Shape before_strides, after_strides;
  Tensor offset;  // [numel(points)] elements from x's first
  Shape result() const { return joined(points); }
  Shape flat() const { return joined({numel(points)}); }  // the points in one dimension, at before.size()
  Shape joined(const Shape& middle) const {
    Shape s = before;
    for (auto n : middle) s.push_back(n);
    for (auto n : after) s.push_back(n);
    return s;
  }
  // x's memory in the flat shape: stride 0 at the points, whose offsets are added.
  TensorView memory(const Tensor& x) const {
    TensorView v = x;
    Shape sizes = flat(), strides = before_strides;
    strides.push_back(0);
    for (auto n : after_strides) strides.push_back(n);
    v.ndim = int32_t(sizes.size());
    std::copy(sizes.begin(), sizes.end(), v.sizes);
    std::copy(strides.begin(), strides.end(), v.strides);
    return v;
  }
};

Plan plan(const char* op, const Tensor& x, const Tensors& positions) {
  Plan p;
  int64_t first = -1, last = -1, count = 0;
  for (int64_t d = 0; d < x.ndim(); ++d)
    if (const Tensor& t = positions[size_t(d)]) {
      if (first < 0) first = d;
      last = d;
      ++count;
      p.points = broadcast_shapes(op, p.points, t.shape());
    }
  bool neighbours = last - first + 1 == count;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (positions[size_t(d)]) continue;
    bool lead = neighbours && d < first;
    (lead ? p.before : p.after).push_back(x.shape()[d]);
    (lead ? p.before_strides : p.after_strides).push_back(x.strides()[d]);
  }
  SF_CHECK(p.before.size() + p.after.size() + std::max<int64_t>(p.points.size(), 1) <= kMaxDims, op,
           ": the result has more than ", kMaxDims, " dimensions");
  (void)numel(p.result());  // overflow
  autograd::NoGrad off;
  p.offset = zeros({numel(p.points)}, kInt64, x.device());
  for (int64_t d = 0; d < x.ndim(); ++d) {
    const Tensor& t = positions[size_t(d)];
    if (!t) continue;
    int64_t n = x.shape()[d];
    int64_t bad = 0;
    bool found = false;
    Positions k{t.expand(p.points),
                -n,
                n,
                x.strides()[d],
                x.device().is_meta() ? nullptr : p.offset.data<int64_t>(),
                &bad,
                &found,
                op,
                d};
    auto kernel = positions_kernel.find(x.device(), k);
    SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", x.device());
    kernel(k);
    SF_CHECK_AS(IndexError, !found, op, ": index ", bad, " is out of range for dimension ", d, " of size ", n);
  }
  return p;
}

Tensor index_at(const Tensor& x, const Tensors& positions);

void put_at(const char* op, const Tensor& out, const Tensors& positions, const Tensor& values, bool accumulate) {
  Plan p = plan(op, out, positions);
  autograd::NoGrad off;
  Shape result = p.result();
  Tensor v = values;
  while (v.ndim() > result.size() && v.shape()[0] == 1) v = v.squeeze(0);
  SF_CHECK(broadcast_shapes(op, v.shape(), result) == result, op, ": values of shape ", values.shape(),
           " do not broadcast to ", result);
  if (numel(result) == 0) return;
  if (v.storage() == out.storage()) v = clone(v);
  Tensor src = v.numel() == 1         ? v.reshape({}).expand(p.flat())
               : p.points.size() == 1 ? v.expand(result)
                                      : v.expand(result).reshape(p.flat());
  Put k{p.memory(out), src,      int(p.before.size()), p.offset.data_ptr() ? p.offset.data<int64_t>() : nullptr,
        accumulate,    INT64_MAX};
  auto kernel = put_kernel.find(out.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", out.dtype(), " on ", out.device());
  kernel(k);
}

// Recorded forms over positions that are ready: index_at and put_recorded are each other's gradient.
Tensor put_recorded(const Tensor& x, const Tensors& positions, const Tensor& values, bool accumulate) {
  Tensor y;
  {
    autograd::NoGrad off;
    y = clone(x);
    put_at("index_put", y, positions, values, accumulate);
  }
  return autograd::record(
      "index_put", y, {x, values},
      [at = autograd::save(positions), accumulate, vs = values.shape()](const Tensor& dy) -> Tensors {
        Tensors positions;
        for (auto& t : at) positions.push_back(t.get());
        Tensor dx = accumulate ? dy : put_recorded(dy, positions, zeros({}, dy.dtype(), dy.device()), false);
        Tensor picked = index_at(dy, positions);
        int64_t extra = vs.size() - picked.ndim();  // leading ones of values
        Shape grown = Shape::filled(std::max<int64_t>(extra, 0), 1);
        for (auto n : picked.shape()) grown.push_back(n);
        return {dx, sum_to(extra > 0 ? picked.reshape(grown) : picked, vs)};
      });
}

Tensor index_at(const Tensor& x, const Tensors& positions) {
  Plan p = plan("index", x, positions);
  Tensor y = empty(p.result(), x.dtype(), x.device());
  if (y.numel() > 0) {
    autograd::NoGrad off;
    Shape shape = Shape::filled(p.before.size() + 1 + p.after.size(), 1);
    shape[p.before.size()] = p.offset.numel();
    Take t{y.view(p.flat()), p.memory(x), p.offset.view(shape).expand(p.flat()), 1, INT64_MAX};
    auto kernel = take_kernel.find(x.device(), t);
    SF_CHECK_AS(NotSupported, kernel, "index: no kernel on ", x.device());
    kernel(t);
  }
  return autograd::record("index", y, {x},
                          [at = autograd::save(positions), full = x.shape()](const Tensor& dy) -> Tensors {
                            Tensors positions;
                            for (auto& t : at) positions.push_back(t.get());
                            if (autograd::grad_enabled())
                              return {put_recorded(zeros(full, dy.dtype(), dy.device()), positions, dy, true)};
                            Tensor dx = zeros(full, dy.dtype(), dy.device());
                            put_at("index", dx, positions, dy, true);
                            return {dx};
                          });
}

Tensor values_like(const char* op, const Tensor& x, const Tensor& values) {
  check_defined(op, "values", values);
  SF_CHECK_AS(TypeError, values.dtype() == x.dtype() || values.impl()->is_scalar, op,
              ": values must have the tensor's dtype ", x.dtype(), ", got ", values.dtype());
  SF_CHECK_AS(TypeError, !is_floating(values.dtype()) || is_floating(x.dtype()), op, ": a ", x.dtype(),
              " tensor cannot hold ", values.dtype(), " values");
  SF_CHECK(values.device() == x.device() || values.numel() == 1, op, ": values are on ", values.device(),
           ", the tensor on ", x.device());
  return to_device(to_dtype(values, x.dtype()), x.device());
}

}  // namespace

Tensor index(const Tensor& input, const Tensors& indices) {
  check_defined("index", "input", input);
  Tensor x = input;
  Tensors positions = positions_per_dim("index", x, indices);
  return index_at(x, positions);
}

Tensor index_put(const Tensor& input, const Tensors& indices, const Tensor& values, bool accumulate) {
  SF_AUTOCAST(index_put, input, indices, values, accumulate);
  check_defined("index_put", "input", input);
  SF_CHECK_AS(TypeError, !accumulate || !is_float8(input.dtype()), "index_put: ", input.dtype(),
              " cannot be added; convert it first");
  Tensor x = input;
  Tensors positions = positions_per_dim("index_put", x, indices);
  return put_recorded(x, positions, values_like("index_put", x, values), accumulate).reshape(input.shape());
}

Tensor& index_put_(Tensor& self, const Tensors& indices, const Tensor& values, bool accumulate) {
  check_defined("index_put_", "self", self);
  check_defined("index_put_", "values", values);
  if (autograd::any_requires_grad({self, values}))
    return autograd::assign_inplace("index_put_", self, index_put(self, indices, values, accumulate));
  SF_CHECK_AS(TypeError, !accumulate || !is_float8(self.dtype()), "index_put_: ", self.dtype(),
              " cannot be added; convert it first");
  autograd::check_inplace("index_put_", self);
  Tensor x = self;
  Tensors positions = positions_per_dim("index_put_", x, indices);
  put_at("index_put_", x, positions, values_like("index_put_", x, values), accumulate);
  autograd::bump_version(self);
  return self;
}

// ---- shared with other ops

Tensor indexing::as_positions(const char* op, const char* name, const Tensor& index, const Device& device) {
  check_defined(op, name, index);
  SF_CHECK_AS(IndexError, is_integral(index.dtype()), op, ": ", name, " must be an integer tensor, got ",
              index.dtype());
  autograd::NoGrad off;
  return to_device(to_dtype(index, kInt64), device);
}

void indexing::check_range(const char* op, const Tensor& index, int64_t low, int64_t high, int64_t dim) {
  if (index.numel() == 0) return;
  TensorView v = index;
  for (int i = 0; i < v.ndim; ++i)
    if (v.strides[i] == 0) v.sizes[i] = 1;  // expanded: the same value again
  int64_t bad = 0;
  bool found = false;
  Positions k{v, low, high, 0, nullptr, &bad, &found, op, dim};
  auto kernel = positions_kernel.find(index.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", index.device());
  kernel(k);
  SF_CHECK_AS(IndexError, !found, op, ": index ", bad, " is out of range for dimension ", dim, " of size ", high);
}

bool indexing::all_hold(const char* op, const Tensor& ok) {
  int64_t value = 0;
  bool found = false;
  Tensor numbers = to_dtype(ok, kInt64);
  Positions k{numbers, 1, 2, 1, nullptr, &value, &found, op, -1, true};
  auto kernel = positions_kernel.find(ok.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel on ", ok.device());
  kernel(k);
  return !found;
}

void indexing::put_slices(const char* op, const Tensor& out, int64_t dim, const Tensor& position, const Tensor& src,
                          bool accumulate) {
  if (src.numel() == 0 || out.device().is_meta()) return;
  autograd::NoGrad off;
  Tensor offset = contiguous(
      out.strides()[dim] == 1 ? position
                              : where(lt(position, wrapped(0)), position, mul(position, wrapped(out.strides()[dim]))));
  Put k{out,        src,
        int(dim),   offset.data<int64_t>(),
        accumulate, out.shape()[dim] * std::max<int64_t>(out.strides()[dim], 1)};
  k.out.sizes[dim] = position.numel();
  k.out.strides[dim] = 0;
  auto kernel = put_kernel.find(out.device(), k);
  SF_CHECK_AS(NotSupported, kernel, op, ": no kernel for ", out.dtype(), " on ", out.device());
  kernel(k);
}

SF_OP(index, "input, indices")
    .doc("input[i, j, ...] for index tensors, masks and None (a whole dimension).")
    .like("torch.ops.aten.index(input, indices)")
    .kernels(take_kernel);
SF_OP(index_put, "input, indices, values, accumulate=False")
    .doc("input with values written (or added) at input[i, j, ...].")
    .like("torch.ops.aten.index_put(input, indices, values, accumulate)")
    .inplace()
    .kernels(put_kernel);

}  // namespace sf
