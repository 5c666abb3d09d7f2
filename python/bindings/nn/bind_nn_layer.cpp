// Every registered layer as a Python class: constructor, forward and attributes come from the registry.
#include "python/bindings/nn/bind_nn.h"

#include <unordered_map>

#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/layer.h"
#include "scaffolding/nn/streaming/residence.h"

namespace sf::py {

PyTypeObject* forward_type = nullptr;

namespace {

struct LayerClass {
  const nn::LayerEntry* layer;
  nb::object names, forward_names;
  std::vector<PyGetSetDef> fields;
  std::string spec_name;
};
// never freed: it outlives the interpreter
auto& g_classes = *new std::unordered_map<PyTypeObject*, std::unique_ptr<LayerClass>>;

const LayerClass* class_of(PyTypeObject* type) {
  PyObject* mro = type_mro(type);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i)
    if (auto it = g_classes.find(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i))); it != g_classes.end())
      return it->second.get();
  return nullptr;
}

// ---- forward: a descriptor, so that super().forward(x) and Linear.forward(layer, x) work

struct Forward {
  PyObject_HEAD vectorcallfunc vectorcall;
  const LayerClass* cls;
};

const LayerClass& cls_of(PyObject* f) { return *reinterpret_cast<Forward*>(f)->cls; }

PyObject* forward_vectorcall(PyObject* f, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  size_t n = size_t(PyVectorcall_NARGS(nargsf));
  if (n == 0 || !is_module(args[0])) {
    PyErr_Format(PyExc_TypeError, "%s.forward: needs a module before its arguments", cls_of(f).layer->name.c_str());
    return nullptr;
  }
  return call_forward(f, reinterpret_cast<PyModule*>(args[0]), args + 1, n - 1, keywords);
}

PyObject* forward_get(PyObject* f, PyObject* o, PyObject*) {
  if (!o || o == Py_None) return Py_NewRef(f);
  return bound_method(f, o);
}
PyObject* forward_signature(PyObject* f, void*) {
  return guarded([&] { return signature_of("self, " + cls_of(f).layer->forward_params).release().ptr(); });
}
PyObject* forward_doc(PyObject* f, void*) {
  const nn::LayerEntry& layer = *cls_of(f).layer;
  return guarded([&] {
    nb::object documents = nb::module_::import_("scaffolding._documents");
    const std::string doc = "forward(" + layer.forward_params + ")\n\nA call of the layer: see the class.";
    const bool of_nn = layer.home == "nn";
    return documents.attr("document")(doc, of_nn ? "forward" : "functions", layer.name).release().ptr();
  });
}
PyObject* forward_name(PyObject*, void*) { return PyUnicode_FromString("forward"); }
PyObject* forward_qualname(PyObject* f, void*) {
  return PyUnicode_FromString((cls_of(f).layer->name + ".forward").c_str());
}

PyTypeObject* make_forward_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", SF_PY_PYSSIZET, offsetof(Forward, vectorcall), SF_PY_READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef getset[] = {{"__doc__", forward_doc, nullptr, nullptr, nullptr},
                                 {"__signature__", forward_signature, nullptr, nullptr, nullptr},
                                 {"__name__", forward_name, nullptr, nullptr, nullptr},
                                 {"__qualname__", forward_qualname, nullptr, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(forward_get)},
                         {Py_tp_members, members},
                         {Py_tp_getset, getset},
                         {0, nullptr}};
  PyType_Spec spec{"scaffolding.nn.LayerForward", sizeof(Forward), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                       Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   slots};
  return make_type(spec);
}

// ---- construction

// The module of a class from positional and keyword arguments; `where` replaces the device,
// for a module whose values come later.
std::unique_ptr<nn::Module> make(const LayerClass& cls, PyObject* args, PyObject* kwargs, nb::object* remembered,
                                 std::optional<Device> where = {}) {
  std::vector<PyObject*> all;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) all.push_back(PyTuple_GET_ITEM(args, i));
  nb::object keywords;
  if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
    keywords = steal(PySequence_Tuple(kwargs));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);) all.push_back(value);
  }
  const nn::LayerEntry& layer = *cls.layer;
  Parameters parameters{layer.name, layer.params, layer.args, cls.names.ptr(), true};
  Arguments arguments(parameters, all.data(), size_t(PyTuple_GET_SIZE(args)), keywords.ptr());
  nn::Values values(arguments.values().begin(), arguments.values().end());
  if (remembered) {
    *remembered = steal(PyTuple_New(Py_ssize_t(values.size())));
    for (size_t i = 0; i < values.size(); ++i)
      PyTuple_SET_ITEM(remembered->ptr(), Py_ssize_t(i), checked(to_object(values[i])));
  }
  if (where)
    for (size_t i = 0; i < values.size(); ++i)
      if (layer.args[i].kind == ArgKind::Device) values[i] = *where;
  return layer.make(values);
}

