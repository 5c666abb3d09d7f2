#include "python/bindings/core/bind_tensor.h"

#include <cstring>

#include <new>

#include "python/bindings/autograd/python_hooks.h"
#include "python/bindings/core/bind_errors.h"
#include "python/bindings/core/tensor_slots.h"

namespace sf::py {

PyTypeObject* tensor_type = nullptr;
PyTypeObject* parameter_type = nullptr;
PyTypeObject* size_type = nullptr;

namespace {

// Freed objects of the exact type, ready for reuse: small ops make and drop one per call.
constexpr int kFreeObjects = 64;
PyTensor* g_free[kFreeObjects];
int g_free_count = 0;

PyObject* initialised(PyTensor* self, Tensor&& t) {
  new (&self->t) Tensor(std::move(t));
  self->dict = nullptr;
  self->weakrefs = nullptr;
  self->t.impl()->python = self;
  return reinterpret_cast<PyObject*>(self);
}

// Not tracked by the garbage collector until there are attributes or hooks: without them no cycle can pass through it.
PyObject* make_plain(Tensor&& t) {
  PyTensor* self;
  if (g_free_count > 0) {
    self = g_free[--g_free_count];
    PyObject_Init(reinterpret_cast<PyObject*>(self), tensor_type);
  } else {
    self = PyObject_GC_New(PyTensor, tensor_type);
    if (!self) return nullptr;
  }
  PyObject* o = initialised(self, std::move(t));
  if (may_have_hooks(*self->t.impl())) PyObject_GC_Track(o);
  return o;
}

void dealloc(PyObject* o) {
  auto* self = reinterpret_cast<PyTensor*>(o);
  PyTypeObject* type = Py_TYPE(o);
  PyObject_GC_UnTrack(o);
  // first: what follows may run Python code
  if (self->t && self->t.impl()->python == o) self->t.impl()->python = nullptr;
  if (self->weakrefs) PyObject_ClearWeakRefs(o);
  Py_CLEAR(self->dict);
  self->t.~Tensor();
  if (type == tensor_type && g_free_count < kFreeObjects) g_free[g_free_count++] = self;
  else free_object(type, o);
  Py_DECREF(type);
}

int traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyTensor*>(o)->dict);
  Py_VISIT(Py_TYPE(o));
  return visit_hooks(tensor_of(o), visit, arg);
}
int clear(PyObject* o) {
  Py_CLEAR(reinterpret_cast<PyTensor*>(o)->dict);
  clear_hooks(tensor_of(o));
  return 0;
}

// Help for a name that a tensor lacks stands in the error's text.
PyObject* help_for_attribute = nullptr;  // (name) -> the end of the text

#ifdef Py_LIMITED_API

// No type of Python's own can be changed by the stable ABI, so that the text is made with the error. Names in two
// underscores, which programs ask for to find out what an object can do, go without.
PyObject* getattr(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !help_for_attribute || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  nb::object error = nb::steal(PyErr_GetRaisedException());
  const char* text = PyUnicode_AsUTF8(name);
  nb::object said = nb::steal(PyObject_Str(error.ptr()));
  nb::object of = nb::steal(PyUnicode_FromFormat("'%s' object has no attribute '%U'", type_name(o), name));
  nb::object end;
  if (text && said && of && std::strncmp(text, "__", 2) != 0 && PyUnicode_Compare(said.ptr(), of.ptr()) == 0)
    end = nb::steal(PyObject_CallOneArg(help_for_attribute, name));
  nb::object kind = nb::steal(PyType_GetName(Py_TYPE(o)));
  if (!end || !kind) {
    PyErr_Clear();
    PyErr_SetRaisedException(error.release().ptr());
    return nullptr;
  }
  PyErr_Format(PyExc_AttributeError, "'%U' object has no attribute '%U'%U", kind.ptr(), name, end.ptr());
  return nullptr;
}

void give_help(nb::handle help) { help_for_attribute = Py_NewRef(help.ptr()); }

#else

// Not in Tensor's tp_getattro: with one of its own, Python makes a bound method for every call (a.dim(): 53 ns instead
// of 27).
reprfunc plain_text = nullptr;  // AttributeError's

