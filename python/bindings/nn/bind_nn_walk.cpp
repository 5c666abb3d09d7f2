// What walks a module: lists of members, state dicts, moving and converting.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/nn/adapter.h"
#include "scaffolding/nn/host_memory.h"
#include "scaffolding/nn/state_dict.h"

namespace sf::py {

namespace {

nb::str str(const std::string& s) { return nb::str(s.data(), s.size()); }
nb::object iterator(const nb::list& items) { return steal(PyObject_GetIter(items.ptr())); }

nb::object tensor_object(const nn::NamedTensor& t) {
  auto* owner = static_cast<PyModule*>(t.owner->python);
  if (!owner || !owner->native || t.tensor.impl()->python) return steal(wrap(t.tensor));
  auto dot = t.name.rfind('.');
  nb::str name = str(dot == t.name.npos ? t.name : t.name.substr(dot + 1));
  return steal(show_tensor(owner, name.ptr(), t.tensor));
}

nb::object named(const std::vector<nn::NamedTensor>& tensors, bool names) {
  nb::list out;
  for (auto& t : tensors) {
    if (names) out.append(nb::make_tuple(str(t.name), tensor_object(t)));
    else out.append(tensor_object(t));
  }
  return iterator(out);
}

nb::object module_handle(const nn::NamedModule& m) {
  auto* parent = m.parent ? static_cast<PyModule*>(m.parent->python) : nullptr;
  SF_CHECK_AS(RuntimeError, m.module->python || parent, m.module->type(), ": the module around it is gone");
  return steal(wrap_module(*m.module, parent));
}

nb::list module_list(const std::vector<nn::NamedModule>& modules, bool names) {
  nb::list out;
  std::vector<nb::object> alive;  // a parent's object lives until its children have theirs
  for (auto& m : modules) {
    alive.push_back(module_handle(m));
    if (names) out.append(nb::make_tuple(str(m.name), alive.back()));
    else out.append(alive.back());
  }
  return out;
}

// torch lists a child once, even when it has two names.
std::vector<nn::NamedModule> children_of(nb::handle self, const char* op, bool unique) {
  auto all = nn::named_children(module_of(self, op));
  if (!unique) return all;
  std::vector<nn::Module*> seen;
  std::erase_if(all, [&](auto& c) {
    if (std::find(seen.begin(), seen.end(), c.module) != seen.end()) return true;
    seen.push_back(c.module);
    return false;
  });
  return all;
}

nb::dict state_dict(nb::handle self, const std::string& prefix, bool keep_vars) {
  nb::dict out;
  for (auto& [name, t] : nn::state_dict(module_of(self, "state_dict"), prefix, true))
    out[str(name)] = keep_vars ? steal(wrap(t)) : steal(wrap(t.detach()));
  return out;
}

nb::tuple load_state_dict(nb::handle self, nb::handle state, bool strict, bool assign) {
  std::map<std::string, Tensor> tensors;
  nb::object items = state.attr("items")();
  for (nb::handle item : items) {
    nb::object name = item[0], value = item[1];
    SF_CHECK_AS(TypeError, PyUnicode_Check(name.ptr()), "load_state_dict: keys must be strings, got ",
                type_name(name.ptr()));
    std::string key = nb::cast<std::string>(name);
    SF_CHECK_AS(TypeError, is_tensor(value.ptr()), "load_state_dict: '", key, "' must be a tensor, got ",
                type_name(value.ptr()));
    tensors[key] = tensor_of(value.ptr());
  }
  nn::LoadReport report = nn::load_state_dict(module_of(self, "load_state_dict"), tensors, {strict, assign});
  nb::list missing, unexpected;
  for (auto& k : report.missing_keys) missing.append(str(k));
  for (auto& k : report.unexpected_keys) unexpected.append(str(k));
  return nb::make_tuple(missing, unexpected);
}

std::string state_dict_errors(nb::handle self, const std::vector<std::string>& missing,
                              const std::vector<std::string>& unexpected) {
  return nn::state_dict_errors(module_of(self, "load_state_dict"), {missing, unexpected});
}

void convert(nb::handle self, nb::handle device, nb::handle dtype, nb::handle memory_format) {
  nn::ToOptions o;
  Device d;
  DType t;
  if (!device.is_none()) {
    SF_CHECK_AS(TypeError, to_device(device.ptr(), d), "to: device must be a device or its name");
    o.device = d;
  }
  if (!dtype.is_none()) {
    SF_CHECK_AS(TypeError, to_dtype(dtype.ptr(), t), "to: dtype must be a dtype");
    o.dtype = t;
  }
  if (!memory_format.is_none())
    SF_CHECK_AS(TypeError, to_memory_format(memory_format.ptr(), o.memory_format),
                "to: memory_format must be a memory format");
  nn::Module& m = module_of(self, "to");
  nn::to(m, o);
}

nb::list member_names(nb::handle self,
                      const std::string& kind) {  // of the C++ class: "parameters", "buffers", "modules"
  struct Names : nn::Visitor {
    char kind;
    nb::list out;
    void parameter(std::string_view n, const Tensor&) override {
      if (kind == 'p') out.append(nb::str(n.data(), n.size()));
    }
    void buffer(std::string_view n, const Tensor&, bool) override {
      if (kind == 'b') out.append(nb::str(n.data(), n.size()));
    }
    void module(std::string_view n, nn::Module*) override {
      if (kind == 'm') out.append(nb::str(n.data(), n.size()));
    }
  } names;
  names.kind = kind.at(0);
  PyModule& m = module_object(self, "_member_names");
  if (m.native) m.module->visit(names);
  return names.out;
}

}  // namespace

void bind_walks(nb::module_& m) {
  module_method(
      "named_parameters",
      [](nb::handle self, const std::string& prefix, bool recurse, bool remove_duplicate) {
        return named(nn::named_parameters(module_of(self, "named_parameters"), prefix, recurse, remove_duplicate),
                     true);
      },
      nb::arg("prefix") = "", nb::arg("recurse") = true, nb::arg("remove_duplicate") = true,
      "Iterates over (dotted name behind prefix, parameter): the module's own, then with recurse those of its "
      "children. "
      "remove_duplicate: one that two modules share comes once.");
  module_method(
      "parameters",
      [](nb::handle self, bool recurse) {
        return named(nn::named_parameters(module_of(self, "parameters"), "", recurse), false);
      },
      nb::arg("recurse") = true,
      "Iterates over the parameters, with recurse those of all modules below; each once, also when two share it.");
  module_method(
      "named_buffers",
      [](nb::handle self, const std::string& prefix, bool recurse, bool remove_duplicate) {
        return named(nn::named_buffers(module_of(self, "named_buffers"), prefix, recurse, remove_duplicate), true);
      },
      nb::arg("prefix") = "", nb::arg("recurse") = true, nb::arg("remove_duplicate") = true,
      "Iterates over (dotted name behind prefix, buffer), as named_parameters with its recurse and remove_duplicate.");
  module_method(
      "buffers",
      [](nb::handle self, bool recurse) {
        return named(nn::named_buffers(module_of(self, "buffers"), "", recurse), false);
      },
      nb::arg("recurse") = true, "Iterates over the buffers, with recurse those of all modules below.");
  module_method(
      "children", [](nb::handle self) { return iterator(module_list(children_of(self, "children", true), false)); },
      "Iterates over the child modules.");
  module_method(
      "named_children",
      [](nb::handle self) { return iterator(module_list(children_of(self, "named_children", true), true)); },
      "Iterates over (name, child module).");
  module_method(
      "named_modules",
      [](nb::handle self, nb::handle memo, const std::string& prefix, bool remove_duplicate) {
        nb::list all = module_list(nn::named_modules(module_of(self, "named_modules"), prefix, remove_duplicate), true);
        if (memo.is_none()) return iterator(all);
        nb::list fresh;
        for (nb::handle item : all) {
          if (remove_duplicate && PySequence_Contains(memo.ptr(), nb::object(item[1]).ptr()) == 1) continue;
          memo.attr("add")(nb::object(item[1]));
          fresh.append(item);
        }
        return iterator(fresh);
      },
      nb::arg("memo") = nb::none(), nb::arg("prefix") = "", nb::arg("remove_duplicate") = true,
      "Iterates over (dotted name, module): the module itself under prefix, then all below it. remove_duplicate: each "
      "once. memo: a set of modules to leave out.");
  module_method(
      "modules",
      [](nb::handle self) { return iterator(module_list(nn::named_modules(module_of(self, "modules")), false)); },
      "Iterates over the module itself and all below it.");
  module_method(
      "train",
      [](nb::handle self, bool mode) {
        module_of(self, "train").train(mode);
        return nb::borrow(self);
      },
      nb::arg("mode") = true, "Sets training mode here and below; returns the module.");
  module_method(
      "zero_grad", [](nb::handle self, bool set_to_none) { nn::zero_grad(module_of(self, "zero_grad"), set_to_none); },
      nb::arg("set_to_none") = true,
      "Drops the gradients of all parameters, or with set_to_none=False fills them with zeros.");
  module_method(
      "requires_grad_",
      [](nb::handle self, bool requires_grad) {
        nn::requires_grad_(module_of(self, "requires_grad_"), requires_grad);
        return nb::borrow(self);
      },
      nb::arg("requires_grad") = true, "Sets requires_grad of all parameters; returns the module.");
  module_method(
      "extra_repr",
      [](nb::handle self) {
        PyModule& o = module_object(self, "extra_repr");
        return o.native ? o.module->extra_repr() : std::string();
      },
      "What stands between the parentheses of the module's repr.");
  m.def("_state_dict", &state_dict);
  m.def("_load_state_dict", &load_state_dict);
  m.def("_state_dict_errors", &state_dict_errors);
  m.def("_convert_module", &convert, nb::arg("module"), nb::arg("device").none(), nb::arg("dtype").none(),
        nb::arg("memory_format").none());
  m.def("_member_names", &member_names);
  m.def("_has_adapter", [](nb::handle layer) { return bool(module_of(layer, "_has_adapter").adapter()); });
  m.def("_take_adapter_off", [](nb::handle layer) { module_of(layer, "_take_adapter_off").adapt(nullptr); });
  m.def("_list_repr", [](nb::handle self) { return str(nn::repr(module_of(self, "repr"), true)); });
  m.def("_release_host_memory",
        [](nb::handle self) { nn::release_host_memory(module_of(self, "_release_cpu_shadows")); });
}

}  // namespace sf::py
