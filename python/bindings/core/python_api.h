// What the bindings ask of CPython: its own names where the module is compiled for one version of Python, and the same
// by the stable ABI (Py_LIMITED_API, from Python 3.12), where one module serves every later version. That ABI has no
// macros that reach into objects and no fields of types; a Tensor, an op and a layer are heap types in both.
#pragma once
#include <Python.h>

namespace sf::py {

// A slot of a type as a function of CPython's type for it: slot<allocfunc>(type, Py_tp_alloc).
template <class F> F slot(PyTypeObject* type, int which) { return reinterpret_cast<F>(PyType_GetSlot(type, which)); }

struct SliceParts {  // borrowed
  PyObject *start, *stop, *step;
};

}  // namespace sf::py

#ifdef Py_LIMITED_API

#define PyTuple_GET_SIZE(o) PyTuple_Size(o)
#define PyTuple_GET_ITEM(o, i) PyTuple_GetItem(o, i)
#define PyTuple_SET_ITEM(o, i, v) PyTuple_SetItem(o, i, v)
#define PyList_GET_SIZE(o) PyList_Size(o)
#define PyList_GET_ITEM(o, i) PyList_GetItem(o, i)
#define PyList_SET_ITEM(o, i, v) PyList_SetItem(o, i, v)
#define PyDict_GET_SIZE(o) PyDict_Size(o)
#define PyBytes_GET_SIZE(o) PyBytes_Size(o)
#define PyBytes_AS_STRING(o) PyBytes_AsString(o)
#define PyByteArray_GET_SIZE(o) PyByteArray_Size(o)
#define PyByteArray_AS_STRING(o) PyByteArray_AsString(o)
#define PyFloat_AS_DOUBLE(o) PyFloat_AsDouble(o)
#define PyObject_CallOneArg(f, a) PyObject_CallFunctionObjArgs(f, a, nullptr)
#define PyObject_CallMethodNoArgs(o, name) PyObject_CallMethodObjArgs(o, name, nullptr)
#define PyObject_CallMethodOneArg(o, name, a) PyObject_CallMethodObjArgs(o, name, a, nullptr)
#define PyUnicode_AsUTF8(o) PyUnicode_AsUTF8AndSize(o, nullptr)
#ifndef Py_XSETREF
#define Py_XSETREF(place, value) \
  do {                           \
    PyObject* before_ = (place); \
    (place) = (value);           \
    Py_XDECREF(before_);         \
  } while (0)
#endif
#define SF_PY_PYSSIZET Py_T_PYSSIZET
#define SF_PY_READONLY Py_READONLY

namespace sf::py {

inline PyObject* make_object(PyTypeObject* type, Py_ssize_t n = 0) {
  return slot<allocfunc>(type, Py_tp_alloc)(type, n);
}
inline void free_object(PyTypeObject* type, PyObject* o) { slot<freefunc>(type, Py_tp_free)(o); }

const char* type_name(PyTypeObject* type);                  // as tp_name; lives for ever
PyObject* type_lookup(PyTypeObject* type, PyObject* name);  // borrowed, as _PyType_Lookup: no descriptor is asked
PyObject* type_dict(PyTypeObject* type);                    // borrowed, as tp_dict
PyObject* type_mro(PyTypeObject* type);                     // borrowed, as tp_mro
PyTypeObject* type_base(PyTypeObject* type);                // borrowed, as tp_base; null of object
SliceParts slice_parts(PyObject* slice);
bool is_function(PyObject* o);
PyObject* bound_method(PyObject* function, PyObject* self);

// Around what a tp_dealloc does: objects that hold each other in a long chain go one after the other, not one inside
// the other, which would need a stack as deep as the chain.
class Unnested {
 public:
  explicit Unnested(PyObject* o, destructor dealloc);  // whether now, or later by an object further out: now()
  ~Unnested();
  bool now() const { return now_; }
  Unnested(const Unnested&) = delete;

 private:
  destructor dealloc_;
  bool now_;
};

}  // namespace sf::py

#define SF_PY_UNNESTED_BEGIN(o, dealloc) if (::sf::py::Unnested unnested_(o, dealloc); unnested_.now()) {
#define SF_PY_UNNESTED_END }

#else

#include <structmember.h>

#define SF_PY_PYSSIZET T_PYSSIZET
#define SF_PY_READONLY READONLY
#define SF_PY_UNNESTED_BEGIN(o, dealloc) Py_TRASHCAN_BEGIN(o, dealloc)
#define SF_PY_UNNESTED_END Py_TRASHCAN_END

namespace sf::py {

inline PyObject* make_object(PyTypeObject* type, Py_ssize_t n = 0) { return type->tp_alloc(type, n); }
inline void free_object(PyTypeObject* type, PyObject* o) { type->tp_free(o); }
inline const char* type_name(PyTypeObject* type) { return type->tp_name; }
inline PyObject* type_lookup(PyTypeObject* type, PyObject* name) { return _PyType_Lookup(type, name); }
inline PyObject* type_dict(PyTypeObject* type) { return type->tp_dict; }
inline PyObject* type_mro(PyTypeObject* type) { return type->tp_mro; }
inline PyTypeObject* type_base(PyTypeObject* type) { return type->tp_base; }
inline SliceParts slice_parts(PyObject* slice) {
  auto* s = reinterpret_cast<PySliceObject*>(slice);
  return {s->start, s->stop, s->step};
}
inline bool is_function(PyObject* o) { return PyFunction_Check(o); }
inline PyObject* bound_method(PyObject* function, PyObject* self) { return PyMethod_New(function, self); }

}  // namespace sf::py

#endif

namespace sf::py {

inline const char* type_name(PyObject* o) { return type_name(Py_TYPE(o)); }

// Types of ours, whose names have the module in them (tp_name).
PyTypeObject* make_type(PyType_Spec& spec, PyObject* bases = nullptr);

}  // namespace sf::py
