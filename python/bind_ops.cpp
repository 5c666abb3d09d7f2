// Every registered op as a Python callable: positional and keyword arguments go straight into sf::Value.
// One type serves functions (sf.silu), methods (x.silu()) and their in-place twins (x.silu_()).
#include <Python.h>
#include <structmember.h>

#include <cstring>
#include <memory>

#include "bind_arguments.h"
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/tape.h"

namespace sf::py {

namespace {

constexpr size_t kMaxArguments = 24;

struct OpFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  const OpEntry* op;
  PyObject* names;      // tuple of interned argument names
  PyObject* name;       // "silu" or "silu_"
  PyObject* signature;  // inspect.Signature, made on first use
  PyObject* second;     // Python function for calls whose arguments do not fit this op: torch's other forms; may be null
  bool inplace;
};
PyTypeObject* op_type = nullptr;

const char* text(PyObject* unicode) {
  const char* s = PyUnicode_AsUTF8(unicode);
  return s ? s : "?";
}

// The position of a keyword; numpy's spellings of dim and keepdim are accepted, as in torch, and pow's exponent.
int position_of(const OpFunction& f, PyObject* keyword) {
  Py_ssize_t n = PyTuple_GET_SIZE(f.names);
  for (Py_ssize_t i = 0; i < n; ++i)
    if (PyTuple_GET_ITEM(f.names, i) == keyword) return int(i);
  const char* wanted = text(keyword);
  if (!std::strcmp(wanted, "axis")) wanted = "dim";
  else if (!std::strcmp(wanted, "keepdims")) wanted = "keepdim";
  else if (!std::strcmp(wanted, "exponent")) wanted = "other";
  for (Py_ssize_t i = 0; i < n; ++i)
    if (!std::strcmp(text(PyTuple_GET_ITEM(f.names, i)), wanted)) return int(i);
  return -1;
}

// x.reshape(2, 3), x.permute(0, 2, 1), einsum("ij,jk", a, b): a last parameter that is a list takes what is left.
bool takes_the_rest(const ArgInfo& last, PyObject* first) {
  if (last.kind == ArgKind::Ints) return PyLong_Check(first) || (!PyTuple_Check(first) && !PyList_Check(first) && PyIndex_Check(first));
  return last.kind == ArgKind::Tensors && is_tensor(first);
}

class Arguments {
 public:
  Arguments(const OpFunction& f, PyObject* const* args, size_t given, PyObject* keywords) : f_(f), op_(*f.op) {
    std::uninitialized_default_construct_n(values_, op_.args.size());
    try {
      read(args, given, keywords);
    } catch (...) {
      std::destroy_n(values_, op_.args.size());
      throw;
    }
  }
  ~Arguments() { std::destroy_n(values_, op_.args.size()); }
  Arguments(const Arguments&) = delete;

  Value run() {
    MaybeRelease release(large_);
    return op_.call(values());
  }
  std::span<const Value> values() const { return {values_, op_.args.size()}; }
  bool large() const { return large_; }

 private:
  void read(PyObject* const* args, size_t given, PyObject* keywords) {
    size_t wanted = op_.args.size();
    const std::string& name = op_.name;
    if (wanted > 0 && given >= wanted && takes_the_rest(op_.args[wanted - 1], args[wanted - 1])) {
      for (size_t i = 0; i + 1 < wanted; ++i) set(i, args[i]);
      nb::object rest = steal(PyTuple_New(Py_ssize_t(given - wanted + 1)));
      for (size_t i = wanted - 1; i < given; ++i) PyTuple_SET_ITEM(rest.ptr(), Py_ssize_t(i + 1 - wanted), Py_NewRef(args[i]));
      set(wanted - 1, rest.ptr());
    } else {
      SF_CHECK_AS(TypeError, given <= wanted, name, ": takes at most ", wanted, " arguments (", op_.params, "), got ", given);
      for (size_t i = 0; i < given; ++i) set(i, args[i]);
    }
    Py_ssize_t count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t k = 0; k < count; ++k) {
      PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
      int i = position_of(f_, keyword);
      SF_CHECK_AS(TypeError, i >= 0, name, ": has no argument '", text(keyword), "'; it takes (", op_.params, ")");
      SF_CHECK_AS(TypeError, !(set_ >> i & 1), name, ": argument '", text(keyword), "' is given twice");
      set(size_t(i), args[given + size_t(k)]);
    }
    for (size_t i = 0; i < wanted; ++i) {
      if (set_ >> i & 1) continue;
      SF_CHECK_AS(TypeError, op_.args[i].has_default, name, ": missing argument '", op_.args[i].name, "'");
      values_[i] = op_.args[i].fallback;
    }
  }

  void set(size_t i, PyObject* o) {
    values_[i] = to_value(op_.name, op_.args[i], o);
    set_ |= 1u << i;
    if (auto* t = std::get_if<Tensor>(&values_[i])) {
      large_ |= t->numel() > kReleaseAbove;
    } else if (auto* ts = std::get_if<Tensors>(&values_[i])) {
      for (auto& t : *ts) large_ |= t && t.numel() > kReleaseAbove;
    }
  }

  const OpFunction& f_;
  const OpEntry& op_;
  union {
    Value values_[kMaxArguments];  // only the first args.size() of them exist: making 24 costs more than a small op
  };
  uint32_t set_ = 0;
  bool large_ = false;
};

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

// The op whose second form runs on this thread: when that calls the op again with arguments that do not fit, it is an error.
thread_local const OpFunction* t_in_second_form = nullptr;

