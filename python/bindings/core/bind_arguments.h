// Python objects as arguments of ops. Each returns false (no Python error set) when the object is of another kind;
// numbers that do not fit in 64 bits raise.
#pragma once
#include "python/bindings/core/bind_tensor.h"
#include "scaffolding/core/op.h"

namespace sf::py {

bool to_int(PyObject* o, int64_t& out);    // anything with __index__, bools included
bool to_scalar(PyObject* o, Scalar& out);  // bool, int, float, numpy scalar, one-element tensor
bool to_shape(PyObject* o, Shape& out);    // an int or a sequence of ints
bool to_dtype(PyObject* o, DType& out);    // sf.float32 and the Python types float, int, bool
bool to_device(PyObject* o, Device& out);  // sf.device or a string
bool to_generator(PyObject* o, Generator& out);
bool to_memory_format(PyObject* o, MemoryFormat& out);
bool is_numpy_scalar(PyObject* o);
bool is_numpy_array(PyObject* o);

PyObject* dtype_object(DType t);              // borrowed
PyObject* device_object(Device d);            // new reference
nb::object scalar_object(const Tensor& one);  // the one element as bool, int or float

// An argument of an op by its declared kind; TypeError naming op and argument otherwise.
Value to_value(const std::string& op, const ArgInfo& info, PyObject* o);
PyObject* to_object(Value v);  // new reference

bool is_torch_tensor(PyObject* o);
[[noreturn]] void wrong_argument(std::string_view op, std::string_view name, std::string_view wanted, PyObject* got);

}  // namespace sf::py
