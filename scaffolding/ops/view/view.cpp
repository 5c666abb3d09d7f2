#include "scaffolding/ops/view/view.h"

#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/op.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/factory/factory.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf {

namespace {

// A tensor over x's storage with the given geometry, not yet on the tape.
Tensor alias(const Tensor& x, const Shape& sizes, const Shape& strides, int64_t offset) {
  Tensor y = Tensor::strided(x.storage(), sizes, strides, offset, x.dtype());
  autograd::mark_view(y, x);
  return y;
}

// Fills in one -1 and checks the number of elements.
Shape resolved(const char* op, const Shape& shape, int64_t count) {
  Shape out = shape;
  int64_t unknown = -1, product = 1;
  for (int64_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      SF_CHECK(unknown < 0, op, ": only one size may be -1, got ", shape);
      unknown = i;
    } else {
      SF_CHECK(shape[i] >= 0, op, ": sizes must not be negative, got ", shape);
      SF_CHECK(!__builtin_mul_overflow(product, shape[i], &product), op, ": shape ", shape, " is too large");
    }
  }
  if (unknown >= 0) {
    SF_CHECK(product > 0 && count % product == 0, op, ": shape ", shape, " is invalid for ", count, " elements");
    out[unknown] = count / product;
    product *= out[unknown];
  }
  SF_CHECK(product == count, op, ": shape ", shape, " is invalid for ", count, " elements");
  return out;
}

// Strides that show the same elements in another shape, if there are any.
bool view_strides(const Tensor& x, const Shape& shape, Shape& out) {
  out = contiguous_strides(shape);
  if (x.numel() == 0 || x.is_contiguous()) return true;
  int64_t to = shape.size() - 1, chunk = 1, chunk_stride = x.ndim() ? x.strides().back() : 1, filled = 1;
  for (int64_t from = x.ndim() - 1; from >= 0; --from) {
    chunk *= x.shape()[from];
    bool ends = from == 0 || (x.shape()[from - 1] != 1 && x.strides()[from - 1] != chunk * chunk_stride);
    if (!ends) continue;
    while (to >= 0 && (filled < chunk || shape[to] == 1)) {
      out[to] = filled * chunk_stride;
      filled *= shape[to];
      --to;
    }
    if (filled != chunk) return false;
    if (from > 0) {
      chunk_stride = x.strides()[from - 1];
      chunk = filled = 1;
    }
  }
  return to == -1;
}

}  // namespace

Tensor view(const Tensor& x, const Shape& shape) {
  check_defined("view", "input", x);
  Shape to = resolved("view", shape, x.numel()), strides;
  SF_CHECK(view_strides(x, to, strides), "view: a tensor of shape ", x.shape(), " and strides ", x.strides(),
           " cannot be seen as ", to, " without a copy; use reshape");
  return autograd::record("view", alias(x, to, strides, x.storage_offset()), {x},
                          [from = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, from)}; });
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", "input", x);
  Shape to = resolved("reshape", shape, x.numel()), strides;
  if (!view_strides(x, to, strides)) return view(contiguous(x), to);
  return autograd::record("reshape", alias(x, to, strides, x.storage_offset()), {x},
                          [from = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, from)}; });
}

Tensor permute(const Tensor& x, const Shape& dims) {
  check_defined("permute", "input", x);
  SF_CHECK(dims.size() == x.ndim(), "permute: needs one entry per dimension of ", x.shape(), ", got dims ", dims);
  Shape order = x.ndim() ? wrap_dims("permute", dims, x.ndim()) : Shape{}, sizes, strides, back = order;
  for (int64_t i = 0; i < order.size(); ++i) {
    sizes.push_back(x.shape()[order[i]]);
    strides.push_back(x.strides()[order[i]]);
    back[order[i]] = i;
  }
  return autograd::record("permute", alias(x, sizes, strides, x.storage_offset()), {x},
                          [back](const Tensor& dy) -> Tensors { return {permute(dy, back)}; });
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  check_defined("transpose", "input", x);
  int64_t a = wrap_dim("transpose", dim0, x.ndim()), b = wrap_dim("transpose", dim1, x.ndim());
  Shape sizes = x.shape(), strides = x.strides();
  if (x.ndim() > 0) {
    std::swap(sizes[a], sizes[b]);
    std::swap(strides[a], strides[b]);
  }
  return autograd::record("transpose", alias(x, sizes, strides, x.storage_offset()), {x},
                          [a, b](const Tensor& dy) -> Tensors { return {transpose(dy, a, b)}; });
}

