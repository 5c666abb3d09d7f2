#include "python/bindings/core/bind_arguments.h"

#include <cstring>

#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_generator.h"
#include "python/bindings/core/call_arguments.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::py {

// The type as one writes it ("torch.Tensor"), and for other libraries' tensors what takes them over.
static std::string describe(PyObject* o) {
  if (o == Py_None) return "None";
  std::string name = type_name(o);
  if (is_tensor(o) || !PyObject_HasAttrString(o, "__dlpack__")) return name;
  if (is_numpy_array(o)) return name + "; scaffolding.from_numpy takes it over";
  nb::object module = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(o))), "__module__", nb::str(""));
  if (name.find('.') == name.npos && PyUnicode_Check(module.ptr())) name = nb::cast<std::string>(module) + "." + name;
  return name + "; scaffolding.from_dlpack takes it over without a copy";
}

void wrong_argument(std::string_view op, std::string_view name, std::string_view wanted, PyObject* got) {
  fail<TypeError>(op, ": ", name, " must be ", wanted, ", got ", describe(got));
}

bool is_numpy_scalar(PyObject* o) {
  const char* name = type_name(o);
  return !std::strncmp(name, "numpy.", 6) && std::strcmp(name, "numpy.ndarray") != 0 &&
         PyObject_HasAttrString(o, "item") && PyObject_HasAttrString(o, "dtype");
}
bool is_numpy_array(PyObject* o) {
  for (PyTypeObject* t = Py_TYPE(o); t; t = type_base(t))
    if (!std::strcmp(type_name(t), "numpy.ndarray")) return true;
  return false;
}

bool is_torch_tensor(PyObject* o) {
  for (PyTypeObject* t = Py_TYPE(o); t; t = type_base(t)) {
    if (std::strcmp(type_name(t), "Tensor") != 0) continue;
    nb::object module = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(t)), "__module__", nb::none());
    if (PyUnicode_Check(module.ptr()) && PyUnicode_CompareWithASCIIString(module.ptr(), "torch") == 0) return true;
  }
  return false;
}

static int64_t int_of(PyObject* number) {
  int overflow = 0;
  long long v = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow) {
    PyErr_SetString(PyExc_OverflowError, "an integer is too large for 64 bits");
    throw_python_error();
  }
  if (v == -1 && PyErr_Occurred()) throw_python_error();
  return v;
}

bool to_int(PyObject* o, int64_t& out) {
  if (PyLong_Check(o)) return out = int_of(o), true;
  if (!PyIndex_Check(o)) return false;
  PyObject* index = PyNumber_Index(o);
  if (!index) {  // a tensor of several elements, an array: not an integer
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw_python_error();
    return PyErr_Clear(), false;
  }
  nb::object hold = nb::steal(index);
  return out = int_of(index), true;
}

bool to_scalar(PyObject* o, Scalar& out) {
  if (PyFloat_Check(o)) return out = PyFloat_AS_DOUBLE(o), true;
  if (PyBool_Check(o)) return out = (o == Py_True), true;
  if (PyLong_Check(o)) return out = int_of(o), true;
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.numel() != 1) return false;
    if (is_floating(t.dtype())) out = t.item();
    else if (t.dtype() == kBool) out = t.item() != 0;
    else out = t.item_int();
    return true;
  }
  if (is_numpy_scalar(o)) {
    nb::object item = steal(PyObject_CallMethod(o, "item", nullptr));
    if (Py_TYPE(item.ptr()) == Py_TYPE(o)) return false;
    return to_scalar(item.ptr(), out);
  }
  int64_t i;
  if (!is_numpy_array(o) && to_int(o, i)) return out = i, true;
  return false;
}

bool to_shape(PyObject* o, Shape& out) {
  out = {};
  int64_t v;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
    for (Py_ssize_t i = 0; i < n; ++i) {
      if (!to_int(PySequence_Fast_GET_ITEM(o, i), v)) return false;
      out.push_back(v);
    }
    return true;
  }
  if (to_int(o, v)) return out.push_back(v), true;
  if (!PySequence_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o)) return false;
  nb::object items = steal(PySequence_Tuple(o));
  return to_shape(items.ptr(), out);
}

static bool to_floats(PyObject* o, Floats& out) {
  Scalar s;
  if (to_scalar(o, s)) return out.push_back(s.to_double()), true;
  if (!PySequence_Check(o) || PyUnicode_Check(o)) return false;
  nb::object items = steal(PySequence_Tuple(o));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
    if (!to_scalar(PyTuple_GET_ITEM(items.ptr(), i), s)) return false;
    out.push_back(s.to_double());
  }
  return true;
}

static bool to_tensors(PyObject* o, Tensors& out) {
  if (is_tensor(o)) return out = tensor_of(o).unbind(0), true;
  if (!PySequence_Check(o) || PyUnicode_Check(o)) {
    if (!PyIter_Check(o)) return false;
  }
  nb::object items = steal(PySequence_Tuple(o));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.ptr()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.ptr(), i);
    if (item == Py_None) out.emplace_back();
    else if (is_tensor(item)) out.push_back(tensor_of(item));
    else return false;
  }
  return true;
}

bool to_generator(PyObject* o, Generator& out) {
  PyGenerator* g;
  if (!nb::try_cast(nb::handle(o), g) || !g) return false;
  return out = g->generator, true;
}

