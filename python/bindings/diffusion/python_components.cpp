// Components that Python objects own, as C++'s pipelines call them.
#include "python/bindings/diffusion/python_components.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/bind_generator.h"
#include "python/bindings/core/named_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "python/bindings/diffusion/bind_schedulers.h"
#include "python/bindings/io/bind_object.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::py {

using namespace diffusion;
using diffusion::Ref;

namespace {

// A tensor, the first of a tuple, or the first of these attributes that there is.
Tensor tensor_in(nb::handle result, std::initializer_list<const char*> attributes, const char* who) {
  if (is_tensor(result.ptr())) return tensor_of(result.ptr());
  for (auto* name : attributes)
    if (nb::hasattr(result, name) && is_tensor(nb::object(result.attr(name)).ptr()))
      return tensor_of(nb::object(result.attr(name)).ptr());
  if (PyTuple_Check(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) > 0)
    return tensor_in(PyTuple_GET_ITEM(result.ptr(), 0), attributes, who);
  wrong_argument(who, "the output", "a tensor", result.ptr());
}

// A component that only Python knows, or whose calls go through Python: subclasses, hooks, or any object with
// diffusers' methods and a config.
template <class Base> class PythonPart : public Base {
 public:
  explicit PythonPart(nb::handle object) : object_(object) {}
  io::Object config() override {
    nb::gil_scoped_acquire gil;
    nb::dict plain;  // what a config file can hold; the rest is of no interest to a pipeline
    nb::object config = nb::getattr(get(), "config", nb::none());
    auto simple = [](nb::handle v) {
      return v.is_none() || PyBool_Check(v.ptr()) || PyLong_Check(v.ptr()) || PyFloat_Check(v.ptr()) ||
             PyUnicode_Check(v.ptr()) || PyList_Check(v.ptr()) || PyTuple_Check(v.ptr());
    };
    if (!PyDict_Check(config.ptr())) config = nb::getattr(config, "__dict__", nb::dict());
    for (auto [key, value] : nb::cast<nb::dict>(config))
      if (PyUnicode_Check(key.ptr()) && simple(value)) plain[key] = value;
    return from_python(plain);
  }
  DType dtype() override {
    nb::gil_scoped_acquire gil;
    DType t = kFloat32;
    if (nb::object o = nb::getattr(get(), "dtype", nb::none()); !o.is_none()) to_dtype(o.ptr(), t);
    return t;
  }
  Device device() override {
    nb::gil_scoped_acquire gil;
    Device d;
    if (nb::object o = nb::getattr(get(), "device", nb::none()); !o.is_none()) to_device(o.ptr(), d);
    return d;
  }

 protected:
  nb::handle get() const { return object_.get(); }

 private:
  Held object_;
};

// A memory plan's networks, which Python put where they are.
class PythonPlacement final : public Placement {
 public:
  explicit PythonPlacement(nb::handle make_room) : make_room_(make_room) {}
  bool make_room() override {
    nb::gil_scoped_acquire gil;
    return nb::cast<bool>(make_room_.get()());
  }

