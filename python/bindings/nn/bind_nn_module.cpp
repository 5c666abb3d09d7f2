// The Module type: its objects' life, and calls.
#include "python/bindings/nn/bind_nn.h"

#include <map>
#include <typeindex>

#include "python/bindings/core/bind_errors.h"
#include "scaffolding/nn/joined.h"

namespace sf::py {

PyTypeObject* module_type = nullptr;

namespace {

PyObject* g_forward_name = nullptr;
PyObject* g_hooked_call = nullptr;  // nn/hooks.py: call(module, args, kwargs)
std::map<std::string, PyTypeObject*>& types_by_name() {
  static std::map<std::string, PyTypeObject*> types;
  return types;
}

PyModule* cast(PyObject* o) { return reinterpret_cast<PyModule*>(o); }
PyObject* object(PyModule* m) { return reinterpret_cast<PyObject*>(m); }

// A module written in Python.
struct PythonModule final : nn::Module {
  const char* type() const override { return python ? type_name(static_cast<PyObject*>(python)) : "Module"; }
  Value forward_boxed(const nn::Values& args) override { return extension()->call(args); }
};

std::string text_of(nb::handle o) {
  Py_ssize_t n = 0;
  const char* s = PyUnicode_AsUTF8AndSize(o.ptr(), &n);
  if (!s) throw_python_error();
  return {s, size_t(n)};
}

PyObject* own_forward(PyModule* self) {  // borrowed: what stands in the object itself
  return self->dict ? PyDict_GetItemWithError(self->dict, g_forward_name) : nullptr;
}

// A model's forward in Python that only shapes arguments and results around the C++ one:
// C++ callers need not come by it.
bool calls_native(PyObject* f) { return is_function(f) && PyObject_HasAttrString(f, "_calls_native"); }

class PythonExtension final : public nn::Extension {
 public:
  explicit PythonExtension(PyModule* self) : self_(self) {}

  void visit(nn::Visitor& v) override {
    nb::gil_scoped_acquire gil;
    each(self_->parameters, [&](PyObject* name, PyObject* value) {
      v.parameter(text(name), is_tensor(value) ? tensor_of(value) : Tensor());
    });
    each(self_->buffers, [&](PyObject* name, PyObject* value) {
      bool persistent = !self_->transient || PySet_Contains(self_->transient, name) != 1;
      v.buffer(text(name), is_tensor(value) ? tensor_of(value) : Tensor(), persistent);
    });
    each(self_->modules, [&](PyObject* name, PyObject* value) {
      v.module(text(name), is_module(value) ? cast(value)->module : nullptr);
    });
  }

  bool calls() const override {
    nb::gil_scoped_acquire gil;
    if (self_->hooks) return true;
    if (!self_->native) return false;  // PythonModule comes to call() by itself
    if (own_forward(self_)) return true;
    PyTypeObject* type = Py_TYPE(object(self_));
    PyObject* f = type == python_type_of(*self_->module) ? nullptr : type_lookup(type, g_forward_name);
    return f && Py_TYPE(f) != forward_type && !calls_native(f);
  }

  Value call(const nn::Values& args) override {
    nb::gil_scoped_acquire gil;
    nb::object tuple = steal(PyTuple_New(Py_ssize_t(args.size())));
    for (size_t i = 0; i < args.size(); ++i) PyTuple_SET_ITEM(tuple.ptr(), Py_ssize_t(i), checked(to_object(args[i])));
    nb::object keywords;
    if (PyObject* f = own_forward(self_) ? nullptr : type_lookup(Py_TYPE(object(self_)), g_forward_name);
        f && calls_native(f)) {
      keywords = steal(PyDict_New());
      PyDict_SetItemString(keywords.ptr(), "return_dict", Py_False);
    }
    nb::object result = steal(PyObject_Call(object(self_), tuple.ptr(), keywords.ptr()));
    if (keywords.is_valid() && PyTuple_Check(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) == 1)
      return any_value(PyTuple_GET_ITEM(result.ptr(), 0));
    return any_value(result.ptr());
  }

