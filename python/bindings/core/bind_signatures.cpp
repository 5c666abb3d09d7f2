// inspect.signature of the functions, methods and classes that nanobind makes, which know theirs under another name.
#include "python/bindings/core/bind_signatures.h"

#include "python/bindings/core/bind_arguments.h"

namespace sf::py {

namespace {

PyObject* signature(PyObject* self, void* reader) {
  return guarded([&]() -> PyObject* {
    return nb::module_::import_("scaffolding._signatures")
        .attr(static_cast<const char*>(reader))(nb::handle(self))
        .release()
        .ptr();
  });
}

PyGetSetDef property(const char* reader) {
  return {"__signature__", signature, nullptr, nullptr, const_cast<char*>(reader)};
}

// nanobind's types refuse new attributes from Python; their dictionaries take a descriptor as C's types do.
void give(PyTypeObject* type, PyGetSetDef& property) {
  nb::object descriptor = steal(PyDescr_NewGetSet(type, &property));
  if (PyDict_SetItemString(type_dict(type), "__signature__", descriptor.ptr()) < 0) throw_python_error();
  PyType_Modified(type);
}

}  // namespace

void bind_signatures(nb::module_& m) {
  static PyGetSetDef of_function = property("of_function"), of_bound = property("of_bound"),
                     of_class = property("of_class");
  nb::object cls = m.attr("Generator"), generator = cls();
  give(Py_TYPE(nb::object(m.attr("is_tensor")).ptr()), of_function);
  give(Py_TYPE(nb::object(cls.attr("manual_seed")).ptr()), of_function);
  give(Py_TYPE(nb::object(generator.attr("manual_seed")).ptr()), of_bound);
  give(Py_TYPE(cls.ptr()), of_class);
}

}  // namespace sf::py