 private:
  Held make_room_;
};

// A network whose forward is called by keywords.
template <class Base> class PythonForward : public PythonPart<Base> {
 public:
  using PythonPart<Base>::PythonPart;

 protected:
  nb::object called(const DenoiserCall& call) {
    nb::list positional;
    nb::dict keywords;
    for (auto& a : call) {
      if (!a.tensor) continue;
      const size_t dot = a.name.find('.');
      const std::optional<ListEntry> entry = list_entry(a.name);
      if (a.role == ArgumentRole::Setting) keywords[a.name.c_str()] = setting(a.tensor);
      else if (a.name.empty()) positional.append(a.tensor);
      else if (entry) list_in(keywords, entry->list).append(a.tensor);
      else if (dot == a.name.npos) keywords[a.name.c_str()] = a.tensor;
      else dict_in(keywords, a.name.substr(0, dot))[a.name.substr(dot + 1).c_str()] = a.tensor;
    }
    return this->get()(*positional, **keywords);
  }
  Tensors all_of(const DenoiserCall& call) {
    nb::gil_scoped_acquire gil;
    Tensors out;
    add_tensors(called(call), out);
    return out;
  }

 private:
  // The tensors of what a network returned, in their order: of tuples, lists and outputs by name.
  static void add_tensors(nb::handle o, Tensors& out) {
    if (is_tensor(o.ptr())) return out.push_back(tensor_of(o.ptr()));
    nb::object parts = nb::hasattr(o, "to_tuple") ? o.attr("to_tuple")() : nb::borrow(o);
    if (!PyTuple_Check(parts.ptr()) && !PyList_Check(parts.ptr()))
      wrong_argument("pipeline", "the network's output", "tensors", parts.ptr());
    for (nb::handle part : parts) add_tensors(part, out);
  }
  static nb::object setting(const Tensor& t) {
    const std::vector<double> values = t.to_vector();
    if (t.ndim() == 0) return nb::bool_(values.at(0) != 0);
    nb::list out;
    for (double v : values) out.append(int64_t(v));
    return out;
  }
  static nb::list list_in(nb::dict& all, const std::string& name) {
    if (!all.contains(name.c_str())) all[name.c_str()] = nb::list();
    return nb::cast<nb::list>(all[name.c_str()]);
  }
  static nb::dict dict_in(nb::dict& all, const std::string& name) {
    if (!all.contains(name.c_str())) all[name.c_str()] = nb::dict();
    return nb::cast<nb::dict>(all[name.c_str()]);
  }
};

class PythonDenoiser final : public PythonForward<Denoiser> {
 public:
  using PythonForward::PythonForward;
  Tensor predict(const DenoiserCall& call) override {
    nb::gil_scoped_acquire gil;
    return tensor_in(called(call), {"sample"}, "denoiser");
  }
  Tensors outputs(const DenoiserCall& call) override { return all_of(call); }
};

class PythonNetwork final : public PythonForward<Network> {
 public:
  using PythonForward::PythonForward;
  Tensors call(const DenoiserCall& call) override { return all_of(call); }
};

class PythonAutoencoder final : public PythonPart<Autoencoder> {
 public:
  using PythonPart::PythonPart;
  Tensor encode(const Tensor& images, const Generator& generator) override {
    nb::gil_scoped_acquire gil;
    const nb::object out = encoded(images), g = generator ? wrap_generator(generator) : nb::none();
    if (nb::hasattr(out, "latent_dist")) return nb::cast<Tensor>(out.attr("latent_dist").attr("sample")(g));
    return tensor_in(out, {"latents"}, "vae.encode");
  }
  Tensor encode_mode(const Tensor& images) override {
    nb::gil_scoped_acquire gil;
    const nb::object out = encoded(images);
    if (nb::hasattr(out, "latent_dist")) return nb::cast<Tensor>(out.attr("latent_dist").attr("mode")());
    return tensor_in(out, {"latents"}, "vae.encode");
  }
  int64_t scale_factor() override { return number("spatial_compression_ratio").value_or(Autoencoder::scale_factor()); }
  int64_t frames_per_latent() override {
    return number("temporal_compression_ratio").value_or(Autoencoder::frames_per_latent());
  }
  LatentRange latent_range() override {
    {
      nb::gil_scoped_acquire gil;
      const nb::object mean = nb::getattr(get(), "latents_mean", nb::none()),
                       std = nb::getattr(get(), "latents_std", nb::none());
      if (is_tensor(mean.ptr()) && is_tensor(std.ptr())) return {tensor_of(mean.ptr()), tensor_of(std.ptr())};
    }
    return Autoencoder::latent_range();
  }
  void tell_timestep(const Tensor& timestep) override { timestep_ = timestep; }
  Tensor decode(const Tensor& latents) override {
    nb::gil_scoped_acquire gil;
    const Tensor timestep = std::exchange(timestep_, {});
    const nb::object sample = timestep ? get().attr("decode")(latents, timestep) : get().attr("decode")(latents);
    return tensor_in(sample, {"sample"}, "vae.decode");
  }
  DType dtype() override { return widened_.value_or(PythonPart::dtype()); }
  std::shared_ptr<void> widened(DType dtype) override {
    nb::gil_scoped_acquire gil;
    nb::object streaming = nb::module_::import_("scaffolding.nn.streaming");
    auto* open = new nb::object(streaming.attr("widened")(get(), steal(to_object(Value(dtype)))));
    widened_ = dtype;
    return {open, [this](nb::object* o) {
              nb::gil_scoped_acquire inside;
              widened_.reset();
              std::unique_ptr<nb::object> object(o);
              try {
                object->attr("close")();
              } catch (nb::python_error& e) {
                e.discard_as_unraisable("widened");
              }
            }};
  }
  Savings savings() override {
    nb::gil_scoped_acquire gil;
    auto on = [&](const char* name) { return nb::cast<bool>(nb::bool_(nb::getattr(get(), name, nb::bool_(false)))); };
    return {on("use_slicing"), on("use_tiling"), 0};
  }
  void save(Savings s) override {
    nb::gil_scoped_acquire gil;
    if (nb::hasattr(get(), "use_slicing")) get().attr("use_slicing") = s.slicing;
    if (nb::hasattr(get(), "use_tiling")) get().attr("use_tiling") = s.tiling;
  }

