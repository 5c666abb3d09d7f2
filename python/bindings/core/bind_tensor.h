// Tensor in Python: a hand-written heap type around sf::Tensor, so that operators cost little.
// A tensor has at most one living Python object: TensorImpl::python points to it (not owned) and wrap() hands it out
// again, so `p.grad is p.grad` and attributes stay while it lives. Everything here needs the GIL.
#pragma once
#include <nanobind/nanobind.h>

#include "python/bindings/core/python_api.h"
#include "scaffolding/core/tensor.h"

namespace nb = nanobind;

namespace sf::py {

struct PyTensor {
  PyObject_HEAD Tensor t;
  PyObject* dict;
  PyObject* weakrefs;
};

extern PyTypeObject* tensor_type;
extern PyTypeObject* parameter_type;  // the Python class nn.Parameter, once it exists
extern PyTypeObject* size_type;       // Size, a tuple of ints

inline bool is_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type || PyType_IsSubtype(Py_TYPE(o), tensor_type); }
inline const Tensor& tensor_of(PyObject* o) { return reinterpret_cast<PyTensor*>(o)->t; }

PyObject* wrap(Tensor t);                         // new reference; None for an undefined tensor
PyObject* wrap_as(PyTypeObject* type, Tensor t);  // a new object of a subclass for a tensor that has none
PyObject* wrap_tuple(const Tensors& ts);
PyObject* wrap_size(const Shape& s);

// Inside catch (...): the Python exception for the C++ one. Returns null, for `return raise_current();`.
PyObject* raise_current() noexcept;
template <class F> PyObject* guarded(const F& f) noexcept {
  try {
    return f();
  } catch (...) {
    return raise_current();
  }
}
// A Python error is set: carry it through C++.
[[noreturn]] inline void throw_python_error() { throw nb::python_error(); }
inline PyObject* checked(PyObject* o) {
  if (!o) throw_python_error();
  return o;
}
inline nb::object steal(PyObject* o) { return nb::steal(checked(o)); }

// Releases the GIL around work that is worth it: handing it over costs more than a small op.
inline constexpr int64_t kReleaseAbove = 4096;  // elements
class MaybeRelease {
 public:
  explicit MaybeRelease(bool release) : state_(release ? PyEval_SaveThread() : nullptr) {}
  ~MaybeRelease() {
    if (state_) PyEval_RestoreThread(state_);
  }
  MaybeRelease(const MaybeRelease&) = delete;

 private:
  PyThreadState* state_;
};

// Adds a nanobind function to the Tensor type.
template <class F, class... Extra> void tensor_method(const char* name, F&& f, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(f), nb::scope(reinterpret_cast<PyObject*>(tensor_type)), nb::name(name),
                       nb::is_method(), extra...);
}

// One file each; called once by the module in this order.
void bind_tensor(nb::module_& m);
void bind_dtype(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_methods(nb::module_& m);
void bind_data(nb::module_& m);
void bind_data_loading(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_numpy(nb::module_& m);
void bind_dlpack(nb::module_& m);
void bind_factory(nb::module_& m);
void bind_autograd(nb::module_& m);
void bind_hooks(nb::module_& m);
void bind_function(nb::module_& m);
void bind_gradient_map(nb::module_& m);
void bind_higher_order(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_init(nb::module_& m);
void bind_clip_grad(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_schedule(nb::module_& m);
void bind_amp(nb::module_& m);
void bind_io(nb::module_& m);
void bind_train(nb::module_& m);
void bind_models(nb::module_& m);

}  // namespace sf::py

namespace nanobind::detail {
template <> struct type_caster<sf::Tensor> {
  NB_TYPE_CASTER(sf::Tensor, const_name("Tensor"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (src.is_none()) return true;  // an optional argument: an undefined tensor
    if (!sf::py::is_tensor(src.ptr())) return false;
    value = sf::py::tensor_of(src.ptr());
    return true;
  }
  static handle from_cpp(const sf::Tensor& t, rv_policy, cleanup_list*) noexcept { return sf::py::wrap(t); }
};
template <> struct type_caster<sf::Tensors> {
  NB_TYPE_CASTER(sf::Tensors, const_name("tuple[Tensor, ...]"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    if (!PyList_Check(src.ptr()) && !PyTuple_Check(src.ptr())) return false;
    Py_ssize_t n = PySequence_Fast_GET_SIZE(src.ptr());
    value.resize(size_t(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* o = PySequence_Fast_GET_ITEM(src.ptr(), i);
      if (o == Py_None) continue;
      if (!sf::py::is_tensor(o)) return false;
      value[size_t(i)] = sf::py::tensor_of(o);
    }
    return true;
  }
  static handle from_cpp(const sf::Tensors& ts, rv_policy, cleanup_list*) noexcept { return sf::py::wrap_tuple(ts); }
};
template <> struct type_caster<sf::Shape> {
  NB_TYPE_CASTER(sf::Shape, const_name("Size"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept;
  static handle from_cpp(const sf::Shape& s, rv_policy, cleanup_list*) noexcept { return sf::py::wrap_size(s); }
};
}  // namespace nanobind::detail