  bool train(bool mode) override {
    nb::gil_scoped_acquire gil;
    nb::object result = steal(PyObject_CallMethod(object(self_), "train", "O", mode ? Py_True : Py_False));
    return true;
  }
  std::string type() override {
    nb::gil_scoped_acquire gil;
    if (Py_TYPE(object(self_)) == module_type && self_->native) return self_->module->type();
    return text_of(steal(PyObject_CallMethod(object(self_), "_get_name", nullptr)));
  }
  std::string extra_repr() override {
    nb::gil_scoped_acquire gil;
    return text_of(steal(PyObject_CallMethod(object(self_), "extra_repr", nullptr)));
  }
  std::string repr() override {
    nb::gil_scoped_acquire gil;
    return text_of(steal(PyObject_Repr(object(self_))));
  }

 private:
  template <class F> void each(PyObject* dict, const F& f) {
    if (!dict || !PyDict_Check(dict)) return;
    nb::object items = steal(PyDict_Items(dict));  // a copy: the visitor may run Python code
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.ptr()); ++i) {
      PyObject* item = PyList_GET_ITEM(items.ptr(), i);
      f(PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1));
    }
  }
  PyModule* self_;
};

void release(PyModule* self);

// The objects of a module's native parts lose them: before the module goes while its object stays (a second __init__).
void release_parts(nn::Module& m) {
  struct Parts : nn::Visitor {
    void module(std::string_view, nn::Module* part) override {
      if (!part) return;
      release_parts(*part);
      if (part->python) release(static_cast<PyModule*>(part->python));
    }
  } parts;
  m.visit(parts);
}

void release(PyModule* self) {  // the C++ part
  nn::Module* m = std::exchange(self->module, nullptr);
  if (!m) return;
  m->extend(nullptr);
  if (m->python == self) m->python = nullptr;
  delete std::exchange(self->extension, nullptr);
  if (!self->owner) delete m;
}

void show(PyModule* self, nn::Module* m, bool native) {
  self->module = m;
  self->native = native;
  m->python = self;
  self->extension = new PythonExtension(self);
  m->extend(self->extension);
}

// ---- slots

PyObject* module_vectorcall(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* keywords);

PyObject* module_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = make_object(type);
  if (o) cast(o)->vectorcall = module_vectorcall;
  return o;
}

int module_init(PyObject* o, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) > 0 || (kwargs && PyDict_GET_SIZE(kwargs) > 0)) {
    PyErr_Format(PyExc_TypeError, "%s.__init__() takes no arguments for Module", type_name(o));
    return -1;
  }
  PyObject* done = guarded([&]() -> PyObject* {
    adopt(cast(o), std::make_unique<PythonModule>(), false);
    return Py_None;
  });
  return done ? 0 : -1;
}

int module_traverse(PyObject* o, visitproc visit, void* arg) {
  PyModule* self = cast(o);
  Py_VISIT(Py_TYPE(o));
  for (PyObject* part : {object(self->owner), self->dict, self->parameters, self->buffers, self->modules,
                         self->transient, self->shown, self->replaced, self->kept, self->hooks, self->arguments})
    Py_VISIT(part);
  return 0;
}

// Leaves `owner` alone: objects of parts further in rely on it to keep the C++ module alive,
// and no cycle consists of owners only.
int module_clear(PyObject* o) {
  PyModule* self = cast(o);
  for (PyObject** part : {&self->dict, &self->parameters, &self->buffers, &self->modules, &self->transient,
                          &self->shown, &self->replaced, &self->kept, &self->hooks, &self->arguments})
    Py_CLEAR(*part);
  return 0;
}

void module_dealloc(PyObject* o) {
  PyModule* self = cast(o);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  SF_PY_UNNESTED_BEGIN(o, module_dealloc)
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  release(self);
  module_clear(o);
  Py_CLEAR(self->owner);
  free_object(type, o);
  Py_DECREF(type);
  SF_PY_UNNESTED_END
}

PyObject* not_initialised(PyObject* o) {
  PyErr_Format(PyExc_AttributeError, "'%s' object is not ready: call super().__init__() first", type_name(o));
  return nullptr;
}

