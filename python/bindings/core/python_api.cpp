#include "python/bindings/core/python_api.h"

#include <nanobind/nanobind.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace sf::py {

namespace nb = nanobind;

#ifdef Py_LIMITED_API

namespace {

// never freed: they outlive the interpreter
auto& g_own_names = *new std::unordered_map<PyTypeObject*, const char*>;

PyObject* object(PyTypeObject* type) { return reinterpret_cast<PyObject*>(type); }

// Borrowed: the type holds it.
PyObject* attribute(PyTypeObject* type, const char* name) {
  PyObject* o = PyObject_GetAttrString(object(type), name);
  if (!o) throw nb::python_error();
  Py_DECREF(o);
  return o;
}

PyObject* of_module(const char* module, const char* name) {
  return nb::object(nb::module_::import_(module).attr(name)).release().ptr();
}

}  // namespace

// tp_name has the module of what is written in C, as "numpy.ndarray", but not that of Python's own types and of classes
// written in Python.
const char* type_name(PyTypeObject* type) {
  if (auto it = g_own_names.find(type); it != g_own_names.end()) return it->second;
  nb::object name = nb::steal(PyType_GetName(type));
  if (!name) return PyErr_Clear(), "?";
  if (!(PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE)) {
    nb::object module = nb::getattr(nb::handle(object(type)), "__module__", nb::none());
    if (PyUnicode_Check(module.ptr()) && PyUnicode_CompareWithASCIIString(module.ptr(), "builtins") != 0)
      name = nb::steal(PyUnicode_FromFormat("%U.%U", module.ptr(), name.ptr()));
  }
  PyObject* kept = name.release().ptr();
  PyUnicode_InternInPlace(&kept);
  // Held for ever, once for each name.
  static auto& names = *new std::unordered_map<PyObject*, const char*>;
  auto [it, is_new] = names.try_emplace(kept, nullptr);
  if (is_new) it->second = PyUnicode_AsUTF8AndSize(kept, nullptr);
  else Py_DECREF(kept);
  return it->second ? it->second : "?";
}

PyObject* type_mro(PyTypeObject* type) { return attribute(type, "__mro__"); }

PyObject* type_lookup(PyTypeObject* type, PyObject* name) {
  static PyObject* const dict_name = PyUnicode_InternFromString("__dict__");
  static PyObject* const mro_name = PyUnicode_InternFromString("__mro__");
  nb::object mro = nb::steal(PyObject_GetAttr(object(type), mro_name));
  if (!mro) return PyErr_Clear(), nullptr;  // as _PyType_Lookup: it tells of no error
  const Py_ssize_t n = PyTuple_Size(mro.ptr());
  for (Py_ssize_t i = 0; i < n; ++i) {
    nb::object names = nb::steal(PyObject_GetAttr(PyTuple_GetItem(mro.ptr(), i), dict_name));
    const int has = names ? PySequence_Contains(names.ptr(), name) : -1;
    if (has < 0) return PyErr_Clear(), nullptr;
    if (!has) continue;
    PyObject* found = PyObject_GetItem(names.ptr(), name);
    if (!found) return PyErr_Clear(), nullptr;
    Py_DECREF(found);  // the class has it
    return found;
  }
  return nullptr;
}

// The dictionary behind a class's __dict__, which shows it read-only.
PyObject* type_dict(PyTypeObject* type) {
  nb::object shown = nb::steal(PyObject_GetAttrString(object(type), "__dict__"));
  if (!shown) throw nb::python_error();
  nb::object behind = nb::module_::import_("gc").attr("get_referents")(shown);
  for (nb::handle o : nb::list(behind))
    if (PyDict_Check(o.ptr())) return o.ptr();  // the type holds it
  PyErr_SetString(PyExc_RuntimeError, "scaffolding: this Python shows no dictionary of a type");
  throw nb::python_error();
}

PyTypeObject* type_base(PyTypeObject* type) {
  PyObject* base = attribute(type, "__base__");
  return base == Py_None ? nullptr : reinterpret_cast<PyTypeObject*>(base);
}

namespace {
constexpr int kDeepest = 50;  // deallocations inside each other
int g_depth = 0;              // with the GIL
auto& g_later = *new std::vector<PyObject*>;
}  // namespace

Unnested::Unnested(PyObject* o, destructor dealloc) : dealloc_(dealloc), now_(g_depth < kDeepest) {
  if (now_) ++g_depth;
  else g_later.push_back(o);
}
Unnested::~Unnested() {
  if (!now_ || --g_depth > 0) return;
  while (!g_later.empty()) {
    PyObject* o = g_later.back();
    g_later.pop_back();
    dealloc_(o);
  }
}

SliceParts slice_parts(PyObject* slice) {
  auto part = [&](const char* name) {
    PyObject* o = PyObject_GetAttrString(slice, name);
    if (!o) throw nb::python_error();
    Py_DECREF(o);  // the slice has it
    return o;
  };
  return {part("start"), part("stop"), part("step")};
}

bool is_function(PyObject* o) {
  static PyObject* const type = of_module("types", "FunctionType");
  return reinterpret_cast<PyObject*>(Py_TYPE(o)) == type;
}

PyObject* bound_method(PyObject* function, PyObject* self) {
  static PyObject* const type = of_module("types", "MethodType");
  return PyObject_CallFunctionObjArgs(type, function, self, nullptr);
}

#endif

PyTypeObject* make_type(PyType_Spec& spec, PyObject* bases) {
  PyObject* type = PyType_FromSpecWithBases(&spec, bases);
  if (!type) throw nb::python_error();
#ifdef Py_LIMITED_API
  g_own_names.emplace(reinterpret_cast<PyTypeObject*>(type), (new std::string(spec.name))->c_str());
#endif
  return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace sf::py
