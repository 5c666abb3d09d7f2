// GradientMap in Python: a mapping from leaves to gradients, with the edits of optim/gradient_map.h.
#include <nanobind/stl/optional.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "scaffolding/optim/gradient_map.h"

namespace sf::py {

namespace {

using optim::GradientMap;
using optim::GradientStatistics;

Generator generator_argument(nb::handle o) {
  Generator g;
  if (!o.is_none() && !to_generator(o.ptr(), g)) wrong_argument("add_noise", "generator", "a generator", o.ptr());
  return g;
}

Tensor leaf_argument(nb::handle o) {
  if (!is_tensor(o.ptr())) wrong_argument("GradientMap", "a key", "a tensor", o.ptr());
  return tensor_of(o.ptr());
}

Tensor require(const GradientMap& map, nb::handle leaf) {
  Tensor g = map.get(leaf_argument(leaf));
  if (!g) throw nb::key_error("GradientMap: the tensor has no gradient here");
  return g;
}

void transform(GradientMap& map, nb::handle function) {
  map.transform([&](const Tensor& leaf, const Tensor& g) -> Tensor {
    nb::object result = function(steal(wrap(leaf)), steal(wrap(g)));
    if (result.is_none()) return {};
    if (!is_tensor(result.ptr()))
      wrong_argument("transform", "the function's result", "a tensor or None", result.ptr());
    return tensor_of(result.ptr());
  });
}

template <class F> nb::list listed(const GradientMap& map, const F& f) {
  nb::list out;
  for (auto& entry : map) out.append(f(entry));
  return out;
}

nb::object leaf_of(const GradientMap::Entry& e) { return steal(wrap(e.leaf)); }
nb::object gradient_of(const GradientMap::Entry& e) { return steal(wrap(e.gradient)); }
nb::object item_of(const GradientMap::Entry& e) { return nb::make_tuple(leaf_of(e), gradient_of(e)); }

void bind_statistics(nb::module_& m) {
  auto statistics =
      nb::class_<GradientStatistics>(m, "GradientStatistics", "What GradientMap.statistics() counts of a gradient.");
  statistics.def_ro("norm", &GradientStatistics::norm, "The Euclidean norm of the finite elements.")
      .def_ro("abs_max", &GradientStatistics::abs_max)
      .def_ro("mean", &GradientStatistics::mean)
      .def_ro("count", &GradientStatistics::count, "How many elements.")
      .def_ro("nan", &GradientStatistics::nan, "How many are NaN.")
      .def_ro("inf", &GradientStatistics::inf, "How many are infinite.")
      .def("__repr__", [](const GradientStatistics& s) {
        nb::object text =
            nb::str("GradientStatistics(norm={:.6g}, abs_max={:.6g}, mean={:.6g}, count={}, nan={}, inf={})")
                .attr("format")(s.norm, s.abs_max, s.mean, s.count, s.nan, s.inf);
        return text;
      });
  statistics.attr("__module__") = "scaffolding.autograd";
}

}  // namespace

void bind_gradient_map(nb::module_& m) {
  bind_statistics(m);
  auto map = nb::class_<GradientMap>(m, "GradientMap");
  map.doc() =
      "The gradients of a backward pass, by leaf, as values to clip, normalise, measure, set and take before the "
      "optimizer sees them.";
  map.def("__len__", &GradientMap::size)
      .def("__contains__", [](const GradientMap& g,
                              nb::handle leaf) { return is_tensor(leaf.ptr()) && g.contains(tensor_of(leaf.ptr())); })
      .def("__getitem__", &require)
      .def("__setitem__",
           [](GradientMap& g, nb::handle leaf, const Tensor& gradient) { g.set(leaf_argument(leaf), gradient); })
      .def("__delitem__",
           [](GradientMap& g, nb::handle leaf) {
             require(g, leaf);
             g.erase(leaf_argument(leaf));
           })
      .def("__iter__", [](const GradientMap& g) { return nb::iter(listed(g, leaf_of)); })
      .def(
          "keys", [](const GradientMap& g) { return listed(g, leaf_of); },
          "The leaves, in the order in which backward finished them.")
      .def(
          "values", [](const GradientMap& g) { return listed(g, gradient_of); }, "The gradients.")
      .def(
          "items", [](const GradientMap& g) { return listed(g, item_of); }, "(leaf, gradient) pairs.")
      .def(
          "get",
          [](const GradientMap& g, nb::handle leaf, nb::object fallback) {
            Tensor found = g.get(leaf_argument(leaf));
            return found ? steal(wrap(found)) : fallback;
          },
          nb::arg("leaf"), nb::arg("default") = nb::none(), "The gradient of a leaf, default where there is none.")
      .def(
          "take",
          [](GradientMap& g, nb::handle leaf) {
            require(g, leaf);
            return g.take(leaf_argument(leaf));
          },
          nb::arg("leaf"), "The gradient of leaf, which leaves the map.")
      .def("clear", &GradientMap::clear)
      .def("__repr__",
           [](const GradientMap& g) { return nb::str("<GradientMap of {} gradients>").attr("format")(g.size()); });
  map.def("transform", &transform, nb::arg("function"),
          "function(leaf, gradient) returns the new gradient, or None to drop it.")
      .def("scale", &GradientMap::scale, nb::arg("factor"), "Multiplies every gradient by factor.")
      .def("norm", &GradientMap::norm, nb::arg("norm_type") = 2.0,
           "The norm, of order norm_type, of all gradients as one vector.")
      .def("clip_norm", &GradientMap::clip_norm, nb::arg("max_norm"), nb::arg("norm_type") = 2.0,
           nb::arg("error_if_nonfinite") = false,
           "Scales all so that their norm, of order norm_type, is at most max_norm; returns the norm before. "
           "error_if_nonfinite: RuntimeError where it is NaN or infinite.")
      .def("clip_value", &GradientMap::clip_value, nb::arg("limit"), "Limits every element to [-limit, limit].")
      .def("clip_adaptive", &GradientMap::clip_adaptive, nb::arg("clip_factor") = 0.01, nb::arg("eps") = 1e-3,
           nb::arg("unit_wise") = false,
           "Limits each gradient's norm to clip_factor times its leaf's norm (at least eps); with unit_wise that of "
           "each "
           "row.")
      .def("normalize", &GradientMap::normalize, nb::arg("norm_type") = 2.0, nb::arg("each") = false,
           nb::arg("eps") = 1e-12,
           "Scales to norm 1, of order norm_type, together or each gradient by itself; norms below eps count as eps.")
      .def(
          "add_noise",
          [](GradientMap& g, double std, nb::handle generator) { g.add_noise(std, generator_argument(generator)); },
          nb::arg("std"), nb::arg("generator") = nb::none(),
          "Adds normal noise of deviation std, drawn from generator.")
      .def(
          "statistics",
          [](const GradientMap& g, nb::handle leaf) {
            return leaf.is_none() ? g.statistics() : g.statistics(leaf_argument(leaf));
          },
          nb::arg("leaf") = nb::none(),
          "Norm, largest absolute value, mean and the number of NaN and Inf, of the gradient of leaf or of all.")
      .def("has_invalid_values", &GradientMap::has_invalid_values, "Whether any element is NaN or infinite.")
      .def("apply_to_grads", &GradientMap::apply_to_grads, nb::arg("accumulate") = false,
           "Puts the gradients into .grad of their leaves, or with accumulate adds them to it.");
  map.attr("__module__") = "scaffolding.autograd";

  m.def(
      "_backward_map",
      [](const Tensors& roots, const Tensors& gradients, bool retain_graph, bool create_graph, bool write_grad) {
        nb::gil_scoped_release release;
        return optim::backward_map(roots, gradients, {.retain_graph = retain_graph, .create_graph = create_graph},
                                   write_grad);
      },
      nb::arg("roots"), nb::arg("gradients"), nb::arg("retain_graph"), nb::arg("create_graph"), nb::arg("write_grad"));
  tensor_method(
      "backward_map",
      [](const Tensor& t, const Tensor& gradient, bool retain_graph, bool create_graph) {
        nb::gil_scoped_release release;
        return optim::backward_map({t}, {gradient}, {.retain_graph = retain_graph, .create_graph = create_graph});
      },
      nb::arg("gradient") = nb::none(), nb::arg("retain_graph") = false, nb::arg("create_graph") = false,
      "backward(gradient, retain_graph, create_graph) that leaves .grad alone and gives the gradients as a "
      "GradientMap.");
}

}  // namespace sf::py