 private:
  std::optional<int64_t> number(const char* attribute) {
    nb::gil_scoped_acquire gil;
    const nb::object n = nb::getattr(get(), attribute, nb::none());
    return PyLong_Check(n.ptr()) ? std::optional(nb::cast<int64_t>(n)) : std::nullopt;
  }
  nb::object encoded(const Tensor& images) {
    nb::object out = get().attr("encode")(images);
    const bool several = PyTuple_Check(out.ptr()) && PyTuple_GET_SIZE(out.ptr()) > 0;
    return several ? nb::borrow(PyTuple_GET_ITEM(out.ptr(), 0)) : out;
  }
  std::optional<DType> widened_;
  Tensor timestep_;
};

class PythonTextEncoder final : public PythonPart<TextEncoder> {
 public:
  using PythonPart::PythonPart;
  Output encode(const Tensor& ids, const Tensor& mask) override {
    nb::gil_scoped_acquire gil;
    nb::dict keywords;
    keywords["output_hidden_states"] = true;
    if (mask) keywords["attention_mask"] = mask;
    nb::object out = get()(ids, **keywords);
    Output result;
    result.last_hidden_state = tensor_in(out, {"last_hidden_state"}, "text_encoder");
    for (auto [name, tensor] :
         {std::pair{"text_embeds", &result.text_embeds}, {"pooler_output", &result.pooler_output}})
      if (nb::object t = nb::getattr(out, name, nb::none()); is_tensor(t.ptr())) *tensor = tensor_of(t.ptr());
    if (nb::object h = nb::getattr(out, "hidden_states", nb::none()); !h.is_none())
      result.hidden_states = nb::cast<Tensors>(h);
    return result;
  }
  Tensor final_layer_norm(const Tensor& x) override {
    nb::gil_scoped_acquire gil;
    return tensor_in(get().attr("text_model").attr("final_layer_norm")(x), {}, "text_encoder");
  }
};

// The names of a Python function's parameters, as C++ lists them.
std::string parameters_of(nb::handle function) {
  std::string out;
  nb::object parameters = nb::module_::import_("inspect").attr("signature")(function).attr("parameters");
  for (nb::handle name : parameters) out += (out.empty() ? "" : ", ") + nb::cast<std::string>(name);
  return out;
}

// A scheduler whose methods Python has: a class of its own, or a subclass of a C++ one. It keeps the run's place
// itself.
class PythonScheduler final : public Scheduler {
 public:
  PythonScheduler(nb::handle object, Scheduler* native)
      : object_(object),
        native_(native),
        name_(type_name(object.ptr())),
        step_parameters_(parameters_of(object.attr("step"))),
        timestep_parameters_(parameters_of(object.attr("set_timesteps"))) {
    constexpr int64_t kUsual = 1000;
    num_train_timesteps_ = native ? native->num_train_timesteps() : kUsual;
    nb::object config = nb::getattr(object, "config", nb::none());
    nb::object n = nb::getattr(config, "num_train_timesteps", nb::none());
    if (!native && PyLong_Check(n.ptr())) num_train_timesteps_ = nb::cast<int64_t>(n);
  }
  const char* name() const override { return name_.c_str(); }
  Fields fields() override { return native_ ? native_->fields() : Fields(); }
  std::string_view timestep_parameters() const override { return timestep_parameters_; }
  std::string_view step_parameters() const override { return step_parameters_; }
  int64_t order() const override {
    nb::gil_scoped_acquire gil;
    return nb::cast<int64_t>(nb::getattr(get(), "order", nb::int_(1)));
  }
  double init_noise_sigma() const override {
    nb::gil_scoped_acquire gil;
    return nb::cast<double>(nb::float_(nb::getattr(get(), "init_noise_sigma", nb::float_(1.0))));
  }
  Tensor scale_model_input(const Tensor& sample, double timestep) override {
    nb::gil_scoped_acquire gil;
    begin();
    if (!nb::hasattr(get(), "scale_model_input")) return sample;
    return nb::cast<Tensor>(get().attr("scale_model_input")(sample, at(timestep)));
  }
  void keep_samples(const Tensor& places) override {
    SF_CHECK_AS(NotSupported, native_, name(), ": samples cannot leave a run of a sampler that only Python knows");
    native_->keep_samples(places);
  }
  Tensor add_noise(const Tensor& samples, const Tensor& noise, const Tensor& timesteps) override {
    nb::gil_scoped_acquire gil;
    begin();
    return nb::cast<Tensor>(
        get().attr("add_noise")(samples, noise, timesteps.ndim() ? timesteps : timesteps.unsqueeze(0)));
  }

