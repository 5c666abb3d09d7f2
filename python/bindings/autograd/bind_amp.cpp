// autocast's switch and the arithmetic of loss scaling; scaffolding/amp keeps the books.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "python/bindings/core/bind_arguments.h"
#include "scaffolding/autograd/autocast.h"
#include "scaffolding/autograd/node.h"
#include "scaffolding/optim/ema.h"
#include "scaffolding/optim/grad_scaler.h"

namespace sf::py {

namespace {

Device device_of(const char* who, nb::handle type) {
  Device d;
  if (!to_device(type.ptr(), d)) wrong_argument(who, "device_type", "'cpu' or 'cuda'", type.ptr());
  return d;
}

nb::object table() {
  static constexpr const char* kNames[] = {"own", "lower", "float32", "widest"};
  nb::dict out;
  for (const autocast::Entry& e : autocast::kTable)
    out[nb::str(e.op.data(), e.op.size())] = nb::make_tuple(kNames[int(e.cpu)], kNames[int(e.cuda)]);
  return out;
}

}  // namespace

void bind_amp(nb::module_& m) {
  nb::class_<autocast::State>(m, "_AutocastState");
  m.def(
      "_autocast_enter",
      [](nb::handle device_type, nb::handle dtype, bool enabled, bool cache_enabled) {
        autocast::Options options{.enabled = enabled, .cache_enabled = cache_enabled};
        DType t;
        if (!dtype.is_none()) {
          if (!to_dtype(dtype.ptr(), t)) wrong_argument("autocast", "dtype", "a dtype", dtype.ptr());
          options.dtype = t;
        }
        return autocast::enter(device_of("autocast", device_type), options);
      },
      nb::arg("device_type"), nb::arg("dtype").none(), nb::arg("enabled"), nb::arg("cache_enabled"));
  m.def("_autocast_leave", [](const autocast::State& before) { autocast::leave(before); });
  m.def(
      "is_autocast_enabled",
      [](nb::handle device_type) {
        if (device_type.is_none()) return autocast::state().cuda.enabled;
        return autocast::of(device_of("is_autocast_enabled", device_type).type).enabled;
      },
      nb::arg("device_type") = nb::none(),
      "Whether autocast is in force for device_type; without one, for cuda, as in torch."
      "\n\n>>> with sf.autocast(\"cpu\"): print(sf.is_autocast_enabled(\"cpu\"))\n"
      "True");
  m.def(
      "get_autocast_dtype",
      [](nb::handle device_type) {
        return nb::borrow(dtype_object(autocast::of(device_of("get_autocast_dtype", device_type).type).dtype));
      },
      nb::arg("device_type"),
      "The type that autocast uses, or would use, on device_type."
      "\n\n>>> sf.get_autocast_dtype(\"cpu\")\n"
      "scaffolding.bfloat16");
  m.def(
      "set_autocast_dtype",
      [](nb::handle device_type, nb::handle dtype) {
        DType t;
        if (!to_dtype(dtype.ptr(), t)) wrong_argument("set_autocast_dtype", "dtype", "a dtype", dtype.ptr());
        autocast::State s = autocast::state();
        DeviceType d = device_of("set_autocast_dtype", device_type).type;
        (d == DeviceType::CUDA ? s.cuda : s.cpu).dtype = t;
        autocast::set(s);
      },
      nb::arg("device_type"), nb::arg("dtype"),
      "autocast uses dtype on device_type when none is given."
      "\n\n>>> sf.set_autocast_dtype(\"cpu\", sf.bfloat16)\n"
      ">>> sf.get_autocast_dtype(\"cpu\")\n"
      "scaffolding.bfloat16");
  m.def(
      "is_autocast_cache_enabled", [] { return autocast::state().cache; },
      "Whether casts of parameters are kept within a scope."
      "\n\n>>> sf.is_autocast_cache_enabled()\n"
      "True");
  m.def("_autocast_table", &table);
  m.def(
      "_unscale",
      [](const Tensors& grads, double factor, const Tensor& found_inf) {
        nb::gil_scoped_release release;
        optim::unscale_(grads, factor, found_inf);
      },
      nb::arg("grads"), nb::arg("factor"), nb::arg("found_inf"));
  m.def("_unscale_there", &optim::unscale_there_, nb::arg("grads"), nb::arg("scale"), nb::arg("found_inf"));
  m.def("_update_scale_there", [](const Tensor& scale, const Tensor& tracker, const Tensor& found_inf, double growth,
                                  double backoff, int64_t interval) {
    optim::update_scale_there(scale, tracker, found_inf,
                              {.growth_factor = growth, .backoff_factor = backoff, .growth_interval = interval});
  });
  m.def("_next_scale", [](double scale, int64_t tracker, bool found_inf, double growth, double backoff,
                          int64_t interval) {
    auto next = optim::next_scale({scale, tracker}, found_inf,
                                  {.growth_factor = growth, .backoff_factor = backoff, .growth_interval = interval});
    return nb::make_tuple(next.scale, next.growth_tracker);
  });
  m.def(
      "_ema_lerp",
      [](const Tensors& averages, const Tensors& values, double weight) {
        nb::gil_scoped_release release;
        optim::lerp_(averages, values, weight);
      },
      nb::arg("averages"), nb::arg("values"), nb::arg("weight"));
  m.def("_ema_lerp_there", [](const Tensors& averages, const Tensors& values, const Tensor& weight) {
    optim::lerp_(averages, values, weight);
  });
  m.def("_ema_decay", [](double decay, double min_decay, int64_t update_after_step, bool use_ema_warmup,
                         double inv_gamma, double power, int64_t step) {
    return optim::ema_decay({decay, min_decay, update_after_step, use_ema_warmup, inv_gamma, power}, step);
  });
}

}  // namespace sf::py