Tensor expand(const Tensor& x, const Shape& size) {
  check_defined("expand", "input", x);
  SF_CHECK(size.size() >= x.ndim(), "expand: needs at least ", x.ndim(), " sizes for ", x.shape(), ", got ", size);
  int64_t lead = size.size() - x.ndim();
  Shape sizes = size, strides = Shape::filled(size.size(), 0);
  for (int64_t i = 0; i < size.size(); ++i) {
    int64_t have = i < lead ? 1 : x.shape()[i - lead];
    if (size[i] == -1) {
      SF_CHECK(i >= lead, "expand: -1 cannot stand for a new leading dimension, got ", size);
      sizes[i] = have;
    }
    SF_CHECK(sizes[i] >= 0 && (have == sizes[i] || have == 1), "expand: ", x.shape(), " does not expand to ", size);
    if (i >= lead && have == sizes[i]) strides[i] = x.strides()[i - lead];
  }
  (void)numel(sizes);  // overflow
  return autograd::record("expand", alias(x, sizes, strides, x.storage_offset()), {x},
                          [from = x.shape()](const Tensor& dy) -> Tensors { return {sum_to(dy, from)}; });
}

Tensor expand_as(const Tensor& x, const Tensor& other) {
  check_defined("expand_as", "other", other);
  return expand(x, other.shape());
}

// The gradient of a view that shows part of x: zeros with dy in that part.
static Tensor scatter_region(const Tensor& dy, const Shape& full, const std::function<Tensor(const Tensor&)>& part) {
  Tensor dx = zeros(full, dy.dtype(), dy.device());
  part(dx).copy_(dy);
  return dx;
}

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end, int64_t step) {
  check_defined("slice", "input", x);
  SF_CHECK(x.ndim() > 0, "slice: a 0-d tensor cannot be sliced");
  SF_CHECK(step > 0, "slice: step must be positive, got ", step);
  int64_t d = wrap_dim("slice", dim, x.ndim()), n = x.shape()[d];
  auto clamp = [n](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  int64_t b = start ? clamp(*start) : 0, e = end ? clamp(*end) : n;
  Shape sizes = x.shape(), strides = x.strides();
  sizes[d] = e > b ? (e - b - 1) / step + 1 : 0;
  strides[d] *= sizes[d] > 1 ? step : 1;
  return autograd::record("slice", alias(x, sizes, strides, x.storage_offset() + (sizes[d] ? b * x.strides()[d] : 0)),
                          {x}, [full = x.shape(), d, b, e, step](const Tensor& dy) -> Tensors {
                            return {scatter_region(dy, full, [&](const Tensor& t) { return slice(t, d, b, e, step); })};
                          });
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_defined("narrow", "input", x);
  int64_t d = wrap_dim("narrow", dim, x.ndim());
  SF_CHECK(x.ndim() > 0, "narrow: a 0-d tensor has no dimension to narrow");
  int64_t n = x.shape()[d], b = start < 0 ? start + n : start;
  SF_CHECK_AS(IndexError, b >= 0 && length >= 0 && b <= n && length <= n - b, "narrow: start=", start,
              " and length=", length, " leave dimension ", d, " of ", x.shape());
  return slice(x, d, b, b + length, 1);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_defined("select", "input", x);
  SF_CHECK_AS(IndexError, x.ndim() > 0, "select: a 0-d tensor cannot be indexed");
  int64_t d = wrap_dim("select", dim, x.ndim()), n = x.shape()[d];
  SF_CHECK_AS(IndexError, index >= -n && index < n, "select: index ", index, " is out of range for dimension ", d,
              " of ", x.shape());
  int64_t i = index < 0 ? index + n : index;
  Shape sizes = x.shape(), strides = x.strides();
  sizes.erase(d);
  strides.erase(d);
  return autograd::record("select", alias(x, sizes, strides, x.storage_offset() + i * x.strides()[d]), {x},
                          [full = x.shape(), d, i](const Tensor& dy) -> Tensors {
                            return {scatter_region(dy, full, [&](const Tensor& t) { return select(t, d, i); })};
                          });
}

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_defined("unsqueeze", "input", x);
  int64_t d = wrap_dim("unsqueeze", dim, x.ndim() + 1);
  Shape sizes = x.shape(), strides = x.strides();
  sizes.insert(d, 1);
  strides.insert(d, d < x.ndim() ? x.strides()[d] * std::max<int64_t>(x.shape()[d], 1) : 1);
  return autograd::record("unsqueeze", alias(x, sizes, strides, x.storage_offset()), {x},
                          [from = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, from)}; });
}

