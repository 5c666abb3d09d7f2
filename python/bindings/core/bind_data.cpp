// Tensors from Python values and back: tensor(), as_tensor(), Tensor(...), tolist().
#include <nanobind/stl/optional.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/ops/copy/copy.h"
#include "scaffolding/ops/copy/pinned.h"

namespace sf::py {

namespace {

bool is_sequence(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o) || (PySequence_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o));
}

// ---- the shape and dtype of nested data

class Inference {
 public:
  Shape shape;
  DType dtype() const { return any_ ? dtype_ : default_dtype(); }

  void visit(PyObject* o, int64_t depth) {
    if (is_tensor(o)) return leaf(tensor_of(o).shape(), tensor_of(o).dtype(), depth);
    if (PyFloat_CheckExact(o)) return leaf({}, default_dtype(), depth);
    if (PyBool_Check(o)) return leaf({}, kBool, depth);
    if (PyLong_Check(o)) return leaf({}, kInt64, depth);
    if (is_numpy_array(o) || is_numpy_scalar(o)) {
      Tensor t = from_numpy(o);
      return leaf(t.shape(), t.dtype(), depth);
    }
    if (PyFloat_Check(o)) return leaf({}, default_dtype(), depth);
    if (!is_sequence(o)) fail<TypeError>("tensor: cannot hold an object of type ", type_name(o));
    nb::object items = steal(PySequence_Fast(o, "tensor: not a sequence"));
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items.ptr());
    dimension(depth, n);
    for (Py_ssize_t i = 0; i < n; ++i) visit(PySequence_Fast_GET_ITEM(items.ptr(), i), depth + 1);
    if (n == 0) leaf_depth(depth + 1);
  }

 private:
  void dimension(int64_t depth, int64_t n) {
    SF_CHECK(leaf_depth_ < 0 || depth < leaf_depth_, "tensor: expected a number at depth ", depth,
             ", got a sequence of length ", n);
    if (depth == shape.size()) shape.push_back(n);
    SF_CHECK(shape[depth] == n, "tensor: expected a sequence of length ", shape[depth], " at dimension ", depth,
             ", got length ", n);
  }
  void leaf_depth(int64_t depth) {
    SF_CHECK(leaf_depth_ < 0 || leaf_depth_ == depth, "tensor: expected a sequence at depth ", depth, ", got a number");
    SF_CHECK(depth == shape.size(), "tensor: expected a sequence at depth ", depth, ", got a number");
    leaf_depth_ = depth;
  }
  void leaf(const Shape& inner, DType t, int64_t depth) {
    for (auto n : inner) dimension(depth++, n);
    leaf_depth(depth);
    dtype_ = any_ ? promote(dtype_, t) : t;
    any_ = true;
  }

  int64_t leaf_depth_ = -1;
  DType dtype_ = kFloat32;
  bool any_ = false;
};

// ---- its elements, in row-major order

template <class T> T element(PyObject* o) {
  Scalar s;
  if (!to_scalar(o, s)) fail<TypeError>("tensor: cannot hold an object of type ", type_name(o));
  if constexpr (std::is_same_v<T, bool>) {
    return s.to_bool();
  } else if constexpr (std::is_integral_v<T>) {
    double d = s.to_double();
    bool fits = s.is_float()
                    ? d >= double(std::numeric_limits<T>::min()) - 0.5 && d < double(std::numeric_limits<T>::max()) + 1
                    : (s.to_int() >= std::numeric_limits<T>::min() || std::is_unsigned_v<T>)&&s.to_int() <=
                          int64_t(std::numeric_limits<T>::max());
    SF_CHECK(fits, "tensor: ", d, " does not fit in ", dtype_of<T>::value);
    return T(s.to_int());
  } else if constexpr (std::is_floating_point_v<T>) {
    return T(s.to_double());
  } else {
    return from_float<T>(float(s.to_double()));
  }
}

template <class T> void fill(PyObject* o, int64_t left, T*& out) {
  if (left == 0) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      if (PyFloat_CheckExact(o)) return void(*out++ = T(PyFloat_AS_DOUBLE(o)));
    *out++ = element<T>(o);
    return;
  }
  if (is_tensor(o) || is_numpy_array(o)) {
    Tensor t =
        (is_tensor(o) ? tensor_of(o).detach() : from_numpy(o)).to(Device::CPU).to(dtype_of<T>::value).contiguous();
    std::copy_n(t.data<T>(), t.numel(), out);
    out += t.numel();
    return;
  }
  nb::object items = steal(PySequence_Fast(o, "tensor: not a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i)
    fill(PySequence_Fast_GET_ITEM(items.ptr(), i), left - 1, out);
}

Tensor from_sequence(PyObject* o, std::optional<DType> dtype) {
  Inference found;
  found.visit(o, 0);
  Tensor t = empty(found.shape, dtype.value_or(found.dtype()), Device());
  if (t.numel() == 0) return t;
  visit_dtype(t.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = t.data<T>();
    fill(o, found.shape.size(), out);
  });
  return t;
}