static std::string utf8(PyObject* text) {
  Py_ssize_t n;
  const char* s = PyUnicode_AsUTF8AndSize(text, &n);
  if (!s) throw_python_error();
  return {s, size_t(n)};
}

Value to_value(const std::string& op, const ArgInfo& info, PyObject* o) {
  if (o == Py_None && (info.optional || info.kind == ArgKind::Tensor || info.kind == ArgKind::Generator))
    return std::monostate{};
  switch (info.kind) {
    case ArgKind::Tensor: {
      if (is_tensor(o)) return tensor_of(o);
      Scalar s;
      if (to_scalar(o, s)) return wrapped(s);
      break;
    }
    case ArgKind::Tensors: {
      Tensors ts;
      if (to_tensors(o, ts)) return ts;
      break;
    }
    case ArgKind::Int: {
      int64_t i;
      if (to_int(o, i)) return i;
      break;
    }
    case ArgKind::Float: {
      Scalar s;
      if (to_scalar(o, s)) return s.to_double();
      break;
    }
    case ArgKind::Bool: {
      if (PyBool_Check(o)) return o == Py_True;
      Scalar s;
      if (!PyLong_Check(o) && !PyFloat_Check(o) && to_scalar(o, s) && s.kind() == Scalar::Bool) return s.to_bool();
      break;
    }
    case ArgKind::Scalar: {
      Scalar s;
      // As a number a tensor would lose its gradient: an op has a second form for it, or it is an error.
      if (is_tensor(o) && tensor_of(o).requires_grad() && autograd::grad_enabled()) break;
      if (!to_scalar(o, s)) break;
      if (s.kind() == Scalar::Bool) return s.to_bool();
      if (s.kind() == Scalar::Int) return s.to_int();
      return s.to_double();
    }
    case ArgKind::Ints: {
      Shape s;
      if (to_shape(o, s)) return s;
      if (info.name == "padding" && PyUnicode_Check(o)) return utf8(o);  // a convolution's "same" or "valid"
      break;
    }
    case ArgKind::Floats: {
      Floats f;
      if (to_floats(o, f)) return f;
      break;
    }
    case ArgKind::Str:
      if (PyUnicode_Check(o)) return utf8(o);
      break;
    case ArgKind::DType: {
      DType t;
      if (to_dtype(o, t)) return t;
      break;
    }
    case ArgKind::Device: {
      Device d;
      if (to_device(o, d)) return d;
      break;
    }
    case ArgKind::Generator: {
      Generator g;
      if (to_generator(o, g)) return g;
      break;
    }
  }
  wrong_argument(op, info.name, name(info.kind), o);
}

nb::object scalar_object(const Tensor& t) {
  if (is_floating(t.dtype())) return steal(PyFloat_FromDouble(t.item()));
  if (t.dtype() == kBool) return nb::bool_(t.item() != 0);
  return steal(PyLong_FromLongLong(t.item_int()));
}

nb::object interned_names(const std::vector<ArgInfo>& args) {
  nb::object names = steal(PyTuple_New(Py_ssize_t(args.size())));
  for (size_t i = 0; i < args.size(); ++i)
    PyTuple_SET_ITEM(names.ptr(), Py_ssize_t(i), checked(PyUnicode_InternFromString(args[i].name.c_str())));
  return names;
}

// The parameter list is in Python syntax: evaluating a lambda with it gives the true signature.
nb::object signature_of(const std::string& parameters) {
  nb::object inspect = nb::module_::import_("inspect"), builtins = nb::module_::import_("builtins"),
             math = nb::module_::import_("math");
  nb::dict scope;
  scope["inf"] = math.attr("inf");
  nb::object function = builtins.attr("eval")(nb::str(("lambda " + parameters + ": None").c_str()), scope);
  return inspect.attr("signature")(function);
}

PyObject* to_object(Value v) {
  struct Visitor {
    PyObject* operator()(std::monostate) { return Py_NewRef(Py_None); }
    PyObject* operator()(Tensor& t) { return wrap(std::move(t)); }
    PyObject* operator()(bool b) { return PyBool_FromLong(b); }
    PyObject* operator()(int64_t i) { return PyLong_FromLongLong(i); }
    PyObject* operator()(double d) { return PyFloat_FromDouble(d); }
    PyObject* operator()(std::string& s) { return PyUnicode_FromStringAndSize(s.data(), Py_ssize_t(s.size())); }
    PyObject* operator()(Shape& s) { return wrap_size(s); }
    PyObject* operator()(Floats& f) {
      nb::object list = steal(PyList_New(Py_ssize_t(f.size())));
      for (size_t i = 0; i < f.size(); ++i)
        PyList_SET_ITEM(list.ptr(), Py_ssize_t(i), checked(PyFloat_FromDouble(f[i])));
      return list.release().ptr();
    }
    PyObject* operator()(Tensors& ts) { return wrap_tuple(ts); }
    PyObject* operator()(DType t) { return Py_NewRef(dtype_object(t)); }
    PyObject* operator()(Device d) { return device_object(d); }
    PyObject* operator()(Generator& g) { return wrap_generator(g).release().ptr(); }
  };
  return std::visit(Visitor{}, v);
}

}  // namespace sf::py

bool nanobind::detail::type_caster<sf::Shape>::from_python(handle src, uint8_t, cleanup_list*) noexcept {
  try {
    return sf::py::to_shape(src.ptr(), value);
  } catch (...) {
    PyErr_Clear();
    return false;
  }
}
