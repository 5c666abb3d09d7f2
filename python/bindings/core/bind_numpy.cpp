// NumPy both ways without a copy, through Python's buffer protocol: the package does not import or link NumPy.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/backend/cpu/sealed_pages.h"

namespace sf::py {

namespace {

// ---- arrays as tensors

bool dtype_of_format(const Py_buffer& b, DType& out) {
  const char* f = b.format ? b.format : "B";
  constexpr bool little = std::endian::native == std::endian::little;
  if (*f == '@' || *f == '=' || *f == (little ? '<' : '>')) ++f;
  if (f[0] == 0 || f[1] != 0) return false;
  auto integer = [&](bool is_signed) {
    static constexpr DType types[] = {kInt8, kInt16, kInt32, kInt64};
    if (!is_signed) return b.itemsize == 1 ? (out = kUInt8, true) : false;
    for (auto t : types)
      if (b.itemsize == Py_ssize_t(size_of(t))) return out = t, true;
    return false;
  };
  switch (*f) {
    case '?': return out = kBool, true;
    case 'e': return out = kFloat16, true;
    case 'f': return out = kFloat32, true;
    case 'd': return out = kFloat64, true;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': return integer(true);
    case 'B': return integer(false);
    default: return false;
  }
}

[[noreturn]] void unsupported(PyObject* array, const char* otherwise) {
  std::string what = otherwise ? otherwise : "bytes";
  if (PyObject_HasAttrString(array, "dtype"))
    what = nb::cast<std::string>(steal(PyObject_Str(nb::object(nb::handle(array).attr("dtype")).ptr())));
  fail<TypeError>("from_numpy: cannot read ", what,
                  "; supported are bool, uint8, int8, int16, int32, int64, float16, float32 and float64");
}

struct HeldBuffer {
  Py_buffer view{};
  bool held = false;
  ~HeldBuffer() {
    if (!held) return;
    PyGILState_STATE gil = PyGILState_Ensure();  // the last owner may run without the GIL
    PyBuffer_Release(&view);
    PyGILState_Release(gil);
  }
};

}  // namespace

Tensor from_numpy(PyObject* array) {
  auto held = std::make_shared<HeldBuffer>();
  Py_buffer& b = held->view;
  if (PyObject_GetBuffer(array, &b, PyBUF_RECORDS_RO) != 0) {  // strides and format; read-only is allowed
    PyErr_Clear();
    unsupported(array, type_name(array));
  }
  held->held = true;
  DType t;
  if (!dtype_of_format(b, t)) {
    SF_CHECK(!b.format || (*b.format != '>' && *b.format != '<'),
             "from_numpy: the array's byte order differs from the machine's; use "
             "array.astype(array.dtype.newbyteorder('='))");
    unsupported(array, b.format);
  }
  Shape sizes, strides;
  int64_t span = 1;
  bool empty_array = false;
  for (int i = 0; i < b.ndim; ++i) {
    SF_CHECK(b.strides[i] >= 0 || b.shape[i] <= 1,
             "from_numpy: an array with a negative stride cannot be shared; use array.copy()");
    SF_CHECK(b.strides[i] % b.itemsize == 0 || b.shape[i] <= 1,
             "from_numpy: strides must be whole elements; use array.copy()");
    sizes.push_back(b.shape[i]);
    strides.push_back(b.shape[i] <= 1 ? 1 : b.strides[i] / b.itemsize);
    empty_array |= b.shape[i] == 0;
    span += std::max<int64_t>(b.shape[i] - 1, 0) * strides.back();
  }
  SF_CHECK(reinterpret_cast<uintptr_t>(b.buf) % size_t(b.itemsize) == 0 || empty_array,
           "from_numpy: the array is not aligned; use array.copy()");
  auto storage = Storage::borrow(b.buf, empty_array ? 0 : size_t(span * b.itemsize), Device(), [held] {});
  return Tensor::strided(std::move(storage), sizes, strides, 0, t);
}

namespace {

// ---- tensors as arrays: an object with the buffer protocol that keeps the tensor alive

struct TensorBuffer {
  PyObject_HEAD Tensor t;
};
PyTypeObject* buffer_type = nullptr;

const char* format_of(DType t) {
  static constexpr const char* formats[kNumDTypes] = {
      "B", "b", "h", "i", sizeof(long) == 8 ? "l" : "q", "e", "f", "d", "?", nullptr, nullptr, nullptr};
  return formats[int(t)];
}

int get_buffer(PyObject* o, Py_buffer* view, int) {
  const Tensor& t = reinterpret_cast<TensorBuffer*>(o)->t;
  int n = int(t.ndim());
  auto* dims = static_cast<Py_ssize_t*>(PyMem_Malloc(sizeof(Py_ssize_t) * size_t(2 * n + 1)));
  if (!dims) return PyErr_NoMemory(), -1;
  for (int i = 0; i < n; ++i) {
    dims[i] = t.shape()[i];
    dims[n + i] = t.strides()[i] * Py_ssize_t(t.itemsize());
  }
  *view = {};
  view->obj = Py_NewRef(o);
  static char nothing[8];
  cpu::will_write(t);
  view->buf = t.data_ptr() ? t.data_ptr() : nothing;
  view->len = Py_ssize_t(t.nbytes());
  view->itemsize = Py_ssize_t(t.itemsize());
  view->format = const_cast<char*>(format_of(t.dtype()));
  view->ndim = n;
  view->shape = dims;
  view->strides = dims + n;
  view->internal = dims;
  return 0;
}
void release_buffer(PyObject*, Py_buffer* view) { PyMem_Free(view->internal); }
void buffer_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  reinterpret_cast<TensorBuffer*>(o)->t.~Tensor();
  free_object(type, o);
  Py_DECREF(type);
}

PyTypeObject* make_buffer_type() {
  PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                         {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(buffer_dealloc)},
                         {0, nullptr}};
  PyType_Spec spec{"scaffolding._TensorBuffer", sizeof(TensorBuffer), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return make_type(spec);
}

nb::object buffer_of(const Tensor& t) {
  auto* o = reinterpret_cast<TensorBuffer*>(checked(make_object(buffer_type)));
  new (&o->t) Tensor(t);
  return nb::steal(reinterpret_cast<PyObject*>(o));
}

nb::object numpy_of(const Tensor& t, bool force) {
  SF_CHECK_AS(RuntimeError, force || !t.requires_grad(),
              "numpy: the tensor requires a gradient; use tensor.detach().numpy()");
  SF_CHECK_AS(TypeError, force || t.device().is_cpu(), "numpy: the tensor is on ", t.device(),
              "; use tensor.cpu() first");
  SF_CHECK_AS(TypeError, format_of(t.dtype()), "numpy: has no ", t.dtype(), "; use tensor.float() first");
  Tensor host = t.detach().to(Device::CPU);
  SF_CHECK_AS(RuntimeError, !host.device().is_meta(), "numpy: a meta tensor has no values");
  return nb::module_::import_("numpy").attr("asarray")(buffer_of(host));
}

}  // namespace