// The function with self before the arguments. `args[-1]` is ours to use when the caller says so.
PyObject* call_with_self(PyObject* function, PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  size_t n = size_t(PyVectorcall_NARGS(nargsf));
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    auto** from = const_cast<PyObject**>(args) - 1;
    PyObject* before = std::exchange(*from, self);
    PyObject* result = PyObject_Vectorcall(function, from, n + 1, keywords);
    *from = before;
    return result;
  }
  size_t all = n + (keywords ? size_t(PyTuple_GET_SIZE(keywords)) : 0);
  std::vector<PyObject*> list{self};
  list.insert(list.end(), args, args + all);
  return PyObject_Vectorcall(function, list.data(), n + 1, keywords);
}

// A part of a C++ model that is no registered layer.
PyObject* call_part(nn::Module& m, PyObject* const* args, size_t n, PyObject* keywords) {
  return guarded([&]() -> PyObject* {
    SF_CHECK_AS(TypeError, !keywords || PyTuple_GET_SIZE(keywords) == 0, m.type(), ": takes no keywords");
    nn::Values values;
    for (size_t i = 0; i < n; ++i) values.push_back(any_value(args[i]));
    Value y;
    {
      MaybeRelease release(true);
      y = m.call_native(values);
    }
    return to_object(std::move(y));
  });
}

// forward without hooks.
PyObject* call_without_hooks(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  PyModule* self = cast(o);
  if (PyObject* own = own_forward(self)) return PyObject_Vectorcall(own, args, nargsf, keywords);
  PyObject* f = type_lookup(Py_TYPE(o), g_forward_name);
  if (!f && self->native) return call_part(*self->module, args, size_t(PyVectorcall_NARGS(nargsf)), keywords);
  if (!f) {
    PyErr_Format(PyExc_NotImplementedError, "Module [%s] is missing the required \"forward\" function", type_name(o));
    return nullptr;
  }
  if (Py_TYPE(f) == forward_type) return call_forward(f, self, args, size_t(PyVectorcall_NARGS(nargsf)), keywords);
  if (is_function(f)) return call_with_self(f, o, args, nargsf, keywords);
  nb::object bound = nb::steal(PyObject_GetAttr(o, g_forward_name));
  return bound ? PyObject_Vectorcall(bound.ptr(), args, nargsf, keywords) : nullptr;
}

// The exception that is set says out of memory: it tells this module too.
void name_in_error(const nn::Module& m) {
  auto& last = last_out_of_memory();
  if (!last || last->module() == &m) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  m.leaves(*last);
  Py_XDECREF(value);
  PyErr_Restore(type, PyUnicode_FromString(last->what()), trace);
}

PyObject* module_vectorcall(PyObject* o, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  PyModule* self = cast(o);
  if (!self->module) return not_initialised(o);
  PyObject* result = self->hooks ? call_with_self(g_hooked_call, o, args, nargsf, keywords)
                                 : call_without_hooks(o, args, nargsf, keywords);
  if (!result && PyErr_ExceptionMatches(out_of_memory_type)) name_in_error(*self->module);
  return result;
}

PyObject* module_repr(PyObject* o) {
  if (!cast(o)->module) return not_initialised(o);
  return guarded([&] {
    std::string s = nn::repr(*cast(o)->module);
    return PyUnicode_FromStringAndSize(s.data(), Py_ssize_t(s.size()));
  });
}

// ---- attributes that every module has

PyObject* get_training(PyObject* o, void*) {
  return cast(o)->module ? PyBool_FromLong(cast(o)->module->training) : not_initialised(o);
}
int set_training(PyObject* o, PyObject* value, void*) {
  if (!cast(o)->module) return not_initialised(o), -1;
  int on = value ? PyObject_IsTrue(value) : 0;
  if (on >= 0) cast(o)->module->training = on;
  return on < 0 ? -1 : 0;
}