PyObject* call_second_form(const OpFunction& f, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const OpFunction* before = std::exchange(t_in_second_form, &f);
  PyObject* result = PyObject_Vectorcall(f.second, args, nargsf, keywords);
  t_in_second_form = before;
  return result;
}

PyObject* op_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* keywords) {
  const auto& f = *reinterpret_cast<OpFunction*>(self);
  return guarded([&]() -> PyObject* {
    std::optional<Arguments> read;
    try {
      read.emplace(f, args, size_t(PyVectorcall_NARGS(nargsf)), keywords);
    } catch (const TypeError&) {
      if (!f.second || t_in_second_form == &f) throw;
    }
    if (!read) return call_second_form(f, args, nargsf, keywords);
    Arguments& arguments = *read;
    if (!f.inplace) return to_object(arguments.run());
    std::span<const Value> values = arguments.values();
    auto* target = std::get_if<Tensor>(&values[0]);
    SF_CHECK_AS(TypeError, target && *target && !(*target).impl()->is_scalar, text(f.name), ": ", f.op->args[0].name, " must be a tensor");
    Tensor x = *target;
    {
      MaybeRelease release(arguments.large());
      if (!write_directly(*f.op, x, values)) {
        std::optional<autocast::Within> off;  // the result must fit into x: in-place ops run in x's type
        if (autocast::active()) off.emplace();
        autograd::assign_inplace(f.op->name.c_str(), x, std::get<Tensor>(f.op->call(values)));
      }
    }
    return wrap(std::move(x));
  });
}

PyObject* op_get(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, object);
}

PyObject* op_repr(PyObject* self) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  return PyUnicode_FromFormat("<op %U(%s)>", f->name, f->op->params.c_str());
}

PyObject* get_doc(PyObject* self, void*) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  std::string doc = std::string(text(f->name)) + "(" + f->op->params + ")\n\n" + f->op->help;
  if (f->inplace) doc += "\n\nWrites the result over " + f->op->args[0].name + " and returns it.";
  return PyUnicode_FromStringAndSize(doc.data(), Py_ssize_t(doc.size()));
}

// The parameter list is in Python syntax: evaluating a lambda with it gives the true signature.
PyObject* get_signature(PyObject* self, void*) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  if (!f->signature) {
    f->signature = guarded([&] {
      nb::object inspect = nb::module_::import_("inspect"), builtins = nb::module_::import_("builtins"), math = nb::module_::import_("math");
      nb::dict scope;
      scope["inf"] = math.attr("inf");
      nb::object function = builtins.attr("eval")(nb::str(("lambda " + f->op->params + ": None").c_str()), scope);
      return inspect.attr("signature")(function).release().ptr();
    });
  }
  return Py_XNewRef(f->signature);
}
PyObject* get_name(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<OpFunction*>(self)->name); }
PyObject* get_module(PyObject*, void*) { return PyUnicode_FromString("scaffolding"); }
PyObject* op_reduce(PyObject* self, PyObject*) { return Py_NewRef(reinterpret_cast<OpFunction*>(self)->name); }  // a global of the package

void op_dealloc(PyObject* self) {
  auto* f = reinterpret_cast<OpFunction*>(self);
  PyTypeObject* type = Py_TYPE(self);
  Py_CLEAR(f->names);
  Py_CLEAR(f->name);
  Py_CLEAR(f->signature);
  Py_CLEAR(f->second);
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* make_op_type() {
  static PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(OpFunction, vectorcall), READONLY, nullptr}, {nullptr, 0, 0, 0, nullptr}};
  static PyGetSetDef getset[] = {{"__doc__", get_doc, nullptr, nullptr, nullptr},       {"__signature__", get_signature, nullptr, nullptr, nullptr},
                                 {"__name__", get_name, nullptr, nullptr, nullptr},     {"__qualname__", get_name, nullptr, nullptr, nullptr},
                                 {"__module__", get_module, nullptr, nullptr, nullptr}, {nullptr, nullptr, nullptr, nullptr, nullptr}};
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
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  return reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpec(&spec)));
}

nb::object make_op(const OpEntry* op, bool inplace) {
  SF_CHECK_AS(RuntimeError, op->args.size() <= kMaxArguments, op->name, ": has more than ", kMaxArguments, " arguments");
  auto* f = reinterpret_cast<OpFunction*>(checked(op_type->tp_alloc(op_type, 0)));
  nb::object hold = nb::steal(reinterpret_cast<PyObject*>(f));
  f->vectorcall = op_vectorcall;
  f->op = op;
  f->inplace = inplace;
  f->name = checked(PyUnicode_InternFromString((op->name + (inplace ? "_" : "")).c_str()));
  f->names = checked(PyTuple_New(Py_ssize_t(op->args.size())));
  for (size_t i = 0; i < op->args.size(); ++i) PyTuple_SET_ITEM(f->names, Py_ssize_t(i), checked(PyUnicode_InternFromString(op->args[i].name.c_str())));
  return hold;
}

}  // namespace

void bind_ops(nb::module_& m) {
  op_type = make_op_type();
  nb::handle type(reinterpret_cast<PyObject*>(tensor_type));
  nb::handle own = tensor_type->tp_dict;
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
  m.def("_set_second_form", [](nb::handle op, nb::handle function) {
    SF_CHECK_AS(TypeError, Py_TYPE(op.ptr()) == op_type, "_set_second_form: not an op");
    Py_XSETREF(reinterpret_cast<OpFunction*>(op.ptr())->second, Py_NewRef(function.ptr()));
  });
  m.def("_op_names", [] {
    nb::list names;
    for (const OpEntry* op : all_ops()) names.append(nb::str(op->name.c_str()));
    return names;
  });
}

}  // namespace sf::py