 protected:
  void make_schedule(const TimestepOptions& o, int64_t) override {
    nb::gil_scoped_acquire gil;
    nb::dict keywords;
    if (takes(timestep_parameters_, "device")) keywords["device"] = steal(device_object(o.device));
    if (o.timesteps) keywords["timesteps"] = *o.timesteps;
    else if (o.sigmas) keywords["sigmas"] = *o.sigmas;
    if (o.timesteps || o.sigmas) get().attr("set_timesteps")(**keywords);
    else get().attr("set_timesteps")(o.num_inference_steps.value(), **keywords);  // as diffusers: of whatever name
    Tensor timesteps = nb::cast<Tensor>(get().attr("timesteps"));
    set_schedule(timesteps.to_vector(), timesteps.dtype(), o.device);
    begun_ = false;
  }
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample, const StepOptions& o) override {
    nb::gil_scoped_acquire gil;
    begin();
    nb::dict keywords;
    const bool draws = takes(step_parameters_, "generator");
    if (o.eta != 0 && takes(step_parameters_, "eta")) keywords["eta"] = o.eta;
    if (o.use_clipped_model_output && takes(step_parameters_, "use_clipped_model_output"))
      keywords["use_clipped_model_output"] = true;
    if (draws && o.generator.size() == 1) keywords["generator"] = wrap_generator(o.generator[0]);
    if (draws && o.generator.size() > 1) {
      nb::list all;
      for (auto& g : o.generator) all.append(wrap_generator(g));
      keywords["generator"] = all;
    }
    return {tensor_in(get().attr("step")(model_output, at(timestep), sample, **keywords), {"prev_sample"}, name()),
            Tensor()};
  }

 private:
  nb::handle get() const { return object_.get(); }
  static bool takes(const std::string& parameters, const char* name) {
    const auto names = split(parameters);
    return std::find(names.begin(), names.end(), name) != names.end() ||
           std::find(names.begin(), names.end(), "kwargs") != names.end();
  }
  // The timestep as the model gets it: 0-d, of the schedule's dtype.
  Tensor at(double timestep) const { return scalar_tensor(timestep, timesteps().dtype()); }
  void begin() {
    if (!begun_ && begin_index() && nb::hasattr(get(), "set_begin_index"))
      get().attr("set_begin_index")(*begin_index());
    begun_ = true;
  }
  Held object_;
  Scheduler* native_;  // null where no class of C++ is below
  std::string name_, step_parameters_, timestep_parameters_;
  bool begun_ = false;
};

std::shared_ptr<Scheduler> scheduler_of(nb::handle o, const std::string& name) {
  Scheduler* native = native_scheduler(o);
  if (native && !nb::cast<bool>(o.attr("_overridden")())) return {native, [held = Held(o)](Scheduler*) {}};
  if (!nb::hasattr(o, "step") || !nb::hasattr(o, "set_timesteps"))
    wrong_argument("pipeline", name, "a scheduler: an object with set_timesteps, step and timesteps", o.ptr());
  return std::make_shared<PythonScheduler>(o, native);
}