PyObject* get_dict_of(PyObject* o, PyObject*(PyModule::*part)) {
  PyModule* self = cast(o);
  if (!self->module) return not_initialised(o);
  if (!(self->*part)) self->*part = PyDict_New();
  return Py_XNewRef(self->*part);
}
template <PyObject*(PyModule::*part)> PyObject* get_part(PyObject* o, void*) { return get_dict_of(o, part); }
template <PyObject*(PyModule::*part)> int set_part(PyObject* o, PyObject* value, void*) {
  if (!value || !PyDict_Check(value)) {
    PyErr_SetString(PyExc_TypeError, "a module's table of members must be a dict");
    return -1;
  }
  Py_XSETREF(cast(o)->*part, Py_NewRef(value));
  return 0;
}

PyObject* get_transient(PyObject* o, void*) {
  PyModule* self = cast(o);
  if (!self->transient) self->transient = PySet_New(nullptr);
  return Py_XNewRef(self->transient);
}
int set_transient(PyObject* o, PyObject* value, void*) {
  if (!value || !PySet_Check(value))
    return PyErr_SetString(PyExc_TypeError, "_non_persistent_buffers_set: must be a set"), -1;
  Py_XSETREF(cast(o)->transient, Py_NewRef(value));
  return 0;
}
PyObject* get_hooks(PyObject* o, void*) { return Py_NewRef(cast(o)->hooks ? cast(o)->hooks : Py_None); }
int set_hooks(PyObject* o, PyObject* value, void*) {
  PyModule* self = cast(o);
  if (!self->module) return not_initialised(o), -1;
  Py_XSETREF(self->hooks, value && value != Py_None ? Py_NewRef(value) : nullptr);
  self->module->calls_changed();
  if (self->hooks) keep_state(self);
  return 0;
}
PyObject* get_arguments(PyObject* o, void*) { return Py_NewRef(cast(o)->arguments ? cast(o)->arguments : Py_None); }
PyObject* get_native(PyObject* o, void*) { return PyBool_FromLong(cast(o)->native); }

PyMemberDef members[] = {
    {"__vectorcalloffset__", SF_PY_PYSSIZET, offsetof(PyModule, vectorcall), SF_PY_READONLY, nullptr},
    {"__dictoffset__", SF_PY_PYSSIZET, offsetof(PyModule, dict), SF_PY_READONLY, nullptr},
    {"__weaklistoffset__", SF_PY_PYSSIZET, offsetof(PyModule, weakrefs), SF_PY_READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"training", get_training, set_training, "Whether the module behaves as in training (dropout, batch statistics).",
     nullptr},
    {"_python_parameters", get_part<&PyModule::parameters>, set_part<&PyModule::parameters>, nullptr, nullptr},
    {"_python_buffers", get_part<&PyModule::buffers>, set_part<&PyModule::buffers>, nullptr, nullptr},
    {"_python_modules", get_part<&PyModule::modules>, set_part<&PyModule::modules>, nullptr, nullptr},
    {"_non_persistent_buffers_set", get_transient, set_transient, nullptr, nullptr},
    {"_replaced_modules", get_part<&PyModule::replaced>, nullptr, nullptr, nullptr},
    {"_hooks", get_hooks, set_hooks, nullptr, nullptr},
    {"_layer_arguments", get_arguments, nullptr, nullptr, nullptr},
    {"_is_native", get_native, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyMethodDef methods[] = {{nullptr, nullptr, 0, nullptr}};

const char* const kDoc =
    "Module()\n--\n\nA piece of a network: tensors to train (Parameter), tensors that are state (Buffer) and other "
    "modules, by "
    "attribute name.\n\n"
    "Subclasses call super().__init__(), assign members and define forward(); calling the module runs forward and its "
    "hooks.";

PyTypeObject* make_module_type() {
  PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(module_new)},
                         {Py_tp_init, reinterpret_cast<void*>(module_init)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(module_dealloc)},
                         {Py_tp_traverse, reinterpret_cast<void*>(module_traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(module_clear)},
                         {Py_tp_getattro, reinterpret_cast<void*>(module_getattro)},
                         {Py_tp_setattro, reinterpret_cast<void*>(module_setattro)},
                         {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_repr, reinterpret_cast<void*>(module_repr)},
                         {Py_tp_members, members},
                         {Py_tp_getset, getset},
                         {Py_tp_methods, methods},
                         {Py_tp_doc, const_cast<char*>(kDoc)},
                         {0, nullptr}};
  PyType_Spec spec{"scaffolding.nn.Module", sizeof(PyModule), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  return make_type(spec);
}

// A subclass written in Python gets CPython's slower attribute lookup, because Module has a __getattr__ for super()
// to find.
// Where the subclass has none of its own, ours does the same faster.
void init_subclass(nb::handle type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type.ptr());
  auto same = [&](const char* name) {
    nb::object key = steal(PyUnicode_InternFromString(name));
    return type_lookup(t, key.ptr()) == type_lookup(module_type, key.ptr());
  };
#ifdef Py_LIMITED_API
  // The stable ABI lets nobody write to a type's slots, and from 3.12 on Python keeps the flag itself.
  static_cast<void>(t);
  static_cast<void>(same);
#else
  if (same("__getattr__") && same("__getattribute__")) t->tp_getattro = module_getattro;
  if (same("__setattr__") && same("__delattr__")) t->tp_setattro = module_setattro;
  if (same("__call__")) t->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
#endif
}

}  // namespace