int layer_init(PyObject* o, PyObject* args, PyObject* kwargs) {
  PyObject* done = guarded([&]() -> PyObject* {
    const LayerClass* cls = class_of(Py_TYPE(o));
    SF_CHECK_AS(TypeError, cls, type_name(o), ": not a layer");
    nb::object remembered, none;
    if (cls->layer->any_arguments) none = steal(PyTuple_New(0)), args = none.ptr(), kwargs = nullptr;
    auto module = make(*cls, args, kwargs, &remembered);
    auto* self = reinterpret_cast<PyModule*>(o);
    adopt(self, std::move(module), true);
    self->arguments = remembered.release().ptr();
    return Py_None;
  });
  return done ? 0 : -1;
}

// ---- attributes

nn::Module* layer_module(PyObject* o, const nn::LayerField& field) {
  auto* self = reinterpret_cast<PyModule*>(o);
  const LayerClass* cls = class_of(Py_TYPE(o));
  SF_CHECK_AS(RuntimeError, self->module && cls && self->native && nn::find_layer(*self->module) == cls->layer,
              type_name(o), ": is not ready, call super().__init__() first to have '", field.name, "'");
  return self->module;
}

PyObject* plain(Value v) {  // sizes as plain tuples, as torch has them
  if (auto* s = std::get_if<Shape>(&v)) return checked(PySequence_Tuple(steal(wrap_size(*s)).ptr()));
  if (auto* f = std::get_if<Floats>(&v)) return checked(PySequence_Tuple(steal(to_object(*f)).ptr()));
  return to_object(std::move(v));
}

PyObject* get_field(PyObject* o, void* closure) {
  auto& field = *static_cast<const nn::LayerField*>(closure);
  return guarded([&] { return plain(field.get(*layer_module(o, field))); });
}
int set_field(PyObject* o, PyObject* value, void* closure) {
  auto& field = *static_cast<const nn::LayerField*>(closure);
  PyObject* done = guarded([&]() -> PyObject* {
    const std::string owner = type_name(o);
    SF_CHECK_AS(TypeError, value, owner, ": '", field.name, "' cannot be deleted");
    field.set(*layer_module(o, field), layer_value(owner, field.info, value));
    return Py_None;
  });
  return done ? 0 : -1;
}

PyTypeObject* make_layer_type(LayerClass& cls) {
  for (auto& field : cls.layer->fields)
    cls.fields.push_back({field.name.c_str(), get_field, set_field, nullptr, const_cast<nn::LayerField*>(&field)});
  cls.fields.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});
  cls.spec_name = "scaffolding.nn." + cls.layer->name;
  static std::vector<std::unique_ptr<std::string>> docs;
  docs.push_back(
      std::make_unique<std::string>(cls.layer->name + "(" + cls.layer->params + ")\n--\n\n" + cls.layer->help));
  PyType_Slot slots[] = {{Py_tp_init, reinterpret_cast<void*>(layer_init)},
                         {Py_tp_dealloc, PyType_GetSlot(module_type, Py_tp_dealloc)},
                         {Py_tp_traverse, PyType_GetSlot(module_type, Py_tp_traverse)},
                         {Py_tp_clear, PyType_GetSlot(module_type, Py_tp_clear)},
                         {Py_tp_getset, cls.fields.data()},
                         {Py_tp_doc, docs.back()->data()},
                         {Py_tp_getattro, reinterpret_cast<void*>(module_getattro)},
                         {Py_tp_setattro, reinterpret_cast<void*>(module_setattro)},
                         {0, nullptr}};
  PyType_Spec spec{cls.spec_name.c_str(), sizeof(PyModule), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, slots};
  nb::object bases = nb::steal(PyTuple_Pack(1, module_type));
  return make_type(spec, bases.ptr());
}

// For pickling and copying: the module of a class from remembered arguments, without drawing initial values.
void rebuild(nb::handle self, nb::tuple arguments) {
  SF_CHECK_AS(TypeError, is_module(self.ptr()), "_rebuild: needs a module");
  const LayerClass* cls = class_of(Py_TYPE(self.ptr()));
  SF_CHECK_AS(TypeError, cls, type_name(self.ptr()), ": not a layer");
  auto* m = reinterpret_cast<PyModule*>(self.ptr());
  adopt(m, make(*cls, arguments.ptr(), nullptr, nullptr, Device(Device::Meta)), true);
  m->arguments = Py_NewRef(arguments.ptr());
}