Tensor squeeze(const Tensor& x, const Shape& dim) {
  check_defined("squeeze", "input", x);
  Shape dims = wrap_dims("squeeze", dim, x.ndim()), sizes, strides;
  for (int64_t i = 0; i < x.ndim(); ++i)
    if (x.shape()[i] != 1 || !dims.contains(i)) {
      sizes.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
  return autograd::record("squeeze", alias(x, sizes, strides, x.storage_offset()), {x},
                          [from = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, from)}; });
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  check_defined("flatten", "input", x);
  int64_t a = wrap_dim("flatten", start_dim, x.ndim()), b = wrap_dim("flatten", end_dim, x.ndim());
  SF_CHECK(a <= b, "flatten: start_dim must not come after end_dim, got ", start_dim, " and ", end_dim);
  if (x.ndim() == 0) return reshape(x, {1});
  Shape to;
  int64_t joined = 1;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    if (i < a || i > b) {
      to.push_back(x.shape()[i]);
    } else {
      joined *= x.shape()[i];
      if (i == b) to.push_back(joined);
    }
  }
  return reshape(x, to);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Shape& sizes) {
  check_defined("unflatten", "input", x);
  SF_CHECK(x.ndim() > 0, "unflatten: a 0-d tensor has no dimension to split");
  int64_t d = wrap_dim("unflatten", dim, x.ndim());
  Shape part = resolved("unflatten", sizes, x.shape()[d]), to;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    if (i != d) to.push_back(x.shape()[i]);
    else
      for (auto s : part) to.push_back(s);
  }
  return reshape(x, to);
}

// No two elements share a place: by growing stride, each dimension steps over everything that the smaller ones reach.
static bool may_overlap(const Shape& size, const Shape& stride) {
  int64_t order[kMaxDims], n = 0, reach = 0;
  for (int64_t i = 0; i < size.size(); ++i) {
    if (size[i] <= 1) continue;
    int64_t k = n++;
    for (; k > 0 && stride[order[k - 1]] > stride[i]; --k) order[k] = order[k - 1];
    order[k] = i;
  }
  for (int64_t k = 0; k < n; ++k) {
    if (stride[order[k]] <= reach) return true;
    reach += (size[order[k]] - 1) * stride[order[k]];
  }
  return false;
}

// Where each element lies in the storage, [numel(size)] of int64.
static Tensor storage_positions(const Shape& size, const Shape& stride, int64_t offset, Device device) {
  Tensor at = full({}, offset, kInt64, device);
  for (int64_t i = 0; i < size.size(); ++i) at = at.unsqueeze(-1) + arange(0, size[i], 1, kInt64, device) * stride[i];
  return at.reshape({-1});
}

