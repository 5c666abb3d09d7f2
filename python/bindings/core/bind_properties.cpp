// Attributes of Tensor.
#include "python/bindings/autograd/bind_autograd.h"
#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/autograd/set_data.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/ops/view/view.h"

namespace sf::py {

namespace {

template <auto F> PyObject* get(PyObject* self, void*) {
  return guarded([&] { return F(tensor_of(self)); });
}

PyObject* shape(const Tensor& t) { return wrap_size(t.shape()); }
PyObject* dtype(const Tensor& t) { return Py_NewRef(dtype_object(t.dtype())); }
PyObject* device(const Tensor& t) { return device_object(t.device()); }
PyObject* ndim(const Tensor& t) { return PyLong_FromLongLong(t.ndim()); }
PyObject* itemsize(const Tensor& t) { return PyLong_FromSize_t(t.itemsize()); }
PyObject* nbytes(const Tensor& t) { return PyLong_FromSize_t(t.nbytes()); }
PyObject* version(const Tensor& t) { return PyLong_FromUnsignedLong(t.version()); }
PyObject* output_nr(const Tensor& t) { return PyLong_FromUnsignedLong(t.impl()->output_nr); }
PyObject* is_cpu(const Tensor& t) { return PyBool_FromLong(t.device().type == Device::CPU); }
PyObject* is_cuda(const Tensor& t) { return PyBool_FromLong(t.device().is_cuda()); }
PyObject* is_mps(const Tensor& t) { return PyBool_FromLong(t.device().type == Device::MPS); }
PyObject* is_meta(const Tensor& t) { return PyBool_FromLong(t.device().is_meta()); }
PyObject* is_leaf(const Tensor& t) { return PyBool_FromLong(t.is_leaf()); }
PyObject* requires_grad(const Tensor& t) { return PyBool_FromLong(t.requires_grad()); }
PyObject* retains_grad(const Tensor& t) { return PyBool_FromLong(t.impl()->meta && t.impl()->meta->retained); }
PyObject* is_inference(const Tensor& t) { return PyBool_FromLong(t.impl()->inference); }
PyObject* base(const Tensor& t) { return wrap(Tensor(t.impl()->base)); }
PyObject* grad(const Tensor& t) { return wrap(t.grad()); }
PyObject* grad_fn(const Tensor& t) {
  autograd::Edge e = autograd::edge_of(t);  // a view whose base was written gets its new node first
  return e.node ? wrap_node(e.node).release().ptr() : Py_NewRef(Py_None);
}
PyObject* data(const Tensor& t) { return wrap(t.detach()); }
PyObject* transposed(const Tensor& t) {
  Shape reversed;
  for (int64_t i = t.ndim() - 1; i >= 0; --i) reversed.push_back(i);
  return wrap(permute(t, reversed));
}
PyObject* matrix_transposed(const Tensor& t) {
  SF_CHECK(t.ndim() >= 2, "mT: needs at least two dimensions, got shape ", t.shape());
  return wrap(transpose(t, -2, -1));
}

int failed(PyObject* none) {  // for setters: an error is set when none is null
  Py_XDECREF(none);
  return none ? 0 : -1;
}

int set_requires_grad(PyObject* self, PyObject* value, void*) {
  return failed(guarded([&] {
    SF_CHECK_AS(TypeError, value && PyBool_Check(value), "requires_grad: must be a bool");
    Tensor t = tensor_of(self);
    t.requires_grad_(value == Py_True);
    return Py_NewRef(Py_None);
  }));
}

int set_grad(PyObject* self, PyObject* value, void*) {
  return failed(guarded([&] {
    bool none = !value || value == Py_None;
    SF_CHECK_AS(TypeError, none || is_tensor(value), "grad: must be a tensor or None, got ",
                none ? "None" : type_name(value));
    SF_CHECK(none || value != self, "grad: a tensor cannot be its own gradient");
    tensor_of(self).set_grad(none ? Tensor() : tensor_of(value));
    return Py_NewRef(Py_None);
  }));
}

int set_data(PyObject* self, PyObject* value, void*) {
  return failed(guarded([&] {
    SF_CHECK_AS(TypeError, value && is_tensor(value), "data: must be a tensor");
    autograd::set_data(tensor_of(self), tensor_of(value));
    return Py_NewRef(Py_None);
  }));
}

}  // namespace

PyGetSetDef tensor_getset[] = {
    {"shape", get<shape>, nullptr, "The sizes of the dimensions.", nullptr},
    {"dtype", get<dtype>, nullptr, "The type of the elements.", nullptr},
    {"device", get<device>, nullptr, "Where the elements are.", nullptr},
    {"ndim", get<ndim>, nullptr, "The number of dimensions.", nullptr},
    {"itemsize", get<itemsize>, nullptr, "Bytes per element.", nullptr},
    {"nbytes", get<nbytes>, nullptr, "Bytes of all elements.", nullptr},
    {"T", get<transposed>, nullptr, "The dimensions in reverse order, as a view.", nullptr},
    {"mT", get<matrix_transposed>, nullptr, "The last two dimensions swapped, as a view.", nullptr},
    {"H", get<matrix_transposed>, nullptr, "mT, as tensors are real.", nullptr},
    {"data", get<data>, set_data, "The same memory, off the tape.", nullptr},
    {"grad", get<grad>, set_grad, "The gradient that backward() accumulated, or None.", nullptr},
    {"grad_fn", get<grad_fn>, nullptr, "The recorded op that made this tensor, or None for a leaf.", nullptr},
    {"requires_grad", get<requires_grad>, set_requires_grad, "Whether ops on this tensor are recorded.", nullptr},
    {"is_leaf", get<is_leaf>, nullptr, "Whether the tensor was made by the user and not by a recorded op.", nullptr},
    {"retains_grad", get<retains_grad>, nullptr, "Whether retain_grad() was called on this non-leaf tensor.", nullptr},
    {"output_nr", get<output_nr>, nullptr, nullptr, nullptr},
    {"is_cpu", get<is_cpu>, nullptr, nullptr, nullptr},
    {"is_cuda", get<is_cuda>, nullptr, nullptr, nullptr},
    {"is_mps", get<is_mps>, nullptr, nullptr, nullptr},
    {"is_meta", get<is_meta>, nullptr, nullptr, nullptr},
    {"_version", get<version>, nullptr, "How often the memory was written in place.", nullptr},
    {"_base", get<base>, nullptr, "The tensor this is a view of, or None.", nullptr},
    {"_is_inference", get<is_inference>, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace sf::py
