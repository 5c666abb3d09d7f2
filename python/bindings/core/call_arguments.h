// The arguments of one call from Python, positional and keyword, as sf::Values in the order of a parameter list.
#pragma once
#include <cstring>
#include <memory>

#include "python/bindings/core/bind_arguments.h"

namespace sf::py {

inline constexpr size_t kMaxArguments = 32;

// What can be called: an op, a layer's constructor, its forward.
struct Parameters {
  const std::string& owner;
  const std::string& text;  // in Python syntax, for messages
  const std::vector<ArgInfo>& args;
  PyObject* names;        // tuple of interned argument names
  bool is_layer = false;  // a layer's constructor remembers whether a size was one number; sizes may be words ('same')
};

nb::object interned_names(const std::vector<ArgInfo>& args);
nb::object signature_of(const std::string& parameters);  // inspect.Signature

inline const char* text(PyObject* unicode) {
  const char* s = PyUnicode_AsUTF8(unicode);
  return s ? s : "?";
}

// The position of a keyword; numpy's spellings of dim and keepdim are accepted, as in torch, and pow's exponent.
inline int position_of(const Parameters& f, PyObject* keyword) {
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
inline bool takes_the_rest(const ArgInfo& last, PyObject* first) {
  if (last.kind == ArgKind::Ints)
    return PyLong_Check(first) || (!PyTuple_Check(first) && !PyList_Check(first) && PyIndex_Check(first));
  return last.kind == ArgKind::Tensors && is_tensor(first);
}

// Sizes where None stands for the input's own: -1.
inline Shape with_holes(const std::string& owner, const ArgInfo& info, PyObject* tuple) {
  Shape out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    int64_t n = -1;
    if (item != Py_None && !to_int(item, n)) wrong_argument(owner, info.name, name(info.kind), tuple);
    out.push_back(n);
  }
  return out;
}

inline Value layer_value(const std::string& owner, const ArgInfo& info, PyObject* o) {
  if (info.kind == ArgKind::Ints && PyLong_Check(o) && !PyBool_Check(o))
    return to_value(owner, ArgInfo{info.name, ArgKind::Int, false, false, {}}, o);
  if (info.kind == ArgKind::Ints && PyUnicode_Check(o)) return std::string(text(o));
  if (info.kind == ArgKind::Ints && PyTuple_Check(o) && PySequence_Contains(o, Py_None) == 1)
    return with_holes(owner, info, o);
  if (info.kind == ArgKind::Floats && (PyFloat_Check(o) || PyLong_Check(o)))
    return to_value(owner, ArgInfo{info.name, ArgKind::Float, false, false, {}}, o);
  return to_value(owner, info, o);
}

class Arguments {
 public:
  Arguments(const Parameters& p, PyObject* const* args, size_t given, PyObject* keywords) : p_(p) {
    std::uninitialized_default_construct_n(values_, p_.args.size());
    try {
      read(args, given, keywords);
    } catch (...) {
      std::destroy_n(values_, p_.args.size());
      throw;
    }
  }
  ~Arguments() { std::destroy_n(values_, p_.args.size()); }
  Arguments(const Arguments&) = delete;

  std::span<const Value> values() const { return {values_, p_.args.size()}; }
  bool large() const { return large_; }

 private:
  void read(PyObject* const* args, size_t given, PyObject* keywords) {
    size_t wanted = p_.args.size();
    const std::string& name = p_.owner;
    if (!p_.is_layer && wanted > 0 && given >= wanted && takes_the_rest(p_.args[wanted - 1], args[wanted - 1]) &&
        !(given > wanted && PyBool_Check(args[given - 1]))) {
      for (size_t i = 0; i + 1 < wanted; ++i) set(i, args[i]);
      nb::object rest = steal(PyTuple_New(Py_ssize_t(given - wanted + 1)));
      for (size_t i = wanted - 1; i < given; ++i)
        PyTuple_SET_ITEM(rest.ptr(), Py_ssize_t(i + 1 - wanted), Py_NewRef(args[i]));
      set(wanted - 1, rest.ptr());
    } else {
      SF_CHECK_AS(TypeError, given <= wanted, name, ": takes at most ", wanted, " arguments (", p_.text, "), got ",
                  given);
      for (size_t i = 0; i < given; ++i) set(i, args[i]);
    }
    Py_ssize_t count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t k = 0; k < count; ++k) {
      PyObject* keyword = PyTuple_GET_ITEM(keywords, k);
      int i = position_of(p_, keyword);
      SF_CHECK_AS(TypeError, i >= 0, name, ": has no argument '", text(keyword), "'; it takes (", p_.text, ")");
      SF_CHECK_AS(TypeError, !(set_ >> i & 1), name, ": argument '", text(keyword), "' is given twice");
      set(size_t(i), args[given + size_t(k)]);
    }
    for (size_t i = 0; i < wanted; ++i) {
      if (set_ >> i & 1) continue;
      SF_CHECK_AS(TypeError, p_.args[i].has_default, name, ": missing argument '", p_.args[i].name, "'");
      values_[i] = p_.args[i].fallback;
    }
  }

  void set(size_t i, PyObject* o) {
    values_[i] = p_.is_layer ? layer_value(p_.owner, p_.args[i], o) : to_value(p_.owner, p_.args[i], o);
    set_ |= 1u << i;
    if (auto* t = std::get_if<Tensor>(&values_[i])) {
      large_ |= t->numel() > kReleaseAbove;
    } else if (auto* ts = std::get_if<Tensors>(&values_[i])) {
      for (auto& t : *ts) large_ |= t && t.numel() > kReleaseAbove;
    }
  }

  const Parameters& p_;
  union {
    Value values_[kMaxArguments];  // only the first args.size() of them exist: making 24 costs more than a small op
  };
  uint32_t set_ = 0;
  bool large_ = false;
};

}  // namespace sf::py