std::optional<DType> dtype_argument(const char* op, nb::handle o) {
  DType t;
  if (o.is_none()) return {};
  if (!to_dtype(o.ptr(), t)) wrong_argument(op, "dtype", "a dtype", o.ptr());
  return t;
}
std::optional<Device> device_argument(const char* op, nb::handle o) {
  Device d;
  if (o.is_none()) return {};
  if (!to_device(o.ptr(), d)) wrong_argument(op, "device", "a device", o.ptr());
  return d;
}

// `own`: the result must not share memory with data.
Tensor convert(const char* op, PyObject* data, std::optional<DType> dtype, std::optional<Device> device, bool own) {
  Tensor t, from;
  bool placed = false;  // where the data is, the tensor stays
  if (is_tensor(data)) t = from = own ? tensor_of(data).detach() : tensor_of(data), placed = true;
  else if (is_numpy_array(data) || is_numpy_scalar(data)) t = from = from_numpy(data);
  else if (PyObject_HasAttrString(data, "__dlpack__"))
    t = from = from_dlpack(data), placed = true;  // another library's
  else t = from_sequence(data, dtype);
  if (dtype) t = to_dtype(t, *dtype);
  if (!device && !placed && default_device() != Device()) device = default_device();
  if (device) t = to_device(t, *device);
  return own && t.is_same(from) ? clone(t) : t;
}

// ---- back

PyObject* list_of(const Tensor& t, int64_t dim, int64_t offset) {
  if (dim == t.ndim()) {
    return visit_dtype(t.dtype(), [&](auto tag) -> PyObject* {
      using T = typename decltype(tag)::type;
      T v = static_cast<const T*>(t.data_ptr())[offset];
      if constexpr (std::is_same_v<T, bool>) return PyBool_FromLong(v);
      else if constexpr (std::is_integral_v<T>) return PyLong_FromLongLong(v);
      else if constexpr (std::is_floating_point_v<T>) return PyFloat_FromDouble(v);
      else return PyFloat_FromDouble(to_float(v));
    });
  }
  int64_t n = t.shape()[dim];
  PyObject* list = PyList_New(n);
  for (int64_t i = 0; list && i < n; ++i) {
    PyObject* item = list_of(t, dim + 1, offset + i * t.strides()[dim]);
    if (!item) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, item);
  }
  return list;
}

Tensor as_subclass_data(PyObject* args) {  // Tensor(), Tensor(2, 3), Tensor([1, 2]), Tensor(tensor)
  Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject* first = n ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (n == 1 && is_tensor(first)) return tensor_of(first).detach();
  if (n == 1 && !PyLong_Check(first) && Py_TYPE(first) != size_type)
    return convert("Tensor", first, default_dtype(), {}, true);
  Shape size;
  if (n == 0) size = {0};
  else if (!to_shape(n == 1 ? first : args, size))
    fail<TypeError>("Tensor: needs sizes or a sequence of values; see scaffolding.tensor");
  return empty(size);
}

}  // namespace

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&] {
    if (type == tensor_type)
      SF_CHECK_AS(TypeError, !kwargs || PyDict_GET_SIZE(kwargs) == 0,
                  "Tensor: takes no keyword arguments; see scaffolding.tensor");
    return wrap_as(type, as_subclass_data(args));
  });
}

void bind_data(nb::module_& m) {
  m.def(
      "tensor",
      [](nb::handle data, nb::handle dtype, nb::handle device, bool requires_grad, bool pinned) {
        Tensor t =
            convert("tensor", data.ptr(), dtype_argument("tensor", dtype), device_argument("tensor", device), true);
        if (pinned) t = pin_memory(t);
        return requires_grad ? t.requires_grad_() : t;
      },
      nb::arg("data"), nb::kw_only(), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::arg("requires_grad") = false, nb::arg("pin_memory") = false,
      "A new tensor with a copy of data: numbers, nested sequences of them, arrays, tensors."
      "\n\nArgs:\n    dtype: of the elements; None: that of data, of Python's floats the default one\n"
      "    device: where it lies; None: the default device, of tensors data's\n"
      "    requires_grad: whether gradients are recorded for it\n"
      "    pin_memory: whether it lies in pinned host memory"
      "\n\n>>> sf.tensor([[1, 2], [3, 4]], dtype=sf.float32)\n"
      "tensor([[1., 2.],\n"
      "        [3., 4.]])");
  m.def(
      "as_tensor",
      [](nb::handle data, nb::handle dtype, nb::handle device) {
        return convert("as_tensor", data.ptr(), dtype_argument("as_tensor", dtype),
                       device_argument("as_tensor", device), false);
      },
      nb::arg("data"), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      "data as a tensor of dtype on device (None: its own), sharing its memory where possible."
      "\n\n>>> sf.as_tensor([1, 2], dtype=sf.float32)\n"
      "tensor([1., 2.])");
  tensor_method(
      "tolist",
      [](const Tensor& t) {
        Tensor host = t.detach().to(Device::CPU);
        SF_CHECK_AS(RuntimeError, !host.device().is_meta(), "tolist: a meta tensor has no values");
        return steal(list_of(host, 0, 0));
      },
      "The elements as nested lists of Python numbers.");
}

}  // namespace sf::py
