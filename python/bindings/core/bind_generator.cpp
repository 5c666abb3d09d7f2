#include "python/bindings/core/bind_generator.h"

#include <nanobind/stl/string.h>

#include <cstring>

#include "python/bindings/core/bind_arguments.h"

namespace sf::py {

nb::object wrap_generator(const Generator& g) { return nb::cast(PyGenerator{g}); }

static Device device_of(const char* op, nb::handle o) {
  Device d;
  if (!o.is_none() && !to_device(o.ptr(), d)) wrong_argument(op, "device", "a device", o.ptr());
  return d;
}

void bind_generator(nb::module_& m) {
  auto generator = nb::class_<PyGenerator>(m, "Generator");
  generator.doc() =
      "A seeded stream of random numbers of a device, equal to torch's for the same seed. Generator(\"cpu\", "
      "algorithm=\"cuda\", "
      "threads=n) computes\n"
      "the numbers of torch's CUDA generator on the CPU; n is the number of GPU threads of the launch it stands for.";
  generator
      .def(
          "__init__",
          [](PyGenerator* self, nb::handle device, const std::string& algorithm, int64_t threads) {
            new (self) PyGenerator{make_generator(device_of("Generator", device), algorithm, threads)};
          },
          nb::arg("device") = "cpu", nb::arg("algorithm") = "", nb::arg("threads") = 0)
      .def(
          "manual_seed",
          [](nb::handle self, nb::int_ seed) {
            auto value = nb::cast<uint64_t>(nb::int_(nb::object(seed & nb::int_(0xFFFFFFFFFFFFFFFFull))));
            nb::inst_ptr<PyGenerator>(self)->generator->manual_seed(value);
            return nb::borrow(self);
          },
          nb::arg("seed"), "Starts the stream of this seed; returns the generator.")
      .def(
          "seed", [](const PyGenerator& g) { return g.generator->seed(); },
          "Seeds with a number from the system; returns it.")
      .def(
          "initial_seed", [](const PyGenerator& g) { return g.generator->initial_seed(); },
          "The seed the stream started from.")
      .def(
          "clone_state", [](const PyGenerator& g) { return PyGenerator{g.generator->clone()}; },
          "Another generator at the same place of the same stream.")
      .def(
          "get_state",
          [](const PyGenerator& g) {
            std::vector<uint8_t> state = g.generator->get_state();
            Tensor t = empty({int64_t(state.size())}, kUInt8);
            std::memcpy(t.data_ptr(), state.data(), state.size());
            return t;
          },
          "Where the stream is, as a uint8 tensor.")
      .def(
          "set_state",
          [](nb::handle self, const Tensor& state) {
            SF_CHECK_AS(TypeError, state && state.dtype() == kUInt8,
                        "set_state: new_state must be a uint8 tensor from get_state");
            Tensor host = state.to(Device::CPU).contiguous();
            nb::inst_ptr<PyGenerator>(self)->generator->set_state(
                {host.data<uint8_t>(), host.data<uint8_t>() + host.numel()});
            return nb::borrow(self);
          },
          nb::arg("new_state"), "Goes to new_state, a place that get_state gave.")
      .def_prop_ro("device", [](const PyGenerator& g) { return g.generator->device; })
      .def_prop_ro("algorithm", [](const PyGenerator& g) { return g.generator->algorithm(); })
      .def("__repr__", [](const PyGenerator& g) {
        return "<scaffolding.Generator device='" + g.generator->device.str() + "' algorithm='" +
               g.generator->algorithm() + "'>";
      });
  generator.attr("__module__") = "scaffolding";
  m.def(
      "_default_generator",
      [](nb::handle device) { return PyGenerator{default_generator(device_of("default_generator", device))}; },
      nb::arg("device") = nb::none());
  m.def("_manual_seed", &manual_seed, nb::arg("seed"));
}

}  // namespace sf::py