std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(nb::handle o, const std::string& name) {
  const tokenizers::Tokenizer* tokenizer = nullptr;
  if (!nb::hasattr(o, "_core") || !nb::try_cast(nb::object(o.attr("_core")), tokenizer) || !tokenizer)
    wrong_argument("pipeline", name, "a tokenizer of scaffolding.tokenizers", o.ptr());
  return {tokenizer, [held = Held(o)](const tokenizers::Tokenizer*) {}};
}

// The C++ model of a Python object, kept alive by it; null where calls must go through Python.
std::shared_ptr<models::Model> native_model(nb::handle o, std::initializer_list<const char*> methods) {
  if (!is_module(o.ptr())) return nullptr;
  auto* self = reinterpret_cast<PyModule*>(o.ptr());
  auto* model = self->native ? dynamic_cast<models::Model*>(self->module) : nullptr;
  if (!model || (self->extension && self->extension->calls())) return nullptr;
  PyTypeObject* own = python_type_of(*self->module);
  for (auto* method : methods) {
    nb::str name(method);
    if (self->dict && PyDict_GetItemWithError(self->dict, name.ptr())) return nullptr;
    if (type_lookup(Py_TYPE(o.ptr()), name.ptr()) != type_lookup(own, name.ptr())) return nullptr;
  }
  return {model, [held = Held(o)](models::Model*) {}};
}

}  // namespace

Scheduler* native_scheduler(nb::handle o) {
  Scheduler* native = nullptr;
  return nb::hasattr(o, "_core") && nb::try_cast(nb::object(o.attr("_core")), native) ? native : nullptr;
}

std::unique_ptr<DiffusionPipeline> pipeline_of(const std::string& class_name, nb::dict parts) {
  const PipelineEntry& entry = pipeline_entry(class_name);
  auto pipeline = entry.make();
  for (auto [key, value] : parts)
    if (is_module(value.ptr())) pipeline->add_slot(nb::cast<std::string>(key));
  for (auto& slot : pipeline->components()) {
    if (!parts.contains(slot.name.c_str()) || parts[slot.name.c_str()].is_none()) continue;
    nb::object o = parts[slot.name.c_str()];
    auto network = [&]<class Part>(Part* place, std::initializer_list<const char*> methods, auto make) {
      if (auto model = native_model(o, methods)) {
        entry.check_type(slot.name, model->type());
        slot.take(std::move(model));
      } else {
        *place = make();
      }
    };
    if (auto* d = slot.as<Ref<Denoiser>>()) network(d, {}, [&] { return std::make_shared<PythonDenoiser>(o); });
    else if (auto* a = slot.as<Ref<Autoencoder>>())
      network(a, {"encode", "decode"}, [&] { return std::make_shared<PythonAutoencoder>(o); });
    else if (auto* t = slot.as<Ref<TextEncoder>>())
      network(t, {}, [&] { return std::make_shared<PythonTextEncoder>(o); });
    else if (auto* n = slot.as<Ref<Network>>()) network(n, {}, [&] { return std::make_shared<PythonNetwork>(o); });
    else if (auto* k = slot.as<Ref<const tokenizers::Tokenizer>>()) *k = tokenizer_of(o, slot.name);
    else if (auto* s = slot.as<Ref<Scheduler>>()) *s = scheduler_of(o, slot.name);
  }
  nb::dict fields;
  for (auto& field : pipeline->fields())
    if (parts.contains(field.name) && !parts[field.name].is_none()) fields[field.name] = parts[field.name];
  io::read_fields(entry.name.c_str(), pipeline->fields(), from_python(fields));
  if (parts.contains("graphs")) pipeline->graphs = nb::cast<std::shared_ptr<DenoiserGraphs>>(parts["graphs"]);
  if (parts.contains("savings")) {
    nb::tuple s = nb::cast<nb::tuple>(parts["savings"]);
    pipeline->savings = {nb::cast<bool>(s[0]), nb::cast<bool>(s[1]), nb::cast<int64_t>(s[2])};
  }
  if (parts.contains("make_room") && !parts["make_room"].is_none())
    pipeline->placement = std::make_shared<PythonPlacement>(parts["make_room"]);
  return pipeline;
}

}  // namespace sf::py
