// Every registered op as a Python callable: positional and keyword arguments go straight into sf::Value.
// One type serves functions (sf.silu), methods (x.silu()) and their in-place twins (x.silu_()).
#include "python/bindings/core/call_arguments.h"
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/take_over.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

namespace {

struct OpFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  const OpEntry* op;
  PyObject* names;      // tuple of interned argument names
  PyObject* name;       // "silu" or "silu_"
  PyObject* signature;  // inspect.Signature, made on first use
  PyObject* second;    // Python function for calls whose arguments do not fit this op: torch's other forms; may be null
  std::string* shown;  // owned: the parameter list to show instead of the op's: that of the second form; may be null
  bool inplace;
};
PyTypeObject* op_type = nullptr;

const std::string& shown_params(const OpFunction& f) { return f.shown ? *f.shown : f.op->params; }
Parameters parameters_of(const OpFunction& f) { return {f.op->name, shown_params(f), f.op->args, f.names}; }

// add_, sub_, mul_ and div_ write straight into the tensor's memory when no gradient is wanted.
bool write_directly(const OpEntry& op, Tensor& x, std::span<const Value> v) {
  if (op.args.size() < 2 || op.args[1].kind != ArgKind::Tensor) return false;
  auto other = [&] { return detail::unbox<Tensor>(v[1]); };
  if (op.name == "add") return x.add_(other(), detail::unbox<Scalar>(v[2])), true;
  if (op.name == "sub") return x.sub_(other(), detail::unbox<Scalar>(v[2])), true;
  if (op.name == "mul") return x.mul_(other()), true;
  if (op.name == "div" && std::holds_alternative<std::monostate>(v[2])) return x.div_(other()), true;
  return false;
}

// The arguments with `from` in place of x, wherever that stands.
std::vector<Value> with_input(std::span<const Value> values, const Tensor& x, const Tensor& from) {
  std::vector<Value> out(values.begin(), values.end());
  for (Value& v : out)
    if (auto* t = std::get_if<Tensor>(&v); t && t->is_same(x)) *t = from;
  return out;
}

// The op whose second form runs on this thread: when that calls the op again with arguments that do not fit,
// it is an error.
thread_local const OpFunction* t_in_second_form = nullptr;

PyObject* call_second_form(const OpFunction& f, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const OpFunction* before = std::exchange(t_in_second_form, &f);
  PyObject* result = PyObject_Vectorcall(f.second, args, nargsf, keywords);
  t_in_second_form = before;
  return result;
}

Value run(const OpEntry& op, const Arguments& arguments) {
  MaybeRelease release(arguments.large());
  return op.call(arguments.values());
}

PyObject* op_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const auto& f = *reinterpret_cast<OpFunction*>(self);
  return guarded([&]() -> PyObject* {
    std::optional<Arguments> read;
    Parameters parameters = parameters_of(f);
    try {
      read.emplace(parameters, args, size_t(PyVectorcall_NARGS(nargsf)), keywords);
    } catch (const TypeError&) {
      if (!f.second || t_in_second_form == &f) throw;
    }
    if (!read) return call_second_form(f, args, nargsf, keywords);
    Arguments& arguments = *read;
    if (!f.inplace) return to_object(run(*f.op, arguments));
    std::span<const Value> values = arguments.values();
    auto* target = std::get_if<Tensor>(&values[0]);
    SF_CHECK_AS(TypeError, target && *target && !(*target).impl()->is_scalar, text(f.name), ": ", f.op->args[0].name,
                " must be a tensor");
    Tensor x = *target;
    {
      MaybeRelease release(arguments.large());
      if (!write_directly(*f.op, x, values)) {
        std::optional<autocast::Within> off;  // the result must fit into x: in-place ops run in x's type
        if (autocast::active()) off.emplace();
        auto result = [&](const Tensor& from) { return std::get<Tensor>(f.op->call(with_input(values, x, from))); };
        autograd::overwrite(f.op->name.c_str(), x, result, f.op->is_random);
      }
    }
    return wrap(std::move(x));
  });
}

PyObject* op_get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return bound_method(self, object);
}

PyObject* op_repr(PyObject* self) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  return PyUnicode_FromFormat("<op %U(%s)>", f->name, shown_params(*f).c_str());
}

std::string text_of(const OpFunction& f) {
  std::string doc = std::string(text(f.name)) + "(" + shown_params(f) + ")\n\n" + f.op->help;
  if (f.inplace) doc += "\n\nWrites the result over " + f.op->args[0].name + " and returns it.";
  return doc;
}
PyObject* get_doc(PyObject* self, void*) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  return guarded([&] {
    nb::object documents = nb::module_::import_("scaffolding._documents");
    return documents.attr("document")(text_of(*f), "ops", f->op->name).release().ptr();
  });
}
// Without the example: for what takes over a document while the package is imported.
PyObject* get_text(PyObject* self, void*) {
  const std::string doc = text_of(*reinterpret_cast<OpFunction*>(self));
  return PyUnicode_FromStringAndSize(doc.data(), Py_ssize_t(doc.size()));
}

