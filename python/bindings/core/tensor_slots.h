// Slots of the Tensor type that stand in files of their own.
#pragma once
#include "python/bindings/core/bind_tensor.h"

namespace sf::py {

extern PyType_Slot number_slots[];   // bind_number.cpp; ends with {0, nullptr}
extern PyGetSetDef tensor_getset[];  // bind_properties.cpp
PyObject* rich_compare(PyObject* a, PyObject* b, int op);

Py_ssize_t tensor_length(PyObject* self);  // bind_indexing.cpp
PyObject* tensor_getitem(PyObject* self, PyObject* index);
int tensor_setitem(PyObject* self, PyObject* index, PyObject* value);
int tensor_contains(PyObject* self, PyObject* value);
PyObject* tensor_iter(PyObject* self);

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs);  // bind_data.cpp
PyObject* tensor_repr(PyObject* self);                                       // bind_methods.cpp
Tensor from_numpy(PyObject* array);    // bind_numpy.cpp: shares the array's memory
Tensor from_dlpack(PyObject* object);  // bind_dlpack.cpp: shares another library's memory

// Tensors stay as they are, numbers and numpy scalars become 0-d tensors that do not widen dtypes, arrays are shared.
// Null when the object is none of these.
const Tensor* operand(PyObject* o, Tensor& hold);

}  // namespace sf::py
