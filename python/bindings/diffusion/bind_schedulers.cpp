// diffusion's schedulers and helpers. A class's constructor, set_timesteps and step take the arguments that the C++
// class lists: nothing is bound by hand for a new scheduler but its line below. The classes that users see, with
// signatures and configs, are made over these by scaffolding/diffusion/schedulers/scheduler.py.
#include "python/bindings/diffusion/bind_schedulers.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_arguments.h"
#include "python/bindings/core/named_arguments.h"
#include "python/bindings/io/bind_object.h"
#include "scaffolding/diffusion/diffusion.h"
#include "scaffolding/diffusion/slerp.h"
#include "scaffolding/ops/factory/factory.h"

namespace sf::py {

namespace {

using namespace diffusion;

template <class S> std::vector<std::string> field_names() {
  typename S::Config config;
  std::vector<std::string> names;
  for (auto& f : config.fields()) names.push_back(f.name);
  return names;
}

template <class S> nb::dict defaults() {
  typename S::Config config;
  return nb::cast<nb::dict>(to_python(write_fields(config.fields())));
}

// given: fields of the config.
template <class S> void construct(S* self, nb::dict given) {
  std::shared_ptr<Scheduler> solver_p;  // the one field that is an object
  nb::dict plain;                       // arrays as lists
  for (auto [key, value] : given) {
    const bool solver = std::is_same_v<S, UniPCMultistepScheduler> && nb::isinstance<Scheduler>(value);
    if (solver && nb::cast<std::string>(key) == "solver_p") solver_p = nb::cast<std::shared_ptr<Scheduler>>(value);
    else plain[key] = nb::hasattr(value, "tolist") ? value.attr("tolist")() : nb::borrow(value);
  }
  typename S::Config config;
  ConfigRest rest = read_fields(S::kName, config.fields(), from_python(plain));
  new (self) S(std::move(config));
  if constexpr (std::is_same_v<S, UniPCMultistepScheduler>) self->set_solver_p(std::move(solver_p));
  self->set_config_rest(std::move(rest));
}

void set_timesteps(Scheduler& s, const nb::args& args, const nb::kwargs& kwargs) {
  NamedArguments a(std::string(s.name()) + ".set_timesteps", split(s.timestep_parameters()), args, kwargs);
  TimestepOptions o;
  o.num_inference_steps = a.integer("num_inference_steps");
  if (nb::handle d = a.get("device"); d.is_valid() && !to_device(d.ptr(), o.device))
    wrong_argument(s.name(), "device", "a device", d.ptr());
  o.timesteps = a.numbers("timesteps");
  o.sigmas = a.numbers("sigmas");
  if (a.get("mu").is_valid()) o.mu = a.number("mu", 0);
  o.original_inference_steps = a.integer("original_inference_steps");
  o.strength = a.number("strength", 1);
  s.set_timesteps(o);
}

// (prev_sample, pred_original_sample or None)
nb::tuple step(Scheduler& s, const nb::args& args, const nb::kwargs& kwargs) {
  std::string function = std::string(s.name()) + ".step";
  NamedArguments a(function, split(s.step_parameters()), args, kwargs);
  StepOptions o;
  o.eta = a.number("eta", o.eta);
  o.use_clipped_model_output = a.boolean("use_clipped_model_output", false);
  o.generator = a.generators("generator");
  o.variance_noise = a.tensor("variance_noise");
  o.s_churn = a.number("s_churn", o.s_churn);
  o.s_tmin = a.number("s_tmin", o.s_tmin);
  o.s_tmax = a.number("s_tmax", o.s_tmax);
  o.s_noise = a.number("s_noise", o.s_noise);
  o.order = a.integer("order").value_or(o.order);
  o.pred_original_sample = a.tensor("pred_original_sample");
  o.per_token_timesteps = a.tensor("per_token_timesteps");
  o.old_pred_original_sample = a.tensor("old_pred_original_sample");
  if (a.get("timestep_back").is_valid()) o.timestep_back = a.number("timestep_back", 0);
  nb::handle timestep = a.get("timestep");
  if (!timestep.is_valid()) fail<TypeError>(function, ": needs a timestep");
  StepOutput out = s.step(a.tensor("model_output"), a.number_of("timestep", timestep), a.tensor("sample"), o);
  return nb::make_tuple(out.prev_sample, out.pred_original_sample);
}

Tensor scale_model_input(Scheduler& s, const Tensor& sample, nb::handle timestep) {
  Scalar t;
  if (!timestep.is_none() && !to_scalar(timestep.ptr(), t))
    wrong_argument(s.name(), "timestep", "a number", timestep.ptr());
  return s.scale_model_input(sample, t.to_double());
}

template <class S> nb::class_<S, Scheduler> bind_class(nb::module_& m) {
  return nb::class_<S, Scheduler>(m, S::kName)
      .def("__init__", &construct<S>, nb::arg("given") = nb::dict())
      .def_static("field_names", &field_names<S>)
      .def_static("defaults", &defaults<S>)
      .def_static("step_parameters", [] { return split(S().step_parameters()); })
      .def_static("timestep_parameters", [] { return split(S().timestep_parameters()); });
}

Tensor table(const auto& values) {
  return values.empty() ? Tensor() : tensor(values, {int64_t(values.size())}, kFloat32);
}

RunState state_named(Scheduler& s, const std::string& name) {
  for (auto& state : s.run_state())
    if (name == state.name) return state;
  fail(s.name(), ": has no '", name, "'");
}

nb::object state(Scheduler& s, const std::string& name) {
  return std::visit([](auto* place) { return nb::cast(*place); }, state_named(s, name).place);
}

void set_state(Scheduler& s, const std::string& name, nb::handle value) {
  const RunState state = state_named(s, name);
  auto wrong = [&](const char* wanted) { wrong_argument(s.name(), name, wanted, value.ptr()); };
  auto read = [&](nb::handle o) {
    if (!o.is_none() && !is_tensor(o.ptr())) wrong("a tensor or None");
    return o.is_none() ? Tensor() : tensor_of(o.ptr());
  };
  if (auto* number = std::get_if<int64_t*>(&state.place)) {
    int64_t n = 0;
    if (!to_int(value.ptr(), n)) wrong("an integer");
    SF_CHECK(n >= 0 && (!state.entries || n <= int64_t(state.entries)), s.name(), ": ", name, " must be from 0",
             state.entries ? " to " + std::to_string(state.entries) : std::string(), ", got ", n);
    **number = n;
  } else if (auto* one = std::get_if<Tensor*>(&state.place)) {
    **one = read(value);
  } else {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) wrong("a list of tensors");
    Tensors all;
    for (nb::handle o : value) all.push_back(read(o));
    SF_CHECK(!state.entries || all.size() == state.entries, s.name(), ": ", name, " must have ", state.entries,
             " entries, got ", all.size());
    *std::get<Tensors*>(state.place) = std::move(all);
  }
}

}  // namespace

