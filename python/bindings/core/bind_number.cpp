// Operators of Tensor: straight to the C++ op, no argument parsing.
#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/tensor_slots.h"
#include "scaffolding/autograd/take_over.h"
#include "scaffolding/ops/pointwise/pointwise.h"

namespace sf::py {

const Tensor* operand(PyObject* o, Tensor& hold) {
  if (is_tensor(o)) return &tensor_of(o);
  Scalar s;
  if (PyFloat_Check(o) || PyLong_Check(o) || is_numpy_scalar(o)) {
    if (!to_scalar(o, s)) return nullptr;
    hold = wrapped(s);
    return &hold;
  }
  if (!is_numpy_array(o)) return nullptr;
  hold = from_numpy(o);
  return &hold;
}

namespace {

// What Python does where an operand is no tensor: it asks the other one's type. PyTorch's would only say that they do
// not go together.
PyObject* not_implemented(PyObject* other) {
  if (is_torch_tensor(other)) wrong_argument("operator", "an operand", "a tensor or a number", other);
  Py_RETURN_NOTIMPLEMENTED;
}

bool is_large(const Tensor& a, const Tensor& b) { return a.numel() > kReleaseAbove || b.numel() > kReleaseAbove; }

template <auto F> PyObject* binary(PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    Tensor ha, hb, y;
    const Tensor *x = operand(a, ha), *z = x ? operand(b, hb) : nullptr;
    if (!z) return not_implemented(x ? b : a);
    {
      MaybeRelease release(is_large(*x, *z));
      y = F(*x, *z);
    }
    return wrap(std::move(y));
  });
}

template <auto F> PyObject* unary(PyObject* a) {
  return guarded([&] {
    Tensor y;
    {
      MaybeRelease release(tensor_of(a).numel() > kReleaseAbove);
      y = F(tensor_of(a));
    }
    return wrap(std::move(y));
  });
}

template <auto F> PyObject* inplace(PyObject* a, PyObject* b) {
  return guarded([&]() -> PyObject* {
    Tensor hb;
    const Tensor* z = operand(b, hb);
    if (!z) return not_implemented(b);
    Tensor x = tensor_of(a);
    {
      MaybeRelease release(is_large(x, *z));
      F(x, *z);
    }
    return Py_NewRef(a);
  });
}

Tensor call2(const char* op, const Tensor& a, const Tensor& b) { return std::get<Tensor>(call_op(op, {a, b})); }

Tensor add_(const Tensor& a, const Tensor& b) { return add(a, b); }
Tensor sub_(const Tensor& a, const Tensor& b) { return sub(a, b); }
Tensor div_(const Tensor& a, const Tensor& b) { return div(a, b); }
Tensor bitand_(const Tensor& a, const Tensor& b) { return call2("bitwise_and", a, b); }
Tensor bitor_(const Tensor& a, const Tensor& b) { return call2("bitwise_or", a, b); }
Tensor bitxor_(const Tensor& a, const Tensor& b) { return call2("bitwise_xor", a, b); }
Tensor matmul_(const Tensor& a, const Tensor& b) { return call2("matmul", a, b); }
Tensor lshift_(const Tensor& a, const Tensor& b) { return call2("bitwise_left_shift", a, b); }
Tensor rshift_(const Tensor& a, const Tensor& b) { return call2("bitwise_right_shift", a, b); }
Tensor invert_(const Tensor& a) { return std::get<Tensor>(call_op("bitwise_not", {a})); }

void iadd(Tensor& a, const Tensor& b) { a.add_(b); }
void isub(Tensor& a, const Tensor& b) { a.sub_(b); }
void imul(Tensor& a, const Tensor& b) { a.mul_(b); }
void idiv(Tensor& a, const Tensor& b) { a.div_(b); }

