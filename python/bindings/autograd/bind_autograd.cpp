// The tape in Python: grad mode, backward, nodes and hooks.
#include "python/bindings/autograd/bind_autograd.h"

#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/autograd/engine.h"
#include "scaffolding/autograd/tape.h"
#include "scaffolding/core/print.h"

namespace sf::py {

namespace {

// A recorded op, or the place where a leaf's gradient is accumulated.
struct PyNode {
  Ref<autograd::Node> node;
  Tensor leaf;
  const void* identity() const { return node ? static_cast<const void*>(node.get()) : leaf.impl(); }
};

nb::object edge_object(const autograd::Edge& e) {
  if (e.node) return wrap_node(e.node);
  if (e.leaf) return nb::cast(PyNode{{}, Tensor(e.leaf)});
  return nb::none();
}

void bind_nodes(nb::module_& m) {
  auto node = nb::class_<PyNode>(m, "Node", "A recorded op: a tensor's grad_fn.");
  node.def(
          "name", [](const PyNode& n) { return n.node ? grad_fn_name(*n.node) : std::string("AccumulateGrad"); },
          "The recorded op, as torch would call it.")
      .def_prop_ro("next_functions",
                   [](const PyNode& n) {
                     nb::list out;
                     if (n.node)
                       for (auto& e : n.node->edges) out.append(nb::make_tuple(edge_object(e), e.nr));
                     return nb::tuple(out);
                   })
      .def_prop_ro("variable",
                   [](const PyNode& n) {
                     if (n.node) throw nb::attribute_error("variable: only AccumulateGrad nodes have one");
                     return n.leaf;
                   })
      .def("__repr__",
           [](const PyNode& n) { return "<" + (n.node ? grad_fn_name(*n.node) : std::string("AccumulateGrad")) + ">"; })
      .def("__hash__", [](const PyNode& n) { return reinterpret_cast<intptr_t>(n.identity()) >> 4; })
      .def("__eq__", [](const PyNode& a, nb::handle b) {
        return nb::isinstance<PyNode>(b) && nb::inst_ptr<PyNode>(b)->identity() == a.identity();
      });
  node.attr("__module__") = "scaffolding.autograd";
}

void bind_mode(nb::module_& m) {
  using autograd::detail::mode;
  m.def(
      "is_grad_enabled", [] { return mode.grad; },
      "Whether ops are recorded now."
      "\n\n>>> with sf.no_grad(): print(sf.is_grad_enabled())\n"
      "False");
  m.def(
      "is_inference_mode_enabled", [] { return mode.inference; },
      "Whether inference_mode is in force."
      "\n\n>>> with sf.inference_mode(): print(sf.is_inference_mode_enabled())\n"
      "True");
  m.def("_set_grad_enabled", [](bool on) { return std::exchange(mode.grad, on); });
  m.def("_set_anomaly", [](bool on) { return std::exchange(mode.anomaly, on); });
  m.def(
      "is_anomaly_enabled", [] { return mode.anomaly; },
      "Whether detect_anomaly is in force."
      "\n\n>>> with sf.autograd.detect_anomaly(): print(sf.is_anomaly_enabled())\n"
      "True");
  m.def("_set_mode", [](bool grad, bool inference) {
    nb::tuple was = nb::make_tuple(mode.grad, mode.inference);
    mode.grad = grad;
    mode.inference = inference;
    return was;
  });
}

}  // namespace

std::string grad_fn_name(const autograd::Node& node) { return sf::grad_fn_name(node.name()); }
nb::object wrap_node(const Ref<autograd::Node>& node) { return nb::cast(PyNode{node, {}}); }

void bind_autograd(nb::module_& m) {
  bind_nodes(m);
  bind_mode(m);
  m.def(
      "_backward",
      [](const Tensors& roots, const Tensors& gradients, bool retain_graph, bool create_graph, const Tensors& inputs) {
        nb::gil_scoped_release release;
        autograd::backward(roots, gradients, {.retain_graph = retain_graph, .create_graph = create_graph}, inputs);
      },
      nb::arg("roots"), nb::arg("gradients"), nb::arg("retain_graph"), nb::arg("create_graph"), nb::arg("inputs"));
  m.def(
      "_grad",
      [](const Tensors& outputs, const Tensors& inputs, const Tensors& gradients, bool retain_graph, bool create_graph,
         bool allow_unused) {
        nb::gil_scoped_release release;
        return autograd::grad(outputs, inputs, gradients, {.retain_graph = retain_graph, .create_graph = create_graph},
                              allow_unused);
      },
      nb::arg("outputs"), nb::arg("inputs"), nb::arg("gradients"), nb::arg("retain_graph"), nb::arg("create_graph"),
      nb::arg("allow_unused"));
  tensor_method(
      "backward",
      [](const Tensor& t, const Tensor& gradient, nb::handle retain_graph, bool create_graph, nb::handle inputs) {
        bool retain = retain_graph.is_none() ? create_graph : PyObject_IsTrue(retain_graph.ptr()) == 1;
        Tensors only;
        if (is_tensor(inputs.ptr())) only = {tensor_of(inputs.ptr())};
        else if (!inputs.is_none() && !nb::try_cast(inputs, only))
          wrong_argument("backward", "inputs", "a list of tensors", inputs.ptr());
        nb::gil_scoped_release release;
        autograd::backward({t}, {gradient}, {.retain_graph = retain, .create_graph = create_graph}, only);
      },
      nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = nb::none(), nb::arg("create_graph") = false,
      nb::arg("inputs") = nb::none(),
      "Adds the gradient of this tensor (times `gradient`) to .grad of every leaf it depends on, or of inputs alone. "
      "retain_graph: whether what was saved stays, for another backward; None: create_graph. create_graph: whether the "
      "gradients can be differentiated again.");
  tensor_method(
      "detach", [](const Tensor& t) { return t.detach(); }, "The same memory, off the tape.");
  tensor_method(
      "detach_",
      [](nb::handle self) {
        TensorImpl* t = tensor_of(self.ptr()).impl();
        SF_CHECK_AS(RuntimeError, !t->base, "detach_: a view cannot be taken off the tape; use detach()");
        t->grad_fn = {};
        t->requires_grad = false;
        return nb::borrow(self);
      },
      "Takes this tensor off the tape.");
  tensor_method(
      "requires_grad_",
      [](nb::handle self, bool on) {
        Tensor t = tensor_of(self.ptr());
        t.requires_grad_(on);
        return nb::borrow(self);
      },
      nb::arg("requires_grad") = true, "Switches recording for this leaf on, or off with requires_grad=False.");
  tensor_method(
      "retain_grad", [](const Tensor& t) { t.retain_grad(); },
      "Keeps .grad of this non-leaf tensor in the next backward.");
}

}  // namespace sf::py