// A call of a layer beside forward, by name.
PyObject* call_method(nb::handle o, const std::string& name, nb::args args, nb::kwargs kwargs) {
  nn::Module& m = module_of(o, name.c_str());
  const nn::LayerEntry* layer = nn::find_layer(m);
  const nn::LayerMethod* method = nullptr;
  if (layer)
    for (auto& each : layer->methods)
      if (each.name == name) method = &each;
  SF_CHECK_AS(TypeError, method, m.type(), ": has no method '", name, "'");
  std::vector<PyObject*> all;
  for (nb::handle a : args) all.push_back(a.ptr());
  nb::object keywords = nb::steal(PyDict_Size(kwargs.ptr()) > 0 ? PySequence_Tuple(kwargs.ptr()) : nullptr);
  for (auto [key, value] : kwargs) all.push_back(value.ptr());
  nb::object names = interned_names(method->args);
  std::string owner = layer->name + "." + name;
  Parameters parameters{owner, method->params, method->args, names.ptr(), true};
  Arguments arguments(parameters, all.data(), nb::len(args), keywords.ptr());
  Value y;
  {
    MaybeRelease release(arguments.large());
    y = method->call(m, arguments.values());
  }
  return to_object(std::move(y));
}

}  // namespace

const nn::LayerEntry* layer_of(PyTypeObject* type) {
  const LayerClass* cls = class_of(type);
  return cls ? cls->layer : nullptr;
}

PyObject* call_forward(PyObject* f, PyModule* self, PyObject* const* args, size_t n, PyObject* keywords) {
  const LayerClass& cls = cls_of(f);
  const nn::LayerEntry& layer = *cls.layer;
  return guarded([&]() -> PyObject* {
    nn::Module* m = self->module;
    SF_CHECK_AS(RuntimeError, m && self->native, layer.name, ": is not ready: call super().__init__() first");
    SF_CHECK_AS(TypeError, layer.type == typeid(*m), layer.name, ".forward: called on a ", m->type());
    try {
      if (layer.unary && n == 1 && !keywords && is_tensor(args[0]) && !m->has_hooks() && !m->adapter()) {
        const Tensor& x = tensor_of(args[0]);
        Tensor y;
        {
          MaybeRelease release(x.numel() > kReleaseAbove);
          y = layer.unary(*m, x);
        }
        return wrap(std::move(y));
      }
      Parameters parameters{layer.name, layer.forward_params, layer.forward_args, cls.forward_names.ptr(), true};
      Arguments arguments(parameters, args, n, keywords);
      Value y;
      {
        MaybeRelease release(arguments.large());
        const bool is_seen = m->has_hooks() || m->adapter() || nn::residence_of(*m);
        y = is_seen ? m->call_native({arguments.values().begin(), arguments.values().end()})
                    : layer.call(*m, arguments.values());
      }
      return to_object(std::move(y));
    } catch (OutOfMemory& e) {
      m->leaves(e);
      throw;
    }
  });
}

void bind_layers(nb::module_& m) {
  forward_type = make_forward_type();
  nb::list names;
  for (const nn::LayerEntry* layer : nn::all_layers()) {
    auto cls = std::make_unique<LayerClass>();
    cls->layer = layer;
    cls->names = interned_names(layer->args);
    cls->forward_names = interned_names(layer->forward_args);
    PyTypeObject* type = make_layer_type(*cls);
    nb::handle handle(reinterpret_cast<PyObject*>(type));
    handle.attr("__module__") = ("scaffolding." + layer->home).c_str();
    if (layer->call) {
      auto* f = reinterpret_cast<Forward*>(checked(make_object(forward_type)));
      f->vectorcall = forward_vectorcall;
      f->cls = cls.get();
      handle.attr("forward") = nb::steal(reinterpret_cast<PyObject*>(f));
    }
    m.attr(("_layer_" + layer->name).c_str()) = handle;
    m.attr("_register_module_type")(layer->name.c_str(), handle);
    if (layer->home == "nn") names.append(nb::str(layer->name.c_str()));
    g_classes.emplace(type, std::move(cls));
  }
  m.attr("_layer_names") = names;
  m.def("_rebuild_layer", &rebuild);
  // By name: {argument: (kind, whether None is a value)} of constructor, forward and attributes. For stubs.
  m.def("_layer_types", [] {
    auto kinds = [](auto& list, auto&& info_of) {
      nb::dict types;
      for (auto& each : list) {
        const ArgInfo& a = info_of(each);
        types[each.name.c_str()] = nb::make_tuple(name(a.kind), nb::bool_(a.optional));
      }
      return types;
    };
    auto itself = [](const ArgInfo& a) -> const ArgInfo& { return a; };
    auto of_field = [](const nn::LayerField& f) -> const ArgInfo& { return f.info; };
    nb::dict types;
    for (const nn::LayerEntry* layer : nn::all_layers())
      types[layer->name.c_str()] = nb::make_tuple(kinds(layer->args, itself), kinds(layer->forward_args, itself),
                                                  kinds(layer->fields, of_field));
    return types;
  });
  m.def("_layer_method", [](nb::handle o, const char* name, nb::args args, nb::kwargs kwargs) {
    return steal(call_method(o, name, args, kwargs));
  });
  m.def("_layer_fields", [](nb::handle self) {
    nb::list names;
    if (const nn::LayerEntry* layer = nn::find_layer(module_of(self, "_layer_fields")))
      for (auto& field : layer->fields) names.append(nb::str(field.name.c_str()));
    return names;
  });
}

}  // namespace sf::py
