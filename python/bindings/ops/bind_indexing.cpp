// x[...] and x[...] = v. Ints, slices, None and Ellipsis are views; tensors, lists, arrays and masks go to ops/index.
// As in torch, an int takes its dimension away before advanced indices are applied.
#include <cmath>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/index/index.h"
#include "scaffolding/ops/pointwise/pointwise.h"
#include "scaffolding/ops/view/view.h"

namespace sf::py {

namespace {

// One entry of the index, ready to use.
struct Item {
  enum Kind { Int, Slice, None, Ellipsis, Advanced } kind;
  int64_t value = 0;                   // Int
  std::optional<int64_t> start, stop;  // Slice
  int64_t step = 1;
  Tensor tensor;         // Advanced: positions, or a mask
  int64_t consumed = 0;  // dimensions of x it stands for
};

std::optional<int64_t> bound(PyObject* o) {
  if (o == Py_None) return {};
  int64_t v;
  if (!to_int(o, v)) fail<TypeError>("index: a slice needs integers or None, got ", type_name(o));
  return v;
}

Item slice_item(PyObject* o) {
  const SliceParts s = slice_parts(o);
  Item item{Item::Slice};
  item.start = bound(s.start);
  item.stop = bound(s.stop);
  item.step = bound(s.step).value_or(1);
  SF_CHECK(item.step > 0, "index: the step of a slice must be positive, got ", item.step);
  item.consumed = 1;
  return item;
}

Item advanced_item(Tensor t) {
  SF_CHECK_AS(IndexError, !is_floating(t.dtype()), "index: tensors used as indices must hold integers or bools, got ",
              t.dtype());
  if (t.dtype() == kUInt8) t = to_dtype(t, kBool);  // bytes are masks, as in torch
  Item item{Item::Advanced};
  item.consumed = t.dtype() == kBool ? t.ndim() : 1;
  item.tensor = std::move(t);
  return item;
}

Tensor list_index(PyObject* o) {
  nb::object tensor_function = nb::module_::import_("scaffolding._core").attr("tensor");
  Tensor t = nb::cast<Tensor>(tensor_function(nb::handle(o)));
  return t.numel() == 0 && is_floating(t.dtype()) ? to_dtype(t, kInt64) : t;  // x[[]]
}

Item item_of(PyObject* o) {
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    Item item{Item::Int};
    if (!to_int(o, item.value)) throw_python_error();
    item.consumed = 1;
    return item;
  }
  if (PySlice_Check(o)) return slice_item(o);
  if (o == Py_None) return {Item::None};
  if (o == Py_Ellipsis) return {Item::Ellipsis};
  if (PyBool_Check(o)) return advanced_item(scalar_tensor(o == Py_True));
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.ndim() == 0 && !is_floating(t.dtype()) && t.dtype() != kBool) {
      Item item{Item::Int};
      item.value = t.item_int();
      item.consumed = 1;
      return item;
    }
    return advanced_item(t.detach());
  }
  if (is_numpy_array(o)) return advanced_item(clone(from_numpy(o)));
  if (is_numpy_scalar(o)) {
    Scalar s;
    if (to_scalar(o, s) && s.kind() == Scalar::Bool) return advanced_item(scalar_tensor(s));
  }
  int64_t v;
  if (to_int(o, v)) {
    Item item{Item::Int};
    item.value = v;
    item.consumed = 1;
    return item;
  }
  if (PyList_Check(o) || PyTuple_Check(o) || PyObject_CheckBuffer(o)) return advanced_item(list_index(o));
  if (PySequence_Check(o) && !PyUnicode_Check(o)) return advanced_item(list_index(steal(PySequence_List(o)).ptr()));
  fail<IndexError>("index: must be an integer, slice, None, Ellipsis, tensor, list or bool mask, got ", type_name(o));
}

struct Parsed {
  Tensor view;      // x after ints, slices and None
  Tensors indices;  // as ops/index wants them; empty when all is basic
};

Parsed parse(const Tensor& x, PyObject* index) {
  std::vector<Item> items;
  if (PyTuple_Check(index))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) items.push_back(item_of(PyTuple_GET_ITEM(index, i)));
  else items.push_back(item_of(index));

  int64_t consumed = 0;
  int ellipses = 0;
  for (auto& item : items) {
    consumed += item.consumed;
    ellipses += item.kind == Item::Ellipsis;
  }
  SF_CHECK_AS(IndexError, consumed <= x.ndim(), "index: too many indices (", consumed, ") for a tensor of shape ",
              x.shape());
  SF_CHECK_AS(IndexError, ellipses <= 1, "index: only one Ellipsis is allowed");

  Parsed p{x, {}};
  int64_t dim = 0, x_dim = 0;  // in the view so far; in x, for messages
  int64_t covered = 0;         // dimensions of the view that p.indices speaks of
  for (auto& item : items) {
    switch (item.kind) {
      case Item::Int: {
        int64_t n = p.view.shape()[dim];
        SF_CHECK_AS(IndexError, item.value >= -n && item.value < n, "index: ", item.value,
                    " is out of range for dimension ", x_dim, " of ", x.shape());
        p.view = select(p.view, dim, item.value);
        break;
      }
      case Item::Slice:
        if (item.start || item.stop || item.step != 1) p.view = slice(p.view, dim, item.start, item.stop, item.step);
        ++dim;
        break;
      case Item::None: p.view = unsqueeze(p.view, dim++); break;
      case Item::Ellipsis: dim += x.ndim() - consumed; break;
      case Item::Advanced: {
        Tensor t = item.tensor;
        if (t.dtype() == kBool && t.ndim() == 0) {  // x[True] is x[None], x[False] is an empty one
          p.view = unsqueeze(p.view, dim);
          t = unsqueeze(t, 0);
        }
        for (int64_t i = 0; t.dtype() == kBool && i < t.ndim(); ++i)
          SF_CHECK_AS(IndexError, t.shape()[i] == p.view.shape()[dim + i], "index: the mask of shape ", t.shape(),
                      " does not fit dimension ", x_dim + i, " of ", x.shape());
        // a mask is one entry, however many dimensions it has
        for (; covered < dim; ++covered) p.indices.emplace_back();
        int64_t spans = t.dtype() == kBool ? t.ndim() : 1;
        p.indices.push_back(t.device() == x.device() ? t : to_device(t, x.device()));
        covered += spans;
        dim += spans;
        break;
      }
    }
    x_dim += item.kind == Item::Ellipsis ? x.ndim() - consumed : item.consumed;
  }
  return p;
}