#define SF_ASSIGN(name, fn)                                                                        \
  void name(Tensor& a, const Tensor& b) {                                                          \
    autograd::overwrite(#fn "_", a, [&](const Tensor& x) { return fn(x, b.is_same(a) ? x : b); }); \
  }
SF_ASSIGN(ifloordiv, floor_divide)
SF_ASSIGN(imod, remainder)
SF_ASSIGN(ipow, pow)
SF_ASSIGN(iand, bitand_)
SF_ASSIGN(ior, bitor_)
SF_ASSIGN(ixor, bitxor_)
SF_ASSIGN(ilshift, lshift_)
SF_ASSIGN(irshift, rshift_)
#undef SF_ASSIGN

bool no_modulus(PyObject* modulus) {
  if (modulus == Py_None) return true;
  PyErr_SetString(PyExc_TypeError, "pow: the three-argument form is not defined for tensors");
  return false;
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  return no_modulus(modulus) ? binary<sf::pow>(a, b) : nullptr;
}
PyObject* power_inplace(PyObject* a, PyObject* b, PyObject* modulus) {
  return no_modulus(modulus) ? inplace<ipow>(a, b) : nullptr;
}
PyObject* positive(PyObject* a) { return Py_NewRef(a); }

int truth(PyObject* a) {
  const Tensor& t = tensor_of(a);
  if (t.numel() != 1) {
    PyErr_SetString(PyExc_RuntimeError,
                    t.numel()
                        ? "bool: the truth of a tensor with more than one element is ambiguous; use .any() or .all()"
                        : "bool: the truth of a tensor without elements is ambiguous");
    return -1;
  }
  nb::object o = nb::steal(guarded([&] { return scalar_object(t).release().ptr(); }));
  return o ? PyObject_IsTrue(o.ptr()) : -1;
}
PyObject* to_python_float(PyObject* a) {
  return guarded([&] {
    SF_CHECK(tensor_of(a).numel() == 1, "float: needs a tensor with one element, got shape ", tensor_of(a).shape());
    return PyFloat_FromDouble(tensor_of(a).item());
  });
}
PyObject* to_python_int(PyObject* a) {
  return guarded([&] {
    SF_CHECK(tensor_of(a).numel() == 1, "int: needs a tensor with one element, got shape ", tensor_of(a).shape());
    return PyNumber_Long(scalar_object(tensor_of(a)).ptr());
  });
}
PyObject* to_python_index(PyObject* a) {
  return guarded([&] {
    const Tensor& t = tensor_of(a);
    SF_CHECK_AS(TypeError, t.numel() == 1 && !is_floating(t.dtype()),
                "index: only an integer tensor with one element is an index, got ", t.dtype(), " ", t.shape());
    return PyLong_FromLongLong(t.item_int());
  });
}

}  // namespace

PyObject* rich_compare(PyObject* a, PyObject* b, int op) {
  switch (op) {
    case Py_LT: return binary<lt>(a, b);
    case Py_LE: return binary<le>(a, b);
    case Py_EQ: return binary<eq>(a, b);
    case Py_NE: return binary<ne>(a, b);
    case Py_GT: return binary<gt>(a, b);
    default: return binary<ge>(a, b);
  }
}

#define SF_SLOT(slot, fn) \
  { slot, reinterpret_cast<void*>(fn) }
PyType_Slot number_slots[] = {
    SF_SLOT(Py_nb_add, binary<add_>),
    SF_SLOT(Py_nb_subtract, binary<sub_>),
    SF_SLOT(Py_nb_multiply, binary<mul>),
    SF_SLOT(Py_nb_true_divide, binary<div_>),
    SF_SLOT(Py_nb_floor_divide, binary<floor_divide>),
    SF_SLOT(Py_nb_remainder, binary<remainder>),
    SF_SLOT(Py_nb_power, power),
    SF_SLOT(Py_nb_matrix_multiply, binary<matmul_>),
    SF_SLOT(Py_nb_and, binary<bitand_>),
    SF_SLOT(Py_nb_or, binary<bitor_>),
    SF_SLOT(Py_nb_xor, binary<bitxor_>),
    SF_SLOT(Py_nb_lshift, binary<lshift_>),
    SF_SLOT(Py_nb_rshift, binary<rshift_>),
    SF_SLOT(Py_nb_negative, unary<neg>),
    SF_SLOT(Py_nb_positive, positive),
    SF_SLOT(Py_nb_absolute, unary<sf::abs>),
    SF_SLOT(Py_nb_invert, unary<invert_>),
    SF_SLOT(Py_nb_inplace_add, inplace<iadd>),
    SF_SLOT(Py_nb_inplace_subtract, inplace<isub>),
    SF_SLOT(Py_nb_inplace_multiply, inplace<imul>),
    SF_SLOT(Py_nb_inplace_true_divide, inplace<idiv>),
    SF_SLOT(Py_nb_inplace_floor_divide, inplace<ifloordiv>),
    SF_SLOT(Py_nb_inplace_remainder, inplace<imod>),
    SF_SLOT(Py_nb_inplace_power, power_inplace),
    SF_SLOT(Py_nb_inplace_and, inplace<iand>),
    SF_SLOT(Py_nb_inplace_or, inplace<ior>),
    SF_SLOT(Py_nb_inplace_xor, inplace<ixor>),
    SF_SLOT(Py_nb_inplace_lshift, inplace<ilshift>),
    SF_SLOT(Py_nb_inplace_rshift, inplace<irshift>),
    SF_SLOT(Py_nb_bool, truth),
    SF_SLOT(Py_nb_float, to_python_float),
    SF_SLOT(Py_nb_int, to_python_int),
    SF_SLOT(Py_nb_index, to_python_index),
    {0, nullptr},
};
#undef SF_SLOT

}  // namespace sf::py
