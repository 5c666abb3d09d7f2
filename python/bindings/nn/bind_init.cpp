// torch.nn.init: scaffolding/nn/init.h as _core._init, with positional arguments only; names, defaults and
// documentation are in python/scaffolding/nn/init.py.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/nn/init.h"

namespace sf::py {

namespace {

namespace init = nn::init;

// Calls fill(generator), with the GIL released where the tensor is large.
Tensor drawn(const char* function, const Tensor& t, nb::handle generator, const auto& fill) {
  Generator g;
  if (!generator.is_none() && !to_generator(generator.ptr(), g))
    wrong_argument(function, "generator", "a Generator", generator.ptr());
  MaybeRelease release(t && t.numel() > kReleaseAbove);
  return fill(g);
}

}  // namespace

void bind_init(nb::module_& core) {
  nb::module_ m = core.def_submodule("_init");
  m.def(
      "uniform_",
      [](const Tensor& t, double a, double b, nb::handle generator) {
        return drawn("uniform_", t, generator, [&](const Generator& g) { return init::uniform_(t, a, b, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "normal_",
      [](const Tensor& t, double mean, double std, nb::handle generator) {
        return drawn("normal_", t, generator, [&](const Generator& g) { return init::normal_(t, mean, std, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "trunc_normal_",
      [](const Tensor& t, double mean, double std, double a, double b, nb::handle generator) {
        return drawn("trunc_normal_", t, generator,
                     [&](const Generator& g) { return init::trunc_normal_(t, mean, std, a, b, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def("constant_", [](const Tensor& t, nb::handle val) {
    Scalar value;
    if (!to_scalar(val.ptr(), value)) wrong_argument("constant_", "val", "a number", val.ptr());
    return init::constant_(t, value);
  });
  m.def("eye_", &init::eye_);
  m.def("dirac_", &init::dirac_);
  m.def(
      "xavier_uniform_",
      [](const Tensor& t, double gain, nb::handle generator) {
        return drawn("xavier_uniform_", t, generator,
                     [&](const Generator& g) { return init::xavier_uniform_(t, gain, g); });
      },
      nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "xavier_normal_",
      [](const Tensor& t, double gain, nb::handle generator) {
        return drawn("xavier_normal_", t, generator,
                     [&](const Generator& g) { return init::xavier_normal_(t, gain, g); });
      },
      nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "kaiming_uniform_",
      [](const Tensor& t, double a, const std::string& mode, const std::string& nonlinearity, nb::handle generator) {
        return drawn("kaiming_uniform_", t, generator,
                     [&](const Generator& g) { return init::kaiming_uniform_(t, a, mode, nonlinearity, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "kaiming_normal_",
      [](const Tensor& t, double a, const std::string& mode, const std::string& nonlinearity, nb::handle generator) {
        return drawn("kaiming_normal_", t, generator,
                     [&](const Generator& g) { return init::kaiming_normal_(t, a, mode, nonlinearity, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "orthogonal_",
      [](const Tensor& t, double gain, nb::handle generator) {
        return drawn("orthogonal_", t, generator, [&](const Generator& g) { return init::orthogonal_(t, gain, g); });
      },
      nb::arg(), nb::arg(), nb::arg().none());
  m.def(
      "sparse_",
      [](const Tensor& t, double sparsity, double std, nb::handle generator) {
        return drawn("sparse_", t, generator, [&](const Generator& g) { return init::sparse_(t, sparsity, std, g); });
      },
      nb::arg(), nb::arg(), nb::arg(), nb::arg().none());
  m.def("calculate_gain", &init::calculate_gain, nb::arg(), nb::arg().none());
  m.def("calculate_fan_in_and_fan_out", [](const Tensor& t) {
    init::Fans fans = init::calculate_fan_in_and_fan_out(t);
    return std::pair(fans.in, fans.out);
  });
}

}  // namespace sf::py
