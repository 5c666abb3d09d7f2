// DiagonalGaussianDistribution, under diffusers' names.
#include "python/bindings/models/bind_autoencoders.h"

#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/models/autoencoders/autoencoder_tiny.h"
#include "scaffolding/models/autoencoders/vae.h"

namespace sf::py {

namespace {

using Distribution = models::DiagonalGaussianDistribution;
constexpr const char* kName = "DiagonalGaussianDistribution";

const Tensor& tensor(const char* name, nb::handle o) {
  if (!is_tensor(o.ptr())) wrong_argument(kName, name, "a tensor", o.ptr());
  return tensor_of(o.ptr());
}

nb::object sample(const Distribution& self, nb::handle generator) {
  auto one = [](nb::handle o) {
    Generator g;
    if (!o.is_none() && !to_generator(o.ptr(), g))
      wrong_argument(kName, "generator", "a Generator or a list of them", o.ptr());
    return g;
  };
  if (!PyList_Check(generator.ptr()) && !PyTuple_Check(generator.ptr()))
    return steal(wrap(self.sample(one(generator))));
  std::vector<Generator> all;
  for (nb::handle o : generator) all.push_back(one(o));
  return steal(wrap(all.size() == 1 ? self.sample(all[0]) : self.sample(all)));
}

nb::object kl(const Distribution& self, nb::handle other) {
  if (other.is_none()) return steal(wrap(self.kl()));
  Distribution* o = nullptr;
  if (!nb::try_cast(other, o)) wrong_argument(kName, "other", "a DiagonalGaussianDistribution", other.ptr());
  return steal(wrap(self.kl(*o)));
}

nb::object nll(const Distribution& self, nb::handle sample, nb::handle dims) {
  Shape over;
  if (!to_shape(dims.ptr(), over)) wrong_argument(kName, "dims", "a list of integers", dims.ptr());
  return steal(wrap(self.nll(tensor("sample", sample), over)));
}

void load_taesd(nb::handle self, const std::string& encoder, const std::string& decoder, nb::handle dtype) {
  std::optional<DType> wanted;
  if (!dtype.is_none() && !to_dtype(dtype.ptr(), wanted.emplace()))
    wrong_argument("from_taesd", "torch_dtype", "a dtype", dtype.ptr());
  adopt(reinterpret_cast<PyModule*>(self.ptr()), models::load_taesd(encoder, decoder, wanted), true);
}

}  // namespace

void bind_autoencoders(nb::module_& m) {
  m.def("load_taesd", &load_taesd, nb::arg("self"), nb::arg("encoder"), nb::arg("decoder"), nb::arg("dtype").none());
  auto attribute = [](Tensor Distribution::*member) {
    return [member](const Distribution& self) { return steal(wrap(self.*member)); };
  };
  nb::object dims = nb::make_tuple(1, 2, 3);
  nb::class_<Distribution>(
      m, kName,
      "A normal distribution for every latent, from parameters [B, 2 C, H, W]: means, then logarithms of variances, "
      "which are clamped to [-30, 20]. deterministic: variances are 0.")
      .def(
          "__init__",
          [](Distribution* self, nb::handle parameters, bool deterministic) {
            new (self) Distribution(tensor("parameters", parameters), deterministic);
          },
          nb::arg("parameters"), nb::arg("deterministic") = false)
      .def_prop_ro("parameters", attribute(&Distribution::parameters))
      .def_prop_ro("mean", attribute(&Distribution::mean))
      .def_prop_ro("logvar", attribute(&Distribution::logvar))
      .def_prop_ro("std", attribute(&Distribution::std))
      .def_prop_ro("var", attribute(&Distribution::var))
      .def_ro("deterministic", &Distribution::deterministic)
      .def("sample", &sample, nb::arg("generator") = nb::none(),
           "mean + std * noise [B, C, H, W], drawn from generator; a list of generators has one for each of the batch.")
      .def(
          "mode", [](const Distribution& self) { return steal(wrap(self.mode())); }, "The means.")
      .def("kl", &kl, nb::arg("other") = nb::none(),
           "Divergence from other, or from the standard normal distribution: [B].")
      .def("nll", &nll, nb::arg("sample"), nb::arg("dims") = dims,
           "Negative log likelihood of a sample, summed over dims.")
      .attr("__module__") = "scaffolding.models";
}

}  // namespace sf::py