Tensor as_strided(const Tensor& x, const Shape& size, const Shape& stride, std::optional<int64_t> storage_offset) {
  check_defined("as_strided", "input", x);
  SF_CHECK(size.size() == stride.size(), "as_strided: size ", size, " and stride ", stride, " differ in length");
  int64_t offset = storage_offset.value_or(x.storage_offset()), last = offset;
  SF_CHECK(offset >= 0, "as_strided: storage_offset must not be negative, got ", offset);
  for (int64_t i = 0; i < size.size(); ++i) {
    SF_CHECK(stride[i] >= 0 && size[i] >= 0, "as_strided: sizes and strides must not be negative, got ", size, " and ",
             stride);
    int64_t step;
    SF_CHECK(!__builtin_mul_overflow(std::max<int64_t>(size[i] - 1, 0), stride[i], &step) &&
                 !__builtin_add_overflow(last, step, &last),
             "as_strided: ", size, " with strides ", stride, " is too large");
  }
  int64_t places = int64_t(x.storage()->bytes / x.itemsize()), from = x.storage_offset();
  SF_CHECK(numel(size) == 0 || last < places, "as_strided: ", size, " with strides ", stride, " and offset ", offset,
           " reaches past the storage of ", x.storage()->bytes, " bytes");
  Tensor y = alias(x, size, stride, offset);
  if (may_overlap(x.shape(), x.strides()))
    autograd::refuse_gradient("as_strided of a tensor with overlapping elements", {x});
  bool inside = x.is_contiguous() && offset >= from && last < from + x.numel();
  if (!autograd::any_requires_grad({x}) || (inside && !may_overlap(size, stride)))
    return autograd::record("as_strided", y, {x},
                            [sizes = x.shape(), size, stride, at = offset - from](const Tensor& dy) -> Tensors {
                              Tensor dx = zeros(sizes, dy.dtype(), dy.device());
                              as_strided(dx, size, stride, at).copy_(dy);
                              return {dx};
                            });
  // Elements of y that share a place add up; those that lie outside x are nobody's.
  return autograd::record(
      "as_strided", y, {x},
      [sizes = x.shape(), strides = x.strides(), from, places, size, stride, offset](const Tensor& dy) -> Tensors {
        Tensor at = storage_positions(size, stride, offset, dy.device());
        Tensor all = index_add(zeros({places}, dy.dtype(), dy.device()), 0, at, dy.reshape({-1}));
        return {all.as_strided(sizes, strides, from)};
      });
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_defined("diagonal", "input", x);
  int64_t a = wrap_dim("diagonal", dim1, x.ndim()), b = wrap_dim("diagonal", dim2, x.ndim());
  SF_CHECK(a != b && x.ndim() >= 2, "diagonal: needs two different dimensions of ", x.shape(), ", got ", dim1, " and ",
           dim2);
  offset = std::max(offset, -INT64_MAX);  // beyond any dimension; INT64_MIN has no negative
  int64_t row = offset < 0 ? -offset : 0, column = offset > 0 ? offset : 0;
  int64_t length = std::max<int64_t>(0, std::min(x.shape()[a] - row, x.shape()[b] - column));
  Shape sizes, strides;
  for (int64_t i = 0; i < x.ndim(); ++i)
    if (i != a && i != b) {
      sizes.push_back(x.shape()[i]);
      strides.push_back(x.strides()[i]);
    }
  sizes.push_back(length);
  strides.push_back(x.strides()[a] + x.strides()[b]);
  int64_t start = x.storage_offset() + (length ? row * x.strides()[a] + column * x.strides()[b] : 0);
  return autograd::record(
      "diagonal", alias(x, sizes, strides, start), {x}, [full = x.shape(), offset, a, b](const Tensor& dy) -> Tensors {
        return {scatter_region(dy, full, [&](const Tensor& t) { return diagonal(t, offset, a, b); })};
      });
}

