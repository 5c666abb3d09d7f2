// The rules of optim/ on Python's optimizers: a step reads options from a param group's dictionary and tensors from
// optimizer.state, both kept as torch keeps them, and hands everything to one C++ call.
#include <nanobind/stl/vector.h>

#include <cstring>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/autograd/node.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/optim/optim.h"

namespace sf::py {

namespace {

using optim::Update;

// Keys of dictionaries as interned strings, made once for each rule.
struct Names {
  std::vector<PyObject*> options, slots;
  PyObject* params = nullptr;
};
template <class Rule> const Names& names_of() {
  static const Names names = [] {
    Names n;
    Rule none;
    Rule::fields(none, [&](const char* name, auto&) { n.options.push_back(PyUnicode_InternFromString(name)); });
    for (const char* name : Rule::kSlots) n.slots.push_back(PyUnicode_InternFromString(name));
    n.params = PyUnicode_InternFromString("params");
    return n;
  }();
  return names;
}

void read_option(const char* rule, const char* name, double& to, PyObject* o) {
  if (PyFloat_CheckExact(o)) {
    to = PyFloat_AS_DOUBLE(o);
    return;
  }
  to = PyFloat_AsDouble(o);
  if (to == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    wrong_argument(rule, name, "a number", o);
  }
}
void read_option(const char* rule, const char* name, bool& to, PyObject* o) {
  int truth = PyObject_IsTrue(o);
  if (truth < 0) throw_python_error();
  if (!PyBool_Check(o) && !PyLong_Check(o) && o != Py_None) wrong_argument(rule, name, "a bool", o);
  to = truth == 1;
}
void read_option(const char* rule, const char* name, int64_t& to, PyObject* o) {
  if (!to_int(o, to)) wrong_argument(rule, name, "an integer", o);
}
void read_option(const char* rule, const char* name, std::optional<double>& to, PyObject* o) {
  to.reset();
  if (o != Py_None) read_option(rule, name, to.emplace(), o);
}
template <class T> void read_option(const char* rule, const char* name, std::array<T, 2>& to, PyObject* o) {
  if (!(PyTuple_Check(o) || PyList_Check(o)) || PySequence_Fast_GET_SIZE(o) != 2)
    wrong_argument(rule, name, "a pair of numbers", o);
  for (int i = 0; i < 2; ++i) read_option(rule, name, to[size_t(i)], PySequence_Fast_GET_ITEM(o, i));
}

PyObject* require(const char* rule, PyObject* dict, PyObject* key) {
  PyObject* o = PyDict_GetItemWithError(dict, key);
  if (!o && PyErr_Occurred()) throw_python_error();
  if (!o) {
    PyErr_Format(PyExc_KeyError, "%s: the param group has no '%U'", rule, key);
    throw_python_error();
  }
  return o;
}

void check_dict(const char* rule, const char* name, nb::handle o) {
  if (!PyDict_Check(o.ptr())) wrong_argument(rule, name, "a dict", o.ptr());
}

template <class Rule> Rule read_options(nb::handle group) {
  check_dict(Rule::kName, "param_group", group);
  const Names& names = names_of<Rule>();
  Rule rule;
  size_t i = 0;
  Rule::fields(rule, [&](const char* name, auto& member) {
    read_option(Rule::kName, name, member, require(Rule::kName, group.ptr(), names.options[i++]));
  });
  return rule;
}

// The tensors in a param's state, by slot. A step count may be a number, as in state of older PyTorch.
void read_slots(const char* rule, const std::vector<PyObject*>& slots, PyObject* state, Update& u) {
  for (size_t i = 0; i < slots.size(); ++i) {
    PyObject* o = PyDict_GetItemWithError(state, slots[i]);
    if (!o) {
      if (PyErr_Occurred()) throw_python_error();
    } else if (is_tensor(o)) {
      u.slots[i] = tensor_of(o);
    } else if (o != Py_None) {
      double number = 0;
      read_option(rule, "state", number, o);
      u.slots[i] = scalar_tensor(number, kFloat32);
    }
  }
}

template <class Rule> void step(nb::handle state, nb::handle group) {
  const Names& names = names_of<Rule>();
  Rule rule = read_options<Rule>(group);
  check_dict(Rule::kName, "state", state);
  if constexpr (requires { rule.settings_there; })
    for (auto [name, to] : {std::pair{"_settings", &rule.settings_there}, std::pair{"_found_inf", &rule.found_inf}})
      if (PyObject* given = PyDict_GetItemString(group.ptr(), name); given && given != Py_None) {
        if (!is_tensor(given)) wrong_argument(Rule::kName, name, "a tensor", given);
        *to = tensor_of(given);
      }
  PyObject* params = require(Rule::kName, group.ptr(), names.params);
  if (!PyList_Check(params)) wrong_argument(Rule::kName, "params", "a list", params);
  Py_ssize_t n = PyList_GET_SIZE(params);
  std::vector<Update> updates;
  std::vector<std::pair<nb::object, bool>> dicts;  // each param's state, and whether it is new
  updates.reserve(size_t(n));
  dicts.reserve(size_t(n));
  int64_t elements = 0;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* p = PyList_GET_ITEM(params, i);
    if (!is_tensor(p)) wrong_argument(Rule::kName, "params", "a list of tensors", p);
    Tensor grad = tensor_of(p).grad();
    if (!grad) continue;
    Update& u = updates.emplace_back();
    u.param = tensor_of(p);
    u.grad = std::move(grad);
    elements += u.param.numel();
    PyObject* known = PyDict_GetItemWithError(state.ptr(), p);
    if (!known && PyErr_Occurred()) throw_python_error();
    dicts.emplace_back(known ? nb::borrow(known) : steal(PyDict_New()), !known);
    check_dict(Rule::kName, "state", dicts.back().first);
    if (known) read_slots(Rule::kName, names.slots, known, u);
  }
  std::vector<std::array<Tensor, optim::kMaxSlots>> before;
  before.reserve(updates.size());
  for (const Update& u : updates) before.push_back(u.slots);
  {
    MaybeRelease release(elements > kReleaseAbove);
    rule.step(updates);
  }
  for (size_t k = 0; k < updates.size(); ++k) {
    PyObject* dict = dicts[k].first.ptr();
    for (size_t i = 0; i < names.slots.size(); ++i) {
      const Tensor& now = updates[k].slots[i];
      if (!now || now.is_same(before[k][i])) continue;
      nb::object o = steal(wrap(now));
      if (PyDict_SetItem(dict, names.slots[i], o.ptr()) < 0) throw_python_error();
    }
    if (dicts[k].second && PyDict_Size(dict) > 0) {
      nb::object key = steal(wrap(updates[k].param));
      if (PyDict_SetItem(state.ptr(), key.ptr(), dict) < 0) throw_python_error();
    }
  }
}

// optim.functional: one step of lists of tensors. state is {slot: a list of tensors or None, one for each param}; what
// the rule keeps in another form (float32 behind 16-bit statistics) is written back to the caller's tensors, what was
// None is put into the list.
template <class Rule> void apply(nb::list params, nb::list grads, nb::dict state, nb::handle group) {
  const Names& names = names_of<Rule>();
  Rule rule = read_options<Rule>(group);
  rule.check();
  std::vector<Update> updates(nb::len(params));
  std::vector<std::array<Tensor, optim::kMaxSlots>> given(updates.size());
  std::array<PyObject*, optim::kMaxSlots> lists{};
  for (size_t s = 0; s < names.slots.size(); ++s) {
    lists[s] = PyDict_GetItemWithError(state.ptr(), names.slots[s]);
    if (!lists[s] && PyErr_Occurred()) throw_python_error();
  }
  int64_t elements = 0;
  for (size_t i = 0; i < updates.size(); ++i) {
    Update& u = updates[i];
    auto read = [&](PyObject* o, const char* name) {
      if (!is_tensor(o)) wrong_argument(Rule::kName, name, "a list of tensors", o);
      return tensor_of(o);
    };
    u.param = read(PyList_GET_ITEM(params.ptr(), Py_ssize_t(i)), "params");
    u.grad = read(PyList_GET_ITEM(grads.ptr(), Py_ssize_t(i)), "grads");
    elements += u.param.numel();
    for (size_t s = 0; s < names.slots.size(); ++s)
      if (PyObject* o = lists[s] ? PyList_GET_ITEM(lists[s], Py_ssize_t(i)) : Py_None; o != Py_None)
        given[i][s] = u.slots[s] = read(o, Rule::kSlots[s]);
  }
  {
    MaybeRelease release(elements > kReleaseAbove);
    rule.step(updates);
    autograd::NoGrad off;
    for (size_t i = 0; i < updates.size(); ++i)
      for (size_t s = 0; s < names.slots.size(); ++s)
        if (given[i][s] && !updates[i].slots[s].is_same(given[i][s])) given[i][s].copy_(updates[i].slots[s]);
  }
  for (size_t i = 0; i < updates.size(); ++i)
    for (size_t s = 0; s < names.slots.size(); ++s)
      if (lists[s] && !given[i][s] && updates[i].slots[s] &&
          PyList_SetItem(lists[s], Py_ssize_t(i), wrap(updates[i].slots[s])) < 0)
        throw_python_error();
}

template <class Rule> void bind_rule(nb::module_& m) {
  std::string name = Rule::kName;
  m.def(("_" + name + "_step").c_str(), &step<Rule>, nb::arg("state"), nb::arg("group"));
  m.def(("_" + name + "_apply").c_str(), &apply<Rule>, nb::arg("params"), nb::arg("grads"), nb::arg("state"),
        nb::arg("group"));
  m.def(("_" + name + "_check").c_str(), [](nb::handle group) { read_options<Rule>(group).check(); });
  if constexpr (requires(Rule r) { r.settings_there; })
    m.def(("_" + name + "_write_settings").c_str(), [](optim::DeviceSettings& there, nb::handle group) {
      PyObject* params = require(Rule::kName, group.ptr(), names_of<Rule>().params);
      Tensors all;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) all.push_back(tensor_of(PyList_GET_ITEM(params, i)));
      return there.write(Rule::kName, read_options<Rule>(group).settings(), optim::capturable_device(Rule::kName, all));
    });
  // Refuses a tensor of a param's state that has another shape than the rule's;
  // names that the rule does not know may be anything.
  m.def(("_" + name + "_check_state").c_str(), [](const Tensor& param, const char* slot, const Tensor& value) {
    for (size_t i = 0; i < Rule::kSlots.size(); ++i)
      if (!std::strcmp(slot, Rule::kSlots[i])) check_shape(Rule::kName, slot, value, Rule::slot_shape(i, param));
  });
}

}  // namespace