PyModule& module_object(nb::handle o, const char* op) {
  SF_CHECK_AS(TypeError, is_module(o.ptr()), op, ": needs a module, got ", type_name(o.ptr()));
  auto* m = cast(o.ptr());
  SF_CHECK_AS(RuntimeError, m->module, op, ": ", type_name(o.ptr()), " is not ready: call super().__init__() first");
  return *m;
}

void adopt(PyModule* self, std::unique_ptr<nn::Module> m, bool native) {
  if (self->module && !self->owner) release_parts(*self->module);
  release(self);
  Py_CLEAR(self->owner);
  for (PyObject** part : {&self->transient, &self->shown, &self->replaced, &self->kept, &self->hooks, &self->arguments})
    Py_CLEAR(*part);
  for (PyObject** part : {&self->parameters, &self->buffers, &self->modules})
    Py_XSETREF(*part, native ? nullptr : checked(PyDict_New()));
  show(self, m.release(), native);
  self->module->calls_changed();
}

PyObject* wrap_module(nn::Module& m, PyModule* parent) {
  if (m.python) return Py_NewRef(static_cast<PyObject*>(m.python));
  PyTypeObject* type = python_type_of(m);
  PyObject* o = make_object(type);
  if (!o) return nullptr;
  cast(o)->vectorcall = module_vectorcall;
  cast(o)->owner = reinterpret_cast<PyModule*>(Py_NewRef(object(parent)));
  show(cast(o), &m, true);
  return o;
}

void keep_state(PyModule* self) {
  for (; self->owner; self = self->owner) {
    PyObject*& kept = self->owner->kept;
    if (!kept) kept = checked(PyList_New(0));
    if (PySequence_Contains(kept, object(self)) == 1) return;
    if (PyList_Append(kept, object(self)) < 0) throw_python_error();
  }
}

PyTypeObject* python_type_of(const nn::Module& m) {
  const nn::LayerEntry* layer = nn::find_layer(m);
  auto it = types_by_name().find(layer ? layer->name : m.type());
  return it == types_by_name().end() ? module_type : it->second;
}

NativeMember native_member(nn::Module& m, std::string_view name) {
  struct Find : nn::Visitor {
    std::string_view wanted;
    NativeMember found;
    void parameter(std::string_view n, const Tensor& t) override {
      if (n == wanted) found = {NativeMember::Parameter, &t, nullptr, true};
    }
    void buffer(std::string_view n, const Tensor& t, bool persistent) override {
      if (n == wanted) found = {NativeMember::Buffer, &t, nullptr, persistent};
    }
    void module(std::string_view n, nn::Module* child) override {
      if (n == wanted) found = {NativeMember::Module, nullptr, child, true};
    }
  } find;
  find.wanted = name;
  m.visit(find);
  return find.found;
}

