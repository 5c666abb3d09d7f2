// Modules in Python: a hand-written heap type around sf::nn::Module, so that calls and attributes cost little.
// A module has at most one living Python object (Module::python). It owns the C++ module, or, for a member of another
// C++ module, keeps that one's object alive. Members that Python adds are in three dicts, as in torch;
// C++ sees them through an Extension.
// Everything here needs the GIL.
#pragma once
#include "python/bindings/core/bind_tensor.h"
#include "python/bindings/core/call_arguments.h"
#include "scaffolding/nn/layer.h"

namespace sf::py {

struct PyModule {
  PyObject_HEAD vectorcallfunc vectorcall;
  nn::Module* module;  // null before __init__
  PyModule* owner;     // the object of the module that this one is a member of; null: this object owns `module`
  PyObject *dict, *weakrefs;
  PyObject *parameters, *buffers, *modules;  // dicts of the members made in Python; a native module's may be null
  PyObject* transient;                       // set of the names in `buffers` that are not persistent, or null
  PyObject* shown;      // dict of the native members that Python has seen: identity and attributes stay. Or null
  PyObject* replaced;   // dict of what stands in for native children, by name, or null
  PyObject* kept;       // list of objects of native children that have state in Python, or null
  PyObject* hooks;      // dict of hook dicts by kind (nn/hooks.py), or null
  PyObject* arguments;  // tuple of the constructor's arguments of a layer, or null
  nn::Extension* extension;
  bool native;  // `module` is a C++ class, with members of its own
};

extern PyTypeObject* module_type;
extern PyTypeObject* forward_type;  // the `forward` of layers

inline bool is_module(PyObject* o) { return PyType_IsSubtype(Py_TYPE(o), module_type); }
inline bool is_parameter(PyObject* o) { return parameter_type && PyType_IsSubtype(Py_TYPE(o), parameter_type); }
PyModule& module_object(nb::handle o, const char* op);  // TypeError for others, RuntimeError before __init__
inline nn::Module& module_of(nb::handle o, const char* op) { return *module_object(o, op).module; }

PyObject* wrap_module(nn::Module& m, PyModule* parent);  // new reference
// The object of a native tensor member, which stays the same while the member does. New reference;
// None for an absent one.
PyObject* show_tensor(PyModule* self, PyObject* name, const Tensor& t);
void adopt(PyModule* self, std::unique_ptr<nn::Module> m, bool native);  // becomes the object of a new module
void keep_state(PyModule* self);                                         // from now on the owner keeps this object
PyTypeObject* python_type_of(const nn::Module& m);                       // borrowed
Value any_value(PyObject* o);  // by the object's own type; TypeError where no Value holds it

// The members of a native module by name.
struct NativeMember {
  enum Kind { None, Parameter, Buffer, Module } kind = None;
  const Tensor* tensor = nullptr;
  nn::Module* module = nullptr;
  bool persistent = true;
};
NativeMember native_member(nn::Module& m, std::string_view name);

// ---- bind_nn_members.cpp: the rules of attributes
PyObject* module_getattro(PyObject* o, PyObject* name);
int module_setattro(PyObject* o, PyObject* name, PyObject* value);
void bind_members(nb::module_& m);

// ---- bind_nn_layer.cpp
// of forward_type
PyObject* call_forward(PyObject* forward, PyModule* self, PyObject* const* args, size_t nargs, PyObject* keywords);
const nn::LayerEntry* layer_of(PyTypeObject* type);  // its own or a base's, or null
void bind_layers(nb::module_& m);
// ---- bind_nn_walk.cpp
void bind_walks(nb::module_& m);

template <class F, class... Extra> void module_method(const char* name, F&& f, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(f), nb::scope(reinterpret_cast<PyObject*>(module_type)), nb::name(name),
                       nb::is_method(), extra...);
}

}  // namespace sf::py