void bind_schedulers(nb::module_& core) {
  nb::module_ m = core.def_submodule("_diffusion");
  m.attr("__name__") = "scaffolding.diffusion.schedulers";
  nb::class_<Scheduler>(m, "Scheduler", "C++'s part of scaffolding.diffusion.schedulers.")
      .def("set_timesteps", &set_timesteps)
      .def("step", &step)
      .def("scale_model_input", &scale_model_input, nb::arg("sample"), nb::arg("timestep").none())
      .def("add_noise", &Scheduler::add_noise, nb::arg("original_samples"), nb::arg("noise"), nb::arg("timesteps"))
      .def("get_velocity", &Scheduler::get_velocity, nb::arg("sample"), nb::arg("noise"), nb::arg("timesteps"))
      .def("set_begin_index", &Scheduler::set_begin_index, nb::arg("begin_index"))
      .def("reset_begin_index", &Scheduler::reset_begin_index, nb::arg("begin_index").none())
      .def("set_step_index", &Scheduler::set_step_index, nb::arg("step_index").none())
      .def("set_num_inference_steps", &Scheduler::set_num_inference_steps, nb::arg("num_inference_steps").none())
      .def("take_timesteps", &Scheduler::take_timesteps, nb::arg("timesteps"))
      .def("take_sigmas", &Scheduler::take_sigmas, nb::arg("sigmas"))
      .def_prop_ro("begin_index", &Scheduler::begin_index)
      .def_prop_ro("step_index", &Scheduler::step_index)
      .def_prop_ro("timesteps", &Scheduler::timesteps)
      .def_prop_ro("sigmas", &Scheduler::sigmas)
      .def_prop_ro("num_inference_steps", &Scheduler::num_inference_steps)
      .def_prop_ro("num_train_timesteps", &Scheduler::num_train_timesteps)
      .def_prop_ro("order", &Scheduler::order)
      .def_prop_ro("init_noise_sigma", &Scheduler::init_noise_sigma)
      .def_prop_ro("betas", [](const Scheduler& s) { return table(s.betas()); })
      .def_prop_ro("alphas", [](const Scheduler& s) { return table(s.alphas()); })
      .def_prop_ro("alphas_cumprod", [](const Scheduler& s) { return table(s.alphas_cumprod()); })
      .def_prop_ro(
          "final_alpha_cumprod",
          [](const Scheduler& s) { return s.final_alpha() ? scalar_tensor(*s.final_alpha(), kFloat32) : Tensor(); })
      .def("state_names",
           [](Scheduler& s) {
             std::vector<std::string> names;
             for (auto& state : s.run_state()) names.push_back(state.name);
             return names;
           })
      .def("state", &state)
      .def("set_state", &set_state)
      .def("config", [](Scheduler& s) { return to_python(s.config()); });
  bind_class<DDIMScheduler>(m);
  bind_class<DDPMScheduler>(m);
  bind_class<EulerDiscreteScheduler>(m);
  bind_class<EulerAncestralDiscreteScheduler>(m);
  bind_class<DPMSolverMultistepScheduler>(m);
  bind_class<PNDMScheduler>(m)
      .def("choose_method", &PNDMScheduler::choose_method)
      .def_prop_ro("prk_timesteps", &PNDMScheduler::prk_timesteps);
  bind_class<HeunDiscreteScheduler>(m);
  bind_class<UniPCMultistepScheduler>(m);
  bind_class<LCMScheduler>(m);
  bind_class<DPMSolverSinglestepScheduler>(m);
  bind_class<DEISMultistepScheduler>(m);
  bind_class<LMSDiscreteScheduler>(m);
  bind_class<KDPM2DiscreteScheduler>(m);
  bind_class<KDPM2AncestralDiscreteScheduler>(m);
  bind_class<TCDScheduler>(m);
  bind_class<EDMEulerScheduler>(m);
  bind_class<EDMDPMSolverMultistepScheduler>(m);
  bind_class<IPNDMScheduler>(m);
  bind_class<CogVideoXDDIMScheduler>(m);
  bind_class<CogVideoXDPMScheduler>(m);
  bind_class<FlowMatchEulerDiscreteScheduler>(m)
      .def("set_shift", &FlowMatchEulerDiscreteScheduler::set_shift, nb::arg("shift"))
      .def_prop_ro("shift", &FlowMatchEulerDiscreteScheduler::shift);
  m.def("scheduler_names", &scheduler_names);
  m.def("read_config_file", [](const std::string& path) { return to_python(io::read_config_file(path)); });
  m.def("format_config", [](nb::handle config) { return io::format_config(from_python(config)); });
  m.def("write_config_file",
        [](nb::handle config, const std::string& path) { io::write_config_file(from_python(config), path); });
  m.def(
      "get_beta_schedule",
      [](const std::string& schedule, int64_t n, double start, double end) {
        auto betas = get_beta_schedule(schedule, n, start, end);
        return tensor(betas, {int64_t(betas.size())}, kFloat32);
      },
      nb::arg("schedule"), nb::arg("num_timesteps"), nb::arg("beta_start"), nb::arg("beta_end"));
  m.def("randn_tensor", [](const nb::args& args, const nb::kwargs& kwargs) {
    NamedArguments a("randn_tensor", {"shape", "generator", "device", "dtype"}, args, kwargs);
    Shape shape;
    nb::handle s = a.get("shape");
    if (!s.is_valid() || !to_shape(s.ptr(), shape))
      wrong_argument("randn_tensor", "shape", "a shape", s.is_valid() ? s.ptr() : Py_None);
    std::optional<Device> device;
    if (nb::handle d = a.get("device"); d.is_valid() && !to_device(d.ptr(), device.emplace()))
      wrong_argument("randn_tensor", "device", "a device", d.ptr());
    std::optional<DType> dtype;
    if (nb::handle d = a.get("dtype"); d.is_valid() && !to_dtype(d.ptr(), dtype.emplace()))
      wrong_argument("randn_tensor", "dtype", "a dtype", d.ptr());
    return randn_tensor(shape, a.generators("generator"), device, dtype);
  });
  m.def("slerp", &slerp, nb::arg("from"), nb::arg("to"), nb::arg("t"), nb::arg("dim").none());
  m.def("rescale_noise_cfg", &rescale_noise_cfg, nb::arg("noise_pred"), nb::arg("noise_pred_text"),
        nb::arg("guidance_rescale"));
  m.def("classifier_free_guidance", [](nb::handle model, const Tensor& latents, const Tensor& timesteps,
                                       const Tensor& prompt, const Tensor& negative, double scale) {
    return classifier_free_guidance(
        [&](const Tensor& x, const Tensor& t, const Tensor& text) {
          nb::object y = model(x, t, text);
          if (!is_tensor(y.ptr()) && nb::hasattr(y, "sample")) y = y.attr("sample");
          if (PyTuple_Check(y.ptr()) && PyTuple_GET_SIZE(y.ptr()) > 0) y = nb::borrow(PyTuple_GET_ITEM(y.ptr(), 0));
          if (!is_tensor(y.ptr()))
            wrong_argument("classifier_free_guidance", "the model's output", "a tensor", y.ptr());
          return tensor_of(y.ptr());
        },
        latents, timesteps, prompt, negative, scale);
  });
}

}  // namespace sf::py