Tensor movedim(const Tensor& x, const Shape& source, const Shape& destination) {
  check_defined("movedim", "input", x);
  SF_CHECK(source.size() == destination.size() && !source.empty(),
           "movedim: source and destination must have the same length, got ", source, " and ", destination);
  Shape from = wrap_dims("movedim", source, x.ndim()), to = wrap_dims("movedim", destination, x.ndim()),
        order = Shape::filled(x.ndim(), -1);
  for (int64_t i = 0; i < from.size(); ++i) order[to[i]] = from[i];
  int64_t next = 0;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    if (order[i] >= 0) continue;
    while (from.contains(next)) ++next;
    order[i] = next++;
  }
  return permute(x, order);
}

// A list of views costs some hundred bytes per entry, whatever the tensor holds: a meta tensor could ask for 2^40.
static void check_pieces(const char* op, int64_t pieces) {
  constexpr int64_t most = 1 << 20;
  SF_CHECK(pieces <= most, op, ": makes at most ", most, " tensors, got a call for ", pieces);
}

Tensors split(const Tensor& x, const Shape& sections, int64_t dim) {
  check_defined("split", "input", x);
  SF_CHECK(x.ndim() > 0 && !sections.empty(), "split: needs a dimension and a size");
  int64_t d = wrap_dim("split", dim, x.ndim()), n = x.shape()[d];
  Tensors out;
  if (sections.size() == 1 && sections[0] != n) {
    SF_CHECK(sections[0] > 0, "split: split_size must be positive, got ", sections[0]);
    check_pieces("split", n / sections[0]);
    if (sections[0] > n) return {slice(x, d, 0, n, 1)};
    for (int64_t at = 0; at < n; at += sections[0]) out.push_back(slice(x, d, at, std::min(n, at + sections[0]), 1));
    return out;
  }
  int64_t total = 0;
  for (auto s : sections) {
    SF_CHECK(s >= 0, "split: sizes must not be negative, got ", sections);
    total = s <= n - total ? total + s : n + 1;  // past n it is wrong already, and must not overflow
  }
  SF_CHECK(total == n, "split: sizes ", sections, " must add up to ", n, ", the size of dimension ", d, " of ",
           x.shape());
  int64_t at = 0;
  for (auto s : sections) {
    out.push_back(slice(x, d, at, at + s, 1));
    at += s;
  }
  return out;
}

Tensors chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check_defined("chunk", "input", x);
  SF_CHECK(chunks > 0, "chunk: chunks must be positive, got ", chunks);
  SF_CHECK(x.ndim() > 0, "chunk: a 0-d tensor cannot be split");
  int64_t n = x.shape()[wrap_dim("chunk", dim, x.ndim())];
  if (n == 0) return split(x, Shape::filled(chunks, 0), dim);
  return split(x, {n / chunks + (n % chunks != 0)}, dim);
}

Tensors unbind(const Tensor& x, int64_t dim) {
  check_defined("unbind", "input", x);
  SF_CHECK(x.ndim() > 0, "unbind: a 0-d tensor cannot be split");
  int64_t d = wrap_dim("unbind", dim, x.ndim());
  check_pieces("unbind", x.shape()[d]);
  Tensors out;
  for (int64_t i = 0; i < x.shape()[d]; ++i) out.push_back(select(x, d, i));
  return out;
}

Tensor sum_to(const Tensor& grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  Shape dims;
  int64_t lead = grad.ndim() - shape.size();
  for (int64_t i = 0; i < grad.ndim(); ++i)
    if (i < lead || (shape[i - lead] == 1 && grad.shape()[i] != 1)) dims.push_back(i);
  return reshape(dims.empty() ? grad : grad.sum(dims, true), shape);
}