PyObject* show_tensor(PyModule* self, PyObject* name, const Tensor& t) {
  if (!t) return Py_NewRef(Py_None);
  if (self->shown)
    if (PyObject* o = PyDict_GetItemWithError(self->shown, name); o && is_tensor(o) && tensor_of(o).is_same(t))
      return Py_NewRef(o);
  PyObject* o = checked(wrap(t));
  if (!self->shown) self->shown = checked(PyDict_New());
  if (PyDict_SetItem(self->shown, name, o) < 0) throw_python_error();
  return o;
}

Value any_value(PyObject* o) {
  if (o == Py_None) return std::monostate{};
  if (is_tensor(o)) return tensor_of(o);
  Scalar s;
  if (to_scalar(o, s)) {
    if (s.kind() == Scalar::Bool) return s.to_bool();
    if (s.kind() == Scalar::Int) return s.to_int();
    return s.to_double();
  }
  if (PyUnicode_Check(o)) return text_of(o);
  if (PyTuple_Check(o) || PyList_Check(o)) {
    for (ArgKind kind : {ArgKind::Tensors, ArgKind::Ints, ArgKind::Floats}) {
      try {
        return to_value("module", ArgInfo{"value", kind, false, false, {}}, o);
      } catch (const TypeError&) {  // the next kind
      }
    }
  }
  DType dtype;
  if (to_dtype(o, dtype)) return dtype;
  Device device;
  if (!PyUnicode_Check(o) && to_device(o, device)) return device;
  fail<TypeError>(
      "module: C++ code calls this module, which takes and returns tensors, numbers, strings and lists of them, got ",
      type_name(o));
}

// The C++ module of a layer that is called as its class was made; null where something of it was replaced in Python.
static const nn::Module* unchanged(PyObject* o) {
  if (!is_module(o) || !cast(o)->module || Py_TYPE(o) != python_type_of(*cast(o)->module)) return nullptr;
  PyObject* forward = type_lookup(Py_TYPE(o), g_forward_name);
  return forward && Py_TYPE(forward) == forward_type ? cast(o)->module : nullptr;
}

// Three neighbours of a Sequential as one op (nn/joined.h), or None.
static nb::object joined(nb::handle input, nb::handle first, nb::handle activation, nb::handle second) {
  const nn::Module *a = unchanged(first.ptr()), *b = unchanged(activation.ptr()), *c = unchanged(second.ptr());
  if (!a || !b || !c || !is_tensor(input.ptr())) return nb::none();
  Tensor y;
  {
    MaybeRelease release(true);
    y = nn::joined(tensor_of(input.ptr()), *a, *b, *c);
  }
  return y ? steal(to_object(std::move(y))) : nb::none();
}

void bind_nn(nb::module_& m) {
  g_forward_name = checked(PyUnicode_InternFromString("forward"));
  module_type = make_module_type();
  m.attr("_Module") = nb::handle(reinterpret_cast<PyObject*>(module_type));
  bind_members(m);
  bind_walks(m);
  m.def("_init_module_subclass", &init_subclass);
  m.def("_set_hooked_call", [](nb::handle f) { Py_XSETREF(g_hooked_call, Py_NewRef(f.ptr())); });
  m.def("_register_module_type", [](const char* name, nb::handle type) {
    types_by_name()[name] = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr()));
  });
  m.def("_call_forward", [](nb::handle self, nb::tuple args, nb::dict kwargs) {  // without hooks
    nb::object keywords = nb::steal(PyDict_Size(kwargs.ptr()) > 0 ? PySequence_Tuple(kwargs.ptr()) : nullptr);
    module_object(self, "forward");
    std::vector<PyObject*> all;
    for (nb::handle a : args) all.push_back(a.ptr());
    for (auto [k, v] : kwargs) all.push_back(v.ptr());
    return steal(call_without_hooks(self.ptr(), all.data(), nb::len(args), keywords.ptr()));
  });
  m.def("_joined", &joined);
  bind_layers(m);
}

}  // namespace sf::py