// The text of an AttributeError; of one about a tensor's name that is not there, with the help, made when it is shown.
PyObject* text_with_help(PyObject* o) {
  nb::object text = nb::steal(plain_text(o));
  auto* error = reinterpret_cast<PyAttributeErrorObject*>(o);
  PyObject *owner = error->obj, *name = error->name;
  if (!text || !help_for_attribute || !owner || !name || !is_tensor(owner)) return text.release().ptr();
  nb::object of = nb::steal(PyUnicode_FromFormat("'%s' object has no attribute '%U'", type_name(owner), name));
  if (!of) return nullptr;
  if (PyUnicode_Compare(text.ptr(), of.ptr()) != 0) return text.release().ptr();  // a property's own
  nb::object kind = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(owner)), "__name__"));
  nb::object end = nb::steal(PyObject_CallOneArg(help_for_attribute, name));
  if (!kind || !end) return nullptr;
  text = nb::steal(PyUnicode_FromFormat("'%U' object has no attribute '%U'%U", kind.ptr(), name, end.ptr()));
  if (!text) return nullptr;
  nb::object arguments = nb::steal(PyTuple_Pack(1, text.ptr()));
  if (!arguments) return nullptr;
  Py_XSETREF(error->args, arguments.release().ptr());
  Py_CLEAR(error->obj);  // or Python would guess at another name too
  return text.release().ptr();
}

void give_help(nb::handle help) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyExc_AttributeError);
  help_for_attribute = Py_NewRef(help.ptr());
  if (type->tp_str == text_with_help) return;
  plain_text = type->tp_str;
  type->tp_str = text_with_help;
}

#endif