Tensor value_tensor(PyObject* o, const Tensor& like) {
  if (is_tensor(o)) return tensor_of(o);
  Scalar s;
  if (to_scalar(o, s)) {
    SF_CHECK_AS(TypeError, !s.is_float() || is_floating(like.dtype()) || !std::isnan(s.to_double()),
                "index: NaN cannot be stored in a ", like.dtype(), " tensor");
    return scalar_tensor(s, like.dtype(), like.device());
  }
  if (is_numpy_array(o)) return clone(from_numpy(o));
  nb::object make = nb::module_::import_("scaffolding._core").attr("tensor");
  return nb::cast<Tensor>(make(nb::handle(o)));
}

// Leading ones that the target does not have are dropped: x[0] = ones(1, 3).
Tensor without_leading_ones(Tensor v, int64_t ndim) {
  while (v.ndim() > ndim && v.shape()[0] == 1) v = select(v, 0, 0);
  return v;
}

void assign(const Tensor& x, PyObject* index, PyObject* value) {
  Parsed p = parse(x, index);
  Tensor v = value_tensor(value, x);
  if (v.device() != x.device()) {
    SF_CHECK(v.numel() == 1, "index: the value is on ", v.device(), ", the tensor on ", x.device());
    v = to_device(v, x.device());
  }
  MaybeRelease release(p.view.numel() > kReleaseAbove);
  if (p.indices.empty()) {
    p.view.copy_(without_leading_ones(v, p.view.ndim()));
    return;
  }
  if (v.dtype() != x.dtype()) v = to_dtype(v, x.dtype());
  index_put_(p.view, p.indices, v);
}

}  // namespace

// x[...] and x[:]: another tensor over the same memory.
static Tensor alias_of(const Tensor& x) {
  Shape dims;
  for (int64_t i = 0; i < x.ndim(); ++i) dims.push_back(i);
  return permute(x, dims);
}

Py_ssize_t tensor_length(PyObject* self) {
  const Tensor& t = tensor_of(self);
  if (t.ndim() > 0) return Py_ssize_t(t.shape()[0]);
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
  return -1;
}

PyObject* tensor_getitem(PyObject* self, PyObject* index) {
  return guarded([&] {
    const Tensor& x = tensor_of(self);
    if (PyLong_CheckExact(index)) {
      int64_t i = 0;
      to_int(index, i);
      SF_CHECK_AS(IndexError, x.ndim() > 0, "index: a 0-d tensor cannot be indexed with a number; use item()");
      SF_CHECK_AS(IndexError, i >= -x.shape()[0] && i < x.shape()[0], "index: ", i,
                  " is out of range for dimension 0 of ", x.shape());
      return wrap(select(x, 0, i));
    }
    Parsed p = parse(x, index);
    if (p.indices.empty()) return wrap(p.view.is_same(x) ? alias_of(x) : std::move(p.view));
    Tensor y;
    {
      MaybeRelease release(x.numel() > kReleaseAbove);
      y = sf::index(p.view, p.indices);
    }
    return wrap(std::move(y));
  });
}

int tensor_setitem(PyObject* self, PyObject* index, PyObject* value) {
  PyObject* done = guarded([&] {
    SF_CHECK_AS(TypeError, value, "index: elements of a tensor cannot be deleted");
    assign(tensor_of(self), index, value);
    return Py_NewRef(Py_None);
  });
  Py_XDECREF(done);
  return done ? 0 : -1;
}

int tensor_contains(PyObject* self, PyObject* value) {
  nb::object found = nb::steal(guarded([&]() -> PyObject* {
    Tensor hold;
    const Tensor* v = operand(value, hold);
    if (!v) fail<TypeError>("in: a tensor contains numbers, got ", type_name(value));
    return PyBool_FromLong(eq(tensor_of(self), *v).to(kInt64).sum().item() != 0);
  }));
  return found ? found.ptr() == Py_True : -1;
}

PyObject* tensor_iter(PyObject* self) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    SF_CHECK_AS(TypeError, t.ndim() > 0, "iter: a 0-d tensor cannot be iterated");
    nb::object items = steal(wrap_tuple(t.unbind(0)));
    return PyObject_GetIter(items.ptr());
  });
}

}  // namespace sf::py