Tensor Tensor::reshape(const Shape& s) const { return sf::reshape(*this, s); }
Tensor Tensor::view(const Shape& s) const { return sf::view(*this, s); }
Tensor Tensor::permute(const Shape& d) const { return sf::permute(*this, d); }
Tensor Tensor::transpose(int64_t a, int64_t b) const { return sf::transpose(*this, a, b); }
Tensor Tensor::expand(const Shape& s) const { return sf::expand(*this, s); }
Tensor Tensor::slice(int64_t d, std::optional<int64_t> b, std::optional<int64_t> e, int64_t step) const {
  return sf::slice(*this, d, b, e, step);
}
Tensor Tensor::narrow(int64_t d, int64_t b, int64_t n) const { return sf::narrow(*this, d, b, n); }
Tensor Tensor::select(int64_t d, int64_t i) const { return sf::select(*this, d, i); }
Tensor Tensor::unsqueeze(int64_t d) const { return sf::unsqueeze(*this, d); }
Tensor Tensor::squeeze(std::optional<int64_t> d) const { return sf::squeeze(*this, d ? Shape{*d} : Shape{}); }
Tensor Tensor::flatten(int64_t a, int64_t b) const { return sf::flatten(*this, a, b); }
Tensor Tensor::as_strided(const Shape& s, const Shape& st, std::optional<int64_t> o) const {
  return sf::as_strided(*this, s, st, o);
}
Tensors Tensor::chunk(int64_t n, int64_t d) const { return sf::chunk(*this, n, d); }
Tensors Tensor::split(const Shape& s, int64_t d) const { return sf::split(*this, s, d); }
Tensors Tensor::unbind(int64_t d) const { return sf::unbind(*this, d); }

SF_OP(reshape, "input, shape")
    .doc("input in another shape: a view where strides allow, else a copy. One size may be -1.");
SF_OP(view, "input, size")
    .doc("input in another shape, sharing its storage; an error where that needs a copy.")
    .like("input.view(size)");
SF_OP(permute, "input, dims").doc("Dimensions in another order, as a view.");
SF_OP(transpose, "input, dim0, dim1").doc("Two dimensions swapped, as a view.");
SF_OP(expand, "input, size")
    .doc("Dimensions of size 1 repeated without a copy; -1 keeps a size.")
    .like("input.expand(size)");
SF_OP(expand_as, "input, other").doc("input expanded to other's shape.").like("input.expand_as(other)");
SF_OP(slice, "input, dim=0, start=None, end=None, step=1")
    .doc("input[start:end:step] along dim, as a view.")
    .like("torch.ops.aten.slice(input, dim, start, end, step)");
SF_OP(narrow, "input, dim, start, length").doc("length entries of dim from start, as a view.");
SF_OP(select, "input, dim, index").doc("One entry of dim, as a view without that dimension.");
SF_OP(unsqueeze, "input, dim").doc("A new dimension of size 1 at dim, as a view.");
SF_OP(squeeze, "input, dim=None")
    .doc("Without dimensions of size 1 (all, or those in dim), as a view.")
    .like("torch.squeeze(input) if dim is None else torch.squeeze(input, dim)");
SF_OP(flatten, "input, start_dim=0, end_dim=-1").doc("Dimensions start_dim..end_dim joined into one.");
SF_OP(unflatten, "input, dim, sizes").doc("Dimension dim split into sizes.").like("torch.unflatten(input, dim, sizes)");
SF_OP(as_strided, "input, size, stride, storage_offset=None")
    .doc("Any geometry over input's storage; reaches outside it are refused.");
SF_OP(diagonal, "input, offset=0, dim1=0, dim2=1")
    .doc("The diagonal of two dimensions, as a view with that dimension last.");
SF_OP(movedim, "input, source, destination").doc("Dimensions moved to new places, the others in their order.");
SF_OP(chunk, "input, chunks, dim=0").doc("About equal pieces along dim, as views.");
SF_OP(split, "input, split_size_or_sections, dim=0")
    .doc("Pieces of a size, or of the sizes in a list, along dim, as views.")
    .like(
        "torch.split(input, split_size_or_sections[0] if len(split_size_or_sections) == 1 else split_size_or_sections, "
        "dim)");
SF_OP(unbind, "input, dim=0").doc("The entries of dim, as views without that dimension.");

}  // namespace sf
