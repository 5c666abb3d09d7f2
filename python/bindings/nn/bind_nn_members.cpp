// Attributes of modules: torch's rules of what registers as a parameter, a buffer or a module.
#include "python/bindings/nn/bind_nn.h"

namespace sf::py {

namespace {

PyTypeObject* g_buffer_type = nullptr;
PyObject* g_persistent = nullptr;

PyModule* cast(PyObject* o) { return reinterpret_cast<PyModule*>(o); }
std::string_view view(PyObject* name) {
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(name, &n);
  if (!s) throw_python_error();
  return {s, size_t(n)};
}

PyObject* lookup(PyObject* dict, PyObject* name) {  // borrowed
  return dict ? PyDict_GetItemWithError(dict, name) : nullptr;
}
void erase(PyObject* dict, PyObject* name) {
  if (lookup(dict, name) && PyDict_DelItem(dict, name) < 0) throw_python_error();
}
void store(PyObject*& dict, PyObject* name, PyObject* value) {
  if (!dict) dict = checked(PyDict_New());
  if (PyDict_SetItem(dict, name, value) < 0) throw_python_error();
}
[[noreturn]] void raise(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw_python_error();
}
std::string name_of(PyObject* name) { return std::string(view(name)); }
std::string type_of(PyObject* o) { return type_name(o); }

// The member of that name, or null. A new reference.
PyObject* find_member(PyModule* self, PyObject* name) {
  for (PyObject* dict : {self->parameters, self->modules, self->buffers})
    if (PyObject* v = lookup(dict, name)) return Py_NewRef(v);
  if (!self->native || PyErr_Occurred()) return nullptr;
  return guarded([&]() -> PyObject* {
    NativeMember m = native_member(*self->module, view(name));
    switch (m.kind) {
      case NativeMember::None: return nullptr;
      case NativeMember::Module:
        if (PyObject* v = lookup(self->replaced, name)) return Py_NewRef(v);
        return m.module ? wrap_module(*m.module->present(), self) : Py_NewRef(Py_None);
      case NativeMember::Parameter:
        if (*m.tensor) m.tensor->impl()->is_parameter = true;
        [[fallthrough]];
      case NativeMember::Buffer: return show_tensor(self, name, *m.tensor);
    }
    return nullptr;
  });
}

PyObject* no_attribute(PyObject* o, PyObject* name) {
  PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", type_name(o), name);
  return nullptr;
}

// ---- registering

void check_name(const char* what, PyObject* name) {
  if (!PyUnicode_Check(name))
    raise(PyExc_TypeError, std::string(what) + " name should be a string. Got " + type_of(name));
  std::string_view s = view(name);
  if (s.find('.') != s.npos)
    raise(PyExc_KeyError, std::string(what) + " name can't contain \".\", got: " + std::string(s));
  if (s.empty()) raise(PyExc_KeyError, std::string(what) + " name can't be empty string \"\"");
}

// A name that is taken by something that is not a member of this kind.
void check_free(PyObject* o, PyObject* name, PyObject* dict, NativeMember::Kind kind) {
  if (lookup(dict, name)) return;
  PyModule* self = cast(o);
  if (self->native && native_member(*self->module, view(name)).kind == kind) return;
  nb::object there = nb::steal(PyObject_GetAttr(o, name));
  if (there) raise(PyExc_KeyError, "attribute '" + name_of(name) + "' already exists");
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw_python_error();
  PyErr_Clear();
}

Tensor& native_slot(PyModule* self, PyObject* name) {
  return const_cast<Tensor&>(*native_member(*self->module, view(name)).tensor);
}

void set_native_tensor(PyModule* self, PyObject* name, PyObject* value) {
  native_slot(self, name) = is_tensor(value) ? tensor_of(value) : Tensor();
  if (self->shown) erase(self->shown, name);
  if (is_tensor(value)) store(self->shown, name, value);
}

void check_ready(PyModule* self, const char* what) {
  if (!self->module)
    raise(PyExc_AttributeError, std::string("cannot assign ") + what + " before Module.__init__() call");
}

void put_parameter(PyObject* o, PyObject* name, PyObject* value) {
  PyModule* self = cast(o);
  if (value != Py_None) {
    if (!is_parameter(value))
      raise(PyExc_TypeError, "cannot assign '" + type_of(value) + "' object to parameter '" + name_of(name) +
                                 "' (nn.Parameter or None required)");
    if (!tensor_of(value).is_leaf())
      raise(PyExc_ValueError, "Cannot assign non-leaf Tensor to parameter '" + name_of(name) +
                                  "'. Model parameters must be created explicitly. To express '" + name_of(name) +
                                  "' as a function of another Tensor, compute the value in the forward() method.");
  }
  if (self->native && native_member(*self->module, view(name)).kind == NativeMember::Parameter)
    return set_native_tensor(self, name, value);
  store(self->parameters, name, value);
  keep_state(self);
}

void put_buffer(PyObject* o, PyObject* name, PyObject* value, bool persistent) {
  PyModule* self = cast(o);
  if (self->native && native_member(*self->module, view(name)).kind == NativeMember::Buffer)
    return set_native_tensor(self, name, value);
  store(self->buffers, name, value);
  if (persistent) {
    if (self->transient) PySet_Discard(self->transient, name);
  } else {
    if (!self->transient) self->transient = checked(PySet_New(nullptr));
    if (PySet_Add(self->transient, name) < 0) throw_python_error();
  }
  keep_state(self);
}

// `value` is called and walked in the place of a member of a C++ class. The member itself stays where it is, for an
// adapter that keeps it inside.
void replace_native_module(PyModule* self, PyObject* name, nn::Module* member, PyObject* value) {
  auto who = [&] { return type_name(reinterpret_cast<PyObject*>(self)); };
  SF_CHECK_AS(TypeError, member, who(), ": '", view(name),
              "' is an absent member of a C++ module, which would not call what is put there");
  SF_CHECK_AS(TypeError, value != Py_None, who(), ": '", view(name),
              "' is a member of a C++ module, which calls it, and cannot be None; assign a module");
  PyModule* stand_in = cast(value);
  SF_CHECK_AS(RuntimeError, stand_in->module, who(), ": ", type_of(value),
              " is not ready: call super().__init__() first");
  nb::object member_object = nb::steal(wrap_module(*member, self));
  keep_state(cast(member_object.ptr()));
  bool same = stand_in->module == member;
  nb::object hold = nb::borrow(value);
  if (same) member->replace_by(nullptr);
  else member->replace_by([stand_in] { return stand_in->module; });
  if (self->replaced) erase(self->replaced, name);
  if (!same) store(self->replaced, name, value);
}

void put_module(PyObject* o, PyObject* name, PyObject* value) {
  PyModule* self = cast(o);
  if (self->native)
    if (NativeMember m = native_member(*self->module, view(name)); m.kind == NativeMember::Module)
      return replace_native_module(self, name, m.module, value);
  store(self->modules, name, value);
  keep_state(self);
}

void register_parameter(nb::handle o, nb::handle name, nb::handle param) {
  check_ready(cast(o.ptr()), "parameter");
  check_name("parameter", name.ptr());
  check_free(o.ptr(), name.ptr(), cast(o.ptr())->parameters, NativeMember::Parameter);
  put_parameter(o.ptr(), name.ptr(), param.ptr());
}

void register_buffer(nb::handle o, nb::handle name, nb::handle tensor, bool persistent) {
  check_ready(cast(o.ptr()), "buffer");
  check_name("buffer", name.ptr());
  check_free(o.ptr(), name.ptr(), cast(o.ptr())->buffers, NativeMember::Buffer);
  if (!tensor.is_none() && !is_tensor(tensor.ptr()))
    raise(PyExc_TypeError, "cannot assign '" + type_of(tensor.ptr()) + "' object to buffer '" + name_of(name.ptr()) +
                               "' (Tensor or None required)");
  put_buffer(o.ptr(), name.ptr(), tensor.ptr(), persistent);
}

void add_module(nb::handle o, nb::handle name, nb::handle module) {
  check_ready(cast(o.ptr()), "module");
  if (!module.is_none() && !is_module(module.ptr()))
    raise(PyExc_TypeError, type_of(module.ptr()) + " is not a Module subclass");
  check_name("module", name.ptr());
  check_free(o.ptr(), name.ptr(), cast(o.ptr())->modules, NativeMember::Module);
  put_module(o.ptr(), name.ptr(), module.ptr());
}

// ---- assigning

void forget(PyModule* self, PyObject* name, PyObject* but) {  // a member of another kind, or a plain attribute
  for (PyObject* dict : {self->dict, self->parameters, self->buffers, self->modules})
    if (dict && dict != but) erase(dict, name);
  if (self->transient && but != self->buffers) PySet_Discard(self->transient, name);
}

enum class Kind { None, Parameter, Buffer, Module };

Kind member_kind(PyModule* self, PyObject* name) {
  if (lookup(self->parameters, name)) return Kind::Parameter;
  if (lookup(self->modules, name)) return Kind::Module;
  if (lookup(self->buffers, name)) return Kind::Buffer;
  if (!self->native) return Kind::None;
  switch (native_member(*self->module, view(name)).kind) {
    case NativeMember::Parameter: return Kind::Parameter;
    case NativeMember::Buffer: return Kind::Buffer;
    case NativeMember::Module: return Kind::Module;
    default: return Kind::None;
  }
}

bool is_buffer(PyObject* o) { return g_buffer_type && PyType_IsSubtype(Py_TYPE(o), g_buffer_type); }

bool buffer_persistence(PyModule* self, PyObject* name, PyObject* value) {
  if (is_buffer(value)) {
    nb::object p = nb::steal(PyObject_GetAttr(value, g_persistent));
    return !p || PyObject_IsTrue(p.ptr()) == 1;
  }
  return !self->transient || PySet_Contains(self->transient, name) != 1;
}

// Whether the assignment was one of a member.
bool assign_member(PyObject* o, PyObject* name, PyObject* value) {
  PyModule* self = cast(o);
  if (is_parameter(value)) {
    check_ready(self, "parameters");
    if (member_kind(self, name) != Kind::Parameter) {
      forget(self, name, self->parameters);
      check_name("parameter", name);
      check_free(o, name, self->parameters, NativeMember::Parameter);
    }
    return put_parameter(o, name, value), true;
  }
  if (is_module(value)) {
    check_ready(self, "module");
    if (member_kind(self, name) != Kind::Module) forget(self, name, self->modules);
    return put_module(o, name, value), true;
  }
  if (is_buffer(value)) {
    check_ready(self, "buffers");
    if (member_kind(self, name) != Kind::Buffer) forget(self, name, self->buffers);
    return put_buffer(o, name, value, buffer_persistence(self, name, value)), true;
  }
  if (!self->module) return false;
  Kind kind = member_kind(self, name);
  if (kind == Kind::None) return false;
  bool none = value == Py_None;
  const char* wanted = kind == Kind::Parameter ? "parameter" : kind == Kind::Module ? "child module" : "buffer";
  const char* rule = kind == Kind::Parameter ? "nn.Parameter or None"
                     : kind == Kind::Module  ? "nn.Module or None"
                                             : "Tensor, Buffer or None";
  if (!none && !(kind == Kind::Buffer && is_tensor(value)))
    raise(PyExc_TypeError,
          "cannot assign '" + type_of(value) + "' as " + wanted + " '" + name_of(name) + "' (" + rule + " expected)");
  if (kind == Kind::Parameter) put_parameter(o, name, value);
  else if (kind == Kind::Module) put_module(o, name, value);
  else put_buffer(o, name, value, buffer_persistence(self, name, value));
  return true;
}

bool delete_member(PyObject* o, PyObject* name) {
  PyModule* self = cast(o);
  for (PyObject* dict : {self->parameters, self->buffers, self->modules}) {
    if (!lookup(dict, name)) continue;
    erase(dict, name);
    if (self->transient) PySet_Discard(self->transient, name);
    return true;
  }
  if (self->native && native_member(*self->module, view(name)).kind != NativeMember::None)
    fail<TypeError>(type_name(o), ": '", view(name), "' is part of the layer and cannot be deleted; assign None");
  return false;
}

// A value that is computed, or none: in the place of a layer's own tensor, past the rules of assignment.
void place_tensor(nb::handle o, nb::handle name, nb::handle value) {
  PyModule* self = cast(o.ptr());
  SF_CHECK_AS(TypeError, is_module(o.ptr()) && self->module && self->native, "_place_tensor: needs a layer");
  const NativeMember::Kind kind = native_member(*self->module, view(name.ptr())).kind;
  SF_CHECK_AS(TypeError, kind == NativeMember::Parameter || kind == NativeMember::Buffer, "_place_tensor: '",
              view(name.ptr()), "' is not a tensor of the layer");
  native_slot(self, name.ptr()) = value.is_none() ? Tensor() : tensor_of(value.ptr());
  if (self->shown) erase(self->shown, name.ptr());
}

void set_native(nb::handle o, nb::handle name, nb::handle value) {  // for the live tables of members (nn/members.py)
  if (!assign_member(o.ptr(), name.ptr(), value.ptr()))
    raise(PyExc_KeyError, "'" + name_of(name.ptr()) + "' is not a member");
}

}  // namespace

PyObject* module_getattro(PyObject* o, PyObject* name) {
  PyModule* self = cast(o);
  if (type_lookup(Py_TYPE(o), name)) return PyObject_GenericGetAttr(o, name);
  if (PyObject* v = lookup(self->dict, name)) return Py_NewRef(v);
  if (PyObject* v = find_member(self, name)) return v;
  if (PyErr_Occurred()) return nullptr;
  return no_attribute(o, name);
}

int module_setattro(PyObject* o, PyObject* name, PyObject* value) {
  PyModule* self = cast(o);
  PyObject* done = guarded([&]() -> PyObject* {
    if (value ? assign_member(o, name, value) : delete_member(o, name)) return Py_None;
    int r = PyObject_GenericSetAttr(o, name, value);
    if (r < 0) throw_python_error();
    if (self->owner && self->dict) keep_state(self);
    if (self->native && self->module) self->module->calls_changed();  // self.forward = ...
    return Py_None;
  });
  return done ? 0 : -1;
}

void bind_members(nb::module_& m) {
  g_persistent = checked(PyUnicode_InternFromString("persistent"));
  module_method("register_parameter", &register_parameter, nb::arg("name"), nb::arg("param").none(),
                "Adds param under a name; None keeps the name without a parameter.");
  module_method("register_buffer", &register_buffer, nb::arg("name"), nb::arg("tensor").none(),
                nb::arg("persistent") = true,
                "Adds a tensor under a name that is state but not trained. Only persistent ones are in state_dict().");
  module_method("add_module", &add_module, nb::arg("name"), nb::arg("module").none(),
                "Adds a child module under a name.");
  module_method("register_module", &add_module, nb::arg("name"), nb::arg("module").none(),
                "Adds a child module under a name.");
  module_method(
      "__getattr__",
      [](nb::handle o, nb::handle name) {
        PyObject* v = find_member(cast(o.ptr()), name.ptr());
        if (!v && !PyErr_Occurred()) no_attribute(o.ptr(), name.ptr());
        return steal(v);
      },
      nb::arg("name"));
  module_method("_set_member", &set_native, nb::arg("name"), nb::arg("value").none());
  m.def("_place_tensor", &place_tensor, nb::arg("module"), nb::arg("name"), nb::arg("value").none());
  m.def("_register_buffer_type",
        [](nb::handle type) { g_buffer_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr())); });
}

}  // namespace sf::py
