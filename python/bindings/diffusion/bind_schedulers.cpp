// diffusion's schedulers and helpers. A class's constructor, set_timesteps and step take the arguments that the C++
// class lists: nothing is bound by hand for a new scheduler but its line below.
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

// Keywords are fields; _config is a dict that may have others, which are kept.
template <class S> void construct(S* self, const nb::args& args, const nb::kwargs& kwargs) {
  nb::dict dict;
  bool whole = kwargs.contains("_config");
  if (whole) {
    dict = nb::cast<nb::dict>(kwargs["_config"]);
  } else {
    auto names = field_names<S>();
    if (args.size() > names.size())
      fail<TypeError>(S::kName, ": takes at most ", names.size(), " arguments, got ", args.size());
    for (size_t i = 0; i < args.size(); ++i) dict[names[i].c_str()] = args[i];
    for (auto [key, value] : kwargs) {
      if (dict.contains(key)) fail<TypeError>(S::kName, ": got several values for '", nb::cast<std::string>(key), "'");
      dict[key] = value;
    }
  }
  std::shared_ptr<Scheduler> solver_p;  // the one field that is an object
  if (std::is_same_v<S, UniPCMultistepScheduler> && dict.contains("solver_p") &&
      nb::isinstance<Scheduler>(dict["solver_p"])) {
    solver_p = nb::cast<std::shared_ptr<Scheduler>>(dict["solver_p"]);
    dict["solver_p"] = nb::none();
  }
  nb::dict plain;  // arrays as lists
  for (auto [key, value] : dict) plain[key] = nb::hasattr(value, "tolist") ? value.attr("tolist")() : nb::borrow(value);
  typename S::Config config;
  ConfigRest rest = read_fields(S::kName, config.fields(), from_python(plain));
  if (!whole && !rest.unknown.items().empty())
    fail<TypeError>(S::kName, ": unexpected keyword argument '", rest.unknown.items()[0].text(), "'");
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

nb::object step(Scheduler& s, const nb::args& args, const nb::kwargs& kwargs) {
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
  o.per_token_timesteps = a.tensor("per_token_timesteps");
  o.old_pred_original_sample = a.tensor("old_pred_original_sample");
  if (a.get("timestep_back").is_valid()) o.timestep_back = a.number("timestep_back", 0);
  nb::handle timestep = a.get("timestep");
  if (!timestep.is_valid()) fail<TypeError>(function, ": needs a timestep");
  StepOutput out = s.step(a.tensor("model_output"), a.number_of("timestep", timestep), a.tensor("sample"), o);
  if (a.boolean("return_dict", s.returns_dict())) return nb::cast(std::move(out));
  if (out.pred_original_sample) return nb::make_tuple(out.prev_sample, out.pred_original_sample);
  return nb::make_tuple(out.prev_sample);
}

Tensor scale_model_input(Scheduler& s, const Tensor& sample, nb::handle timestep) {
  Scalar t;
  if (!timestep.is_none() && !to_scalar(timestep.ptr(), t))
    wrong_argument(s.name(), "timestep", "a number", timestep.ptr());
  return s.scale_model_input(sample, t.to_double());
}

template <class S> nb::class_<S, Scheduler> bind_class(nb::module_& m) {
  std::string doc = "diffusers' " + std::string(S::kName) + ". Its arguments are the config's fields:";
  for (auto& f : field_names<S>()) doc += " " + f;
  return nb::class_<S, Scheduler>(m, S::kName, doc.c_str())
      .def("__init__", &construct<S>)
      .def_static("_field_names", &field_names<S>)
      .def_prop_ro_static("config_name", [](nb::handle) { return "scheduler_config.json"; });
}

void bind_output(nb::module_& m) {
  auto entries = [](const StepOutput& o) {
    return o.pred_original_sample ? nb::make_tuple(o.prev_sample, o.pred_original_sample)
                                  : nb::make_tuple(o.prev_sample);
  };
  nb::class_<StepOutput>(m, "SchedulerOutput", "What a step gives; also a tuple of its entries.")
      .def_ro("prev_sample", &StepOutput::prev_sample, "The sample, one step less noisy.")
      .def_ro("pred_original_sample", &StepOutput::pred_original_sample,
              "The sample without noise, as predicted from here; None where the class gives none.")
      .def_ro("denoised", &StepOutput::pred_original_sample, "LCMScheduler's name of pred_original_sample.")
      .def("to_tuple", entries)
      .def("__getitem__",
           [entries](const StepOutput& o, nb::handle key) -> nb::object {
             if (PyUnicode_Check(key.ptr())) return nb::getattr(nb::find(o), key);
             return steal(PyObject_GetItem(entries(o).ptr(), key.ptr()));
           })
      .def("__iter__", [entries](const StepOutput& o) { return nb::iter(entries(o)); })
      .def("__len__", [entries](const StepOutput& o) { return entries(o).size(); });
}

}  // namespace