void bind_numpy(nb::module_& m) {
  buffer_type = make_buffer_type();
  m.def(
      "from_numpy",
      [](nb::handle array) {
        if (!is_numpy_array(array.ptr())) wrong_argument("from_numpy", "ndarray", "a numpy array", array.ptr());
        Tensor t = from_numpy(array.ptr());
        if (!nb::cast<bool>(array.attr("flags").attr("writeable")) &&
            PyErr_WarnEx(PyExc_UserWarning,
                         "from_numpy: the array is read-only, but writes to the tensor will change it; copy it first",
                         1) != 0)
          throw_python_error();
        return t;
      },
      nb::arg("ndarray"),
      "A tensor that shares the memory of ndarray, a NumPy array."
      "\n\n>>> import numpy\n"
      ">>> array = numpy.zeros(2)\n"
      ">>> x = sf.from_numpy(array)\n"
      ">>> array[0] = 7\n"
      ">>> x\n"
      "tensor([7., 0.], dtype=scaffolding.float64)");
  m.def(
      "_from_buffer", [](nb::handle o) { return from_numpy(o.ptr()); },
      "A tensor over any object with the buffer protocol.");
  m.def("_to_buffer", [](const Tensor& t) { return buffer_of(t); });
  tensor_method(
      "numpy", &numpy_of, nb::kw_only(), nb::arg("force") = false,
      "A numpy array that shares the tensor's memory; with force of a copy on the CPU, off the tape, where it cannot.");
  tensor_method(
      "__array__",
      [](const Tensor& t, nb::handle dtype, nb::handle copy) {
        nb::object a = numpy_of(t, false);
        if (dtype.is_none()) return PyObject_IsTrue(copy.ptr()) == 1 && copy.ptr() == Py_True ? a.attr("copy")() : a;
        return a.attr("astype")(dtype, nb::arg("copy") = copy.ptr() == Py_True);
      },
      nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none());
  // array + tensor asks the tensor
  nb::handle(reinterpret_cast<PyObject*>(tensor_type)).attr("__array_priority__") = 1000;
}

}  // namespace sf::py