int setattr(PyObject* o, PyObject* name, PyObject* value) {
  int r = PyObject_GenericSetAttr(o, name, value);
  if (reinterpret_cast<PyTensor*>(o)->dict && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return r;
}
PyObject* get_dict(PyObject* o, void* closure) {
  PyObject* d = PyObject_GenericGetDict(o, closure);
  if (d && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return d;
}

const auto builtin_hash = slot<hashfunc>(&PyBaseObject_Type, Py_tp_hash);
Py_hash_t hash(PyObject* o) { return builtin_hash(o); }

PyMemberDef members[] = {{"__dictoffset__", SF_PY_PYSSIZET, offsetof(PyTensor, dict), SF_PY_READONLY, nullptr},
                         {"__weaklistoffset__", SF_PY_PYSSIZET, offsetof(PyTensor, weakrefs), SF_PY_READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef dict_getset{"__dict__", get_dict, PyObject_GenericSetDict, nullptr, nullptr};

const char* const kTensorDoc =
    "Tensor(*args, **kwargs)\n--\n\nA multi-dimensional array with an optional place on the autograd tape.\n\nMade by "
    "scaffolding.tensor, zeros, "
    "randn and others.";

PyTypeObject* make_tensor_type() {
  static std::vector<PyGetSetDef> getset;
  getset.push_back(dict_getset);
  for (PyGetSetDef* g = tensor_getset; g->name; ++g) getset.push_back(*g);
  getset.push_back({nullptr, nullptr, nullptr, nullptr, nullptr});
  std::vector<PyType_Slot> slots{
      {Py_tp_new, reinterpret_cast<void*>(tensor_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(clear)},
#ifdef Py_LIMITED_API
      {Py_tp_getattro, reinterpret_cast<void*>(getattr)},
#endif
      {Py_tp_setattro, reinterpret_cast<void*>(setattr)},
      {Py_tp_hash, reinterpret_cast<void*>(hash)},
      {Py_tp_repr, reinterpret_cast<void*>(tensor_repr)},
      {Py_tp_richcompare, reinterpret_cast<void*>(rich_compare)},
      {Py_tp_iter, reinterpret_cast<void*>(tensor_iter)},
      {Py_tp_members, members},
      {Py_tp_getset, getset.data()},
      {Py_tp_doc, const_cast<char*>(kTensorDoc)},
      {Py_mp_length, reinterpret_cast<void*>(tensor_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(tensor_getitem)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(tensor_setitem)},
      {Py_sq_contains, reinterpret_cast<void*>(tensor_contains)},
  };
  for (PyType_Slot* s = number_slots; s->slot; ++s) slots.push_back(*s);
  slots.push_back({0, nullptr});
  PyType_Spec spec{"scaffolding.Tensor", sizeof(PyTensor), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  return make_type(spec);
}

// ---- Size: a tuple of ints with numel(); pieces and sums of it are Sizes too.

PyObject* size_from(PyObject* tuple) {  // steals a tuple
  if (!tuple || !PyTuple_CheckExact(tuple)) return tuple;
  Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* s = make_object(size_type, n);
  if (s)
    for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(s, i, Py_NewRef(PyTuple_GET_ITEM(tuple, i)));
  Py_DECREF(tuple);
  return s;
}
// tuple's own
const auto tuple_subscript = slot<binaryfunc>(&PyTuple_Type, Py_mp_subscript);
const auto tuple_concat = slot<binaryfunc>(&PyTuple_Type, Py_sq_concat);
const auto tuple_repeat = slot<ssizeargfunc>(&PyTuple_Type, Py_sq_repeat);
const auto tuple_new = slot<newfunc>(&PyTuple_Type, Py_tp_new);
const auto tuple_repr = slot<reprfunc>(&PyTuple_Type, Py_tp_repr);

PyObject* size_subscript(PyObject* self, PyObject* index) { return size_from(tuple_subscript(self, index)); }
PyObject* size_concat(PyObject* a, PyObject* b) { return size_from(tuple_concat(a, b)); }
PyObject* size_repeat(PyObject* a, Py_ssize_t n) { return size_from(tuple_repeat(a, n)); }
PyObject* size_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* o = tuple_new(type, args, kwargs);
  for (Py_ssize_t i = 0; o && i < PyTuple_GET_SIZE(o); ++i)
    if (!PyIndex_Check(PyTuple_GET_ITEM(o, i))) {
      PyErr_Format(PyExc_TypeError, "Size: entries must be integers, got %s", type_name(PyTuple_GET_ITEM(o, i)));
      Py_CLEAR(o);
    }
  return o;
}
PyObject* size_numel(PyObject* self, PyObject*) {
  PyObject* n = PyLong_FromLong(1);
  for (Py_ssize_t i = 0; n && i < PyTuple_GET_SIZE(self); ++i) {
    PyObject* next = PyNumber_Multiply(n, PyTuple_GET_ITEM(self, i));
    Py_DECREF(n);
    n = next;
  }
  return n;
}
PyObject* size_repr(PyObject* self) {
  nb::object list = nb::steal(PySequence_List(self));
  return list ? PyUnicode_FromFormat("scaffolding.Size(%R)", list.ptr()) : nullptr;
}
PyObject* size_str(PyObject* self) { return tuple_repr(self); }
PyObject* size_reduce(PyObject* self, PyObject*) {
  nb::object items = nb::steal(PySequence_List(self));
  return items ? Py_BuildValue("O(O)", Py_TYPE(self), items.ptr()) : nullptr;
}

PyTypeObject* make_size_type() {
  static PyMethodDef methods[] = {
      {"numel", size_numel, METH_NOARGS, "numel($self, /)\n--\n\nThe product of the sizes."},
      {"__reduce__", size_reduce, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(size_new)},
      {Py_tp_repr, reinterpret_cast<void*>(size_repr)},
      {Py_tp_str, reinterpret_cast<void*>(size_str)},
      {Py_mp_subscript, reinterpret_cast<void*>(size_subscript)},
      {Py_sq_concat, reinterpret_cast<void*>(size_concat)},
      {Py_sq_repeat, reinterpret_cast<void*>(size_repeat)},
      {Py_tp_methods, methods},
      {Py_tp_doc, const_cast<char*>("The sizes of a tensor's dimensions, or of an iterable: a tuple of ints.")},
      {0, nullptr}};
  PyType_Spec spec{"scaffolding.Size", 0, 0, Py_TPFLAGS_DEFAULT, slots};
  nb::object bases = nb::steal(PyTuple_Pack(1, &PyTuple_Type));
  return make_type(spec, bases.ptr());
}

}  // namespace

PyObject* wrap(Tensor t) {
  if (!t) return Py_NewRef(Py_None);
  TensorImpl* impl = t.impl();
  if (impl->python) return Py_NewRef(static_cast<PyObject*>(impl->python));
  if (impl->is_parameter && parameter_type) return wrap_as(parameter_type, std::move(t));
  return make_plain(std::move(t));
}

PyObject* wrap_as(PyTypeObject* type, Tensor t) {
  if (type == tensor_type) return make_plain(std::move(t));
  PyObject* o = make_object(type);
  return o ? initialised(reinterpret_cast<PyTensor*>(o), std::move(t)) : nullptr;
}

PyObject* wrap_tuple(const Tensors& ts) {
  PyObject* tuple = PyTuple_New(Py_ssize_t(ts.size()));
  for (size_t i = 0; tuple && i < ts.size(); ++i) {
    PyObject* o = wrap(ts[i]);
    if (!o) Py_CLEAR(tuple);
    else PyTuple_SET_ITEM(tuple, Py_ssize_t(i), o);
  }
  return tuple;
}

PyObject* wrap_size(const Shape& s) {
  PyObject* o = make_object(size_type, Py_ssize_t(s.size()));
  for (int64_t i = 0; o && i < s.size(); ++i) {
    PyObject* v = PyLong_FromLongLong(s[i]);
    if (!v) Py_CLEAR(o);
    else PyTuple_SET_ITEM(o, i, v);
  }
  return o;
}

// A message may quote bytes of a file that are no UTF-8.
static void set_error(PyObject* type, const char* message) {
  PyObject* text = PyUnicode_DecodeUTF8(message, Py_ssize_t(std::strlen(message)), "replace");
  if (!text) return;
  PyErr_SetObject(type, text);
  Py_DECREF(text);
}

PyObject* out_of_memory_type = nullptr;  // a RuntimeError, as torch's
// A wrong value or shape: a ValueError, and a RuntimeError too, which torch raises for most of them.
static PyObject* argument_error_type = nullptr;
std::optional<OutOfMemory>& last_out_of_memory() {
  static thread_local std::optional<OutOfMemory> last;
  return last;
}

PyObject* raise_current() noexcept {
  try {
    throw;
  } catch (nb::python_error& e) {
    e.restore();
  } catch (const IndexError& e) {
    set_error(PyExc_IndexError, e.what());
  } catch (const TypeError& e) {
    set_error(PyExc_TypeError, e.what());
  } catch (const ValueError& e) {
    set_error(argument_error_type, e.what());
  } catch (const OutOfMemory& e) {
    last_out_of_memory() = e;
    set_error(out_of_memory_type, e.what());
  } catch (const NotSupported& e) {
    set_error(PyExc_NotImplementedError, e.what());  // a RuntimeError
  } catch (const Error& e) {
    set_error(PyExc_RuntimeError, e.what());
  } catch (const std::bad_alloc&) {
    set_error(out_of_memory_type, "cpu: out of memory");
  } catch (const std::exception& e) {
    set_error(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return nullptr;
}

void bind_tensor(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error&) {
      raise_current();
    } catch (const std::bad_alloc&) {
      raise_current();
    }
  });
  out_of_memory_type = PyErr_NewExceptionWithDoc("scaffolding.OutOfMemoryError", "A device has too little memory.",
                                                 PyExc_RuntimeError, nullptr);
  m.attr("OutOfMemoryError") = nb::handle(out_of_memory_type);
  nb::object both = steal(PyTuple_Pack(2, PyExc_ValueError, PyExc_RuntimeError));
  argument_error_type = PyErr_NewExceptionWithDoc(
      "scaffolding.ArgumentError", "A wrong value or shape; a RuntimeError too, as in torch.", both.ptr(), nullptr);
  m.attr("ArgumentError") = nb::handle(argument_error_type);
  size_type = make_size_type();
  tensor_type = make_tensor_type();
  m.attr("Size") = nb::handle(reinterpret_cast<PyObject*>(size_type));
  m.attr("Tensor") = nb::handle(reinterpret_cast<PyObject*>(tensor_type));
  m.def("_set_attribute_help", &give_help);
  m.def("_register_parameter_type",
        [](nb::handle type) { parameter_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type.ptr())); });
  m.def("_make_subclass", [](nb::handle type, const Tensor& data, bool requires_grad, bool parameter) {
    auto* cls = reinterpret_cast<PyTypeObject*>(type.ptr());
    SF_CHECK_AS(TypeError, PyType_Check(type.ptr()) && PyType_IsSubtype(cls, tensor_type),
                "_make_subclass: needs a subclass of Tensor");
    check_defined("_make_subclass", "data", data);
    Tensor t = data.detach();
    t.impl()->is_parameter = parameter;
    if (requires_grad) t.requires_grad_();
    return steal(wrap_as(cls, t));
  });
}

}  // namespace sf::py