void bind_schedulers(nb::module_& core) {
  nb::module_ m = core.def_submodule("_diffusion");
  m.attr("__name__") = "scaffolding.diffusion.schedulers";
  bind_output(m);
  nb::class_<Scheduler>(m, "SchedulerMixin", "What every scheduler has: see scaffolding.diffusion.schedulers.")
      .def("set_timesteps", &set_timesteps,
           "set_timesteps(num_inference_steps, device=None, ...): makes the schedule of a run, with the arguments of "
           "diffusers' class.\n"
           "ValueError for no steps, or more than num_train_timesteps.")
      .def("step", &step,
           "step(model_output, timestep, sample, ..., return_dict=True): the sample with one step's noise less, as a "
           "SchedulerOutput or a\n"
           "tuple, with the arguments of diffusers' class. model_output, sample: [B, C, ...]. RuntimeError before "
           "set_timesteps.")
      .def("scale_model_input", &scale_model_input, nb::arg("sample"), nb::arg("timestep") = nb::none(),
           "The sample as the model is trained on it.")
      .def("add_noise", &Scheduler::add_noise, nb::arg("original_samples"), nb::arg("noise"), nb::arg("timesteps"),
           "original_samples[B, ...] with the noise of timesteps[B].")
      .def("get_velocity", &Scheduler::get_velocity, nb::arg("sample"), nb::arg("noise"), nb::arg("timesteps"),
           "What a model with prediction_type v_prediction is trained on, for timesteps[B].")
      .def("set_begin_index", &Scheduler::set_begin_index, nb::arg("begin_index") = 0,
           "Where in the schedule a run begins.")
      .def_prop_ro("begin_index", &Scheduler::begin_index)
      .def_prop_ro("step_index", &Scheduler::step_index)
      .def_prop_ro("timesteps", &Scheduler::timesteps)
      .def_prop_ro("sigmas", &Scheduler::sigmas)
      .def_prop_ro("num_inference_steps", &Scheduler::num_inference_steps)
      .def_prop_ro("order", &Scheduler::order)
      .def_prop_ro("init_noise_sigma", &Scheduler::init_noise_sigma)
      .def_prop_ro("alphas_cumprod",
                   [](const Scheduler& s) {
                     auto& a = s.alphas_cumprod();
                     return a.empty() ? Tensor() : tensor(a, {int64_t(a.size())}, kFloat32);
                   })
      .def("__len__", &Scheduler::num_train_timesteps)
      .def("_config", [](Scheduler& s) { return to_python(s.config()); })
      .def("_unknown", [](const Scheduler& s) { return to_python(s.config_rest().unknown); })
      .def("_step_parameters", [](const Scheduler& s) { return split(s.step_parameters()); })
      .def("_timestep_parameters", [](const Scheduler& s) { return split(s.timestep_parameters()); })
      .def(
          "to_json_string", [](Scheduler& s) { return io::format_config(s.saved_config()); },
          "The config as save_config writes it.")
      .def(
          "save_config",
          [](Scheduler& s, nb::handle folder) { save_scheduler(s, nb::cast<std::string>(nb::str(folder))); },
          nb::arg("save_directory"),
          "Writes scheduler_config.json into the folder, which is made where it is not there.");
  bind_class<DDIMScheduler>(m);
  bind_class<DDPMScheduler>(m);
  bind_class<EulerDiscreteScheduler>(m);
  bind_class<EulerAncestralDiscreteScheduler>(m);
  bind_class<DPMSolverMultistepScheduler>(m);
  bind_class<PNDMScheduler>(m);
  bind_class<HeunDiscreteScheduler>(m);
  bind_class<UniPCMultistepScheduler>(m);
  bind_class<LCMScheduler>(m);
  bind_class<CogVideoXDDIMScheduler>(m);
  bind_class<CogVideoXDPMScheduler>(m);
  bind_class<FlowMatchEulerDiscreteScheduler>(m)
      .def(
          "scale_noise",
          [](FlowMatchEulerDiscreteScheduler& s, const Tensor& sample, const Tensor& timestep, const Tensor& noise) {
            return s.add_noise(sample, noise, timestep);
          },
          nb::arg("sample"), nb::arg("timestep"), nb::arg("noise"),
          "sigma * noise + (1 - sigma) * sample, at a timestep of the schedule for each sample.")
      .def("set_shift", &FlowMatchEulerDiscreteScheduler::set_shift, nb::arg("shift"), "The shift of runs to come.")
      .def_prop_ro("shift", &FlowMatchEulerDiscreteScheduler::shift);
  m.def("scheduler_names", &scheduler_names);
  m.def("read_config_file", [](const std::string& path) { return to_python(io::read_config_file(path)); });
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