PyObject* get_signature(PyObject* self, void*) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  if (!f->signature) f->signature = guarded([&] { return signature_of(shown_params(*f)).release().ptr(); });
  return Py_XNewRef(f->signature);
}
PyObject* get_name(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<OpFunction*>(self)->name); }
PyObject* get_module(PyObject*, void*) { return PyUnicode_FromString("scaffolding"); }
// a global of the package
PyObject* op_reduce(PyObject* self, PyObject*) { return Py_NewRef(reinterpret_cast<OpFunction*>(self)->name); }

void op_dealloc(PyObject* self) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_CLEAR(f->names);
  Py_CLEAR(f->name);
  Py_CLEAR(f->signature);
  Py_CLEAR(f->second);
  delete std::exchange(f->shown, nullptr);
  free_object(type, self);
  Py_DECREF(type);
}

PyTypeObject* make_op_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", SF_PY_PYSSIZET, offsetof(OpFunction, vectorcall), SF_PY_READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef getset[] = {{"__doc__", get_doc, nullptr, nullptr, nullptr},
                                 {"_text", get_text, nullptr, nullptr, nullptr},
                                 {"__signature__", get_signature, nullptr, nullptr, nullptr},
                                 {"__name__", get_name, nullptr, nullptr, nullptr},
                                 {"__qualname__", get_name, nullptr, nullptr, nullptr},
                                 {"__module__", get_module, nullptr, nullptr, nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyMethodDef methods[] = {{"__reduce__", op_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_descr_get, reinterpret_cast<void*>(op_get)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(op_dealloc)},
                         {Py_tp_repr, reinterpret_cast<void*>(op_repr)},
                         {Py_tp_members, members},
                         {Py_tp_getset, getset},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec{"scaffolding.OpFunction", sizeof(OpFunction), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
                       Py_TPFLAGS_DISALLOW_INSTANTIATION,
                   slots};
  return make_type(spec);
}

nb::object make_op(const OpEntry* op, bool inplace) {
  SF_CHECK_AS(RuntimeError, op->args.size() <= kMaxArguments, op->name, ": has more than ", kMaxArguments,
              " arguments");
  auto* f = reinterpret_cast<OpFunction*>(checked(make_object(op_type)));
  nb::object hold = nb::steal(reinterpret_cast<PyObject*>(f));
  f->vectorcall = op_vectorcall;
  f->op = op;
  f->inplace = inplace;
  f->name = checked(PyUnicode_InternFromString((op->name + (inplace ? "_" : "")).c_str()));
  f->names = interned_names(op->args).release().ptr();
  return hold;
}

}  // namespace

void bind_ops(nb::module_& m) {
  op_type = make_op_type();
  nb::handle type(reinterpret_cast<PyObject*>(tensor_type));
  nb::handle own = type_dict(tensor_type);
  for (const OpEntry* op : all_ops()) {
    bool method = !op->args.empty() && op->args[0].name == "input" && op->args[0].kind == ArgKind::Tensor;
    for (bool inplace : {false, true}) {
      if (inplace && !op->has_inplace) continue;
      std::string name = op->name + (inplace ? "_" : "");
      nb::object f = make_op(op, inplace);
      if (!nb::hasattr(m, name.c_str())) m.attr(name.c_str()) = f;
      if (method && !PyDict_GetItemString(own.ptr(), name.c_str())) type.attr(name.c_str()) = f;
    }
  }
  m.def(
      "_set_second_form",
      [](nb::handle op, nb::handle function, nb::handle params) {
        SF_CHECK_AS(TypeError, Py_TYPE(op.ptr()) == op_type, "_set_second_form: not an op");
        auto* f = reinterpret_cast<OpFunction*>(op.ptr());
        Py_XSETREF(f->second, Py_NewRef(function.ptr()));
        if (!params.is_none()) delete std::exchange(f->shown, new std::string(text(params.ptr())));
        Py_CLEAR(f->signature);
      },
      nb::arg(), nb::arg(), nb::arg() = nb::none());
  m.def("_op_names", [] {
    nb::list names;
    for (const OpEntry* op : all_ops()) names.append(nb::str(op->name.c_str()));
    return names;
  });
  // By name: ({argument: (kind, whether None is a value)}, whether it returns several tensors). For stubs.
  m.def("_op_types", [] {
    nb::dict types;
    for (const OpEntry* op : all_ops()) {
      nb::dict arguments;
      for (const ArgInfo& a : op->args) arguments[a.name.c_str()] = nb::make_tuple(name(a.kind), nb::bool_(a.optional));
      types[op->name.c_str()] = nb::make_tuple(arguments, nb::bool_(op->several));
    }
    return types;
  });
}

}  // namespace sf::py