void bind_optim(nb::module_& m) {
  nb::class_<optim::DeviceSettings>(m, "_DeviceSettings")
      .def(nb::init<>())
      .def("there", [](const optim::DeviceSettings& s, const char* rule) { return s.there(rule); });
  bind_rule<optim::AdamOptions>(m);
  bind_rule<optim::AdamWOptions>(m);
  bind_rule<optim::AdamW8bitOptions>(m);
  bind_rule<optim::AdafactorOptions>(m);
  bind_rule<optim::SGDOptions>(m);
  bind_rule<optim::AdadeltaOptions>(m);
  bind_rule<optim::AdagradOptions>(m);
  bind_rule<optim::AdamaxOptions>(m);
  bind_rule<optim::ASGDOptions>(m);
  bind_rule<optim::LionOptions>(m);
  bind_rule<optim::NAdamOptions>(m);
  bind_rule<optim::RAdamOptions>(m);
  bind_rule<optim::RMSpropOptions>(m);
  bind_rule<optim::RpropOptions>(m);
  m.def("_dynamic_map", &optim::dynamic_map);
  m.def("_zero_grad", [](nb::handle params, bool set_to_none) {
    if (!PyList_Check(params.ptr())) wrong_argument("zero_grad", "params", "a list", params.ptr());
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params.ptr()); ++i) {
      PyObject* p = PyList_GET_ITEM(params.ptr(), i);
      if (!is_tensor(p)) wrong_argument("zero_grad", "params", "a list of tensors", p);
      const Tensor& t = tensor_of(p);
      Tensor grad = t.grad();
      if (!grad) continue;
      if (set_to_none) {
        t.set_grad({});
      } else {
        // As torch: the same gradient tensor, off the tape, holding zeros.
        grad.impl()->grad_fn = {};
        grad.impl()->requires_grad = false;
        grad.zero_();
      }
    }
  });
}

}  // namespace sf::py
