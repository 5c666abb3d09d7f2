// Pipelines: the C++ loops around components that Python objects own. Called by python/scaffolding/diffusion/pipelines.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/named_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "python/bindings/diffusion/bind_image_processor.h"
#include "python/bindings/diffusion/bind_schedulers.h"
#include "python/bindings/io/bind_object.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"
#include "scaffolding/tokenizers/pretrained.h"

namespace sf::py {

namespace {

using namespace diffusion;
using diffusion::Ref;

// ---- components

// A tensor, the first of a tuple, or the first of these attributes that there is.
Tensor tensor_in(nb::handle result, std::initializer_list<const char*> attributes, const char* who) {
  if (is_tensor(result.ptr())) return tensor_of(result.ptr());
  for (auto* name : attributes)
    if (nb::hasattr(result, name) && is_tensor(nb::object(result.attr(name)).ptr())) return tensor_of(nb::object(result.attr(name)).ptr());
  if (PyTuple_Check(result.ptr()) && PyTuple_GET_SIZE(result.ptr()) > 0) return tensor_in(PyTuple_GET_ITEM(result.ptr(), 0), attributes, who);
  wrong_argument(who, "the output", "a tensor", result.ptr());
}

// A component that only Python knows, or whose calls go through Python: subclasses, hooks, or any object with diffusers' methods and a config.
template <class Base> class PythonPart : public Base {
 public:
  explicit PythonPart(nb::handle object) : object_(object) {}
  io::Object config() override {
    nb::gil_scoped_acquire gil;
    nb::dict plain;  // what a config file can hold; the rest is of no interest to a pipeline
    nb::object config = nb::getattr(get(), "config", nb::none());
    auto simple = [](nb::handle v) {
      return v.is_none() || PyBool_Check(v.ptr()) || PyLong_Check(v.ptr()) || PyFloat_Check(v.ptr()) || PyUnicode_Check(v.ptr()) || PyList_Check(v.ptr()) ||
             PyTuple_Check(v.ptr());
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

class PythonDenoiser final : public PythonPart<Denoiser> {
 public:
  using PythonPart::PythonPart;
  Tensor predict(const DenoiserCall& call) override {
    nb::gil_scoped_acquire gil;
    nb::list positional;
    nb::dict keywords;
    for (auto& a : call) {
      if (!a.tensor) continue;
      const size_t dot = a.name.find('.');
      if (a.name.empty()) positional.append(a.tensor);
      else if (dot == a.name.npos) keywords[a.name.c_str()] = a.tensor;
      else dict_in(keywords, a.name.substr(0, dot))[a.name.substr(dot + 1).c_str()] = a.tensor;
    }
    return tensor_in(get()(*positional, **keywords), {"sample"}, "denoiser");
  }

 private:
  static nb::dict dict_in(nb::dict& all, const std::string& name) {
    if (!all.contains(name.c_str())) all[name.c_str()] = nb::dict();
    return nb::cast<nb::dict>(all[name.c_str()]);
  }
};

class PythonAutoencoder final : public PythonPart<Autoencoder> {
 public:
  using PythonPart::PythonPart;
  Tensor encode(const Tensor& images, const Generator& generator) override {
    nb::gil_scoped_acquire gil;
    nb::object out = get().attr("encode")(images);
    if (PyTuple_Check(out.ptr()) && PyTuple_GET_SIZE(out.ptr()) > 0) out = nb::borrow(PyTuple_GET_ITEM(out.ptr(), 0));
    nb::object g = generator ? wrap_generator(generator) : nb::none();
    if (nb::hasattr(out, "latent_dist")) return nb::cast<Tensor>(out.attr("latent_dist").attr("sample")(g));
    return tensor_in(out, {"latents"}, "vae.encode");
  }
  Tensor decode(const Tensor& latents) override {
    nb::gil_scoped_acquire gil;
    return tensor_in(get().attr("decode")(latents), {"sample"}, "vae.decode");
  }
  void to(DType dtype) override {
    nb::gil_scoped_acquire gil;
    get().attr("to")(nb::arg("dtype") = steal(to_object(Value(dtype))));
  }
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
    if (nb::object t = nb::getattr(out, "text_embeds", nb::none()); is_tensor(t.ptr())) result.text_embeds = tensor_of(t.ptr());
    if (nb::object h = nb::getattr(out, "hidden_states", nb::none()); !h.is_none()) result.hidden_states = nb::cast<Tensors>(h);
    return result;
  }
  Tensor final_layer_norm(const Tensor& x) override {
    nb::gil_scoped_acquire gil;
    return tensor_in(get().attr("text_model").attr("final_layer_norm")(x), {}, "text_encoder");
  }
};

// A scheduler of which Python overrides something: a subclass of a C++ one, called by its methods. It keeps the run's place itself.
class PythonScheduler final : public Scheduler {
 public:
  PythonScheduler(nb::handle object, Scheduler& native) : object_(object), native_(native), name_(Py_TYPE(object.ptr())->tp_name) {
    num_train_timesteps_ = native.num_train_timesteps();
  }
  static bool overrides(nb::handle object) {
    nb::handle base = nb::type<Scheduler>();
    for (auto* method : {"step", "set_timesteps", "scale_model_input", "add_noise", "set_begin_index", "timesteps", "order", "init_noise_sigma"}) {
      nb::str name(method);
      if (_PyType_Lookup(Py_TYPE(object.ptr()), name.ptr()) != _PyType_Lookup(reinterpret_cast<PyTypeObject*>(base.ptr()), name.ptr())) return true;
    }
    return false;
  }

  const char* name() const override { return name_.c_str(); }
  Fields fields() override { return native_.fields(); }
  std::string_view timestep_parameters() const override { return native_.timestep_parameters(); }
  std::string_view step_parameters() const override { return native_.step_parameters(); }
  int64_t order() const override { return with<int64_t>("order"); }
  double init_noise_sigma() const override { return with<double>("init_noise_sigma"); }
  Tensor scale_model_input(const Tensor& sample, double timestep) override {
    nb::gil_scoped_acquire gil;
    begin();
    return nb::cast<Tensor>(get().attr("scale_model_input")(sample, at(timestep)));
  }
  void keep_samples(const Tensor& places) override { native_.keep_samples(places); }
  Tensor add_noise(const Tensor& samples, const Tensor& noise, const Tensor& timesteps) override {
    nb::gil_scoped_acquire gil;
    begin();
    return nb::cast<Tensor>(get().attr("add_noise")(samples, noise, timesteps.ndim() ? timesteps : timesteps.unsqueeze(0)));
  }

 protected:
  void make_schedule(const TimestepOptions& o, int64_t) override {
    nb::gil_scoped_acquire gil;
    nb::dict keywords;
    keywords["device"] = steal(device_object(o.device));
    if (o.timesteps) keywords["timesteps"] = *o.timesteps;
    else if (o.sigmas) keywords["sigmas"] = *o.sigmas;
    else keywords["num_inference_steps"] = o.num_inference_steps.value();
    get().attr("set_timesteps")(**keywords);
    Tensor timesteps = nb::cast<Tensor>(get().attr("timesteps"));
    set_schedule(timesteps.to_vector(), timesteps.dtype(), o.device);
    begun_ = false;
  }
  StepOutput advance(const Tensor& model_output, double timestep, const Tensor& sample, const StepOptions& o) override {
    nb::gil_scoped_acquire gil;
    begin();
    nb::dict keywords;
    if (o.eta != 0) keywords["eta"] = o.eta;
    if (o.generator.size() == 1) keywords["generator"] = wrap_generator(o.generator[0]);
    if (o.generator.size() > 1) {
      nb::list all;
      for (auto& g : o.generator) all.append(wrap_generator(g));
      keywords["generator"] = all;
    }
    return {tensor_in(get().attr("step")(model_output, at(timestep), sample, **keywords), {"prev_sample"}, name()), Tensor()};
  }

 private:
  nb::handle get() const { return object_.get(); }
  template <class T> T with(const char* attribute) const {
    nb::gil_scoped_acquire gil;
    return nb::cast<T>(get().attr(attribute));
  }
  // The timestep as the model gets it: 0-d, of the schedule's dtype.
  Tensor at(double timestep) const { return scalar_tensor(timestep, timesteps().dtype()); }
  void begin() {
    if (!begun_ && begin_index()) get().attr("set_begin_index")(*begin_index());
    begun_ = true;
  }
  Held object_;
  Scheduler& native_;
  std::string name_;
  bool begun_ = false;
};

std::shared_ptr<Scheduler> scheduler_of(nb::handle o, const std::string& name) {
  Scheduler* native = nullptr;
  if (!nb::try_cast(o, native) || !native) wrong_argument("pipeline", name, "a scheduler of scaffolding.diffusion", o.ptr());
  if (PythonScheduler::overrides(o)) return std::make_shared<PythonScheduler>(o, *native);
  return {native, [held = Held(o)](Scheduler*) {}};
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
    if (_PyType_Lookup(Py_TYPE(o.ptr()), name.ptr()) != _PyType_Lookup(own, name.ptr())) return nullptr;
  }
  return {model, [held = Held(o)](models::Model*) {}};
}

// The class's pipeline around Python's components: {name: component}, with the class's other fields and "graphs".
std::unique_ptr<DiffusionPipeline> pipeline_of(const std::string& class_name, nb::dict parts) {
  const PipelineEntry& entry = pipeline_entry(class_name);
  auto pipeline = entry.make();
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
    else if (auto* a = slot.as<Ref<Autoencoder>>()) network(a, {"encode", "decode"}, [&] { return std::make_shared<PythonAutoencoder>(o); });
    else if (auto* t = slot.as<Ref<TextEncoder>>()) network(t, {}, [&] { return std::make_shared<PythonTextEncoder>(o); });
    else if (auto* k = slot.as<Ref<const tokenizers::Tokenizer>>()) *k = tokenizer_of(o, slot.name);
    else if (auto* s = slot.as<Ref<Scheduler>>()) *s = scheduler_of(o, slot.name);
  }
  nb::dict fields;
  for (auto& field : pipeline->fields())
    if (parts.contains(field.name) && !parts[field.name].is_none()) fields[field.name] = parts[field.name];
  io::read_fields(entry.name.c_str(), pipeline->fields(), from_python(fields));
  if (parts.contains("graphs")) pipeline->graphs = nb::cast<std::shared_ptr<DenoiserGraphs>>(parts["graphs"]);
  return pipeline;
}

// ---- options

PixelPair pixels(const NamedArguments& a, const char* name) {
  Shape s;
  SF_CHECK_AS(TypeError, to_shape(a.get(name).ptr(), s) && s.size() == 2, "pipeline: ", name, " must be two integers, (height, width) or (top, left)");
  return PixelPair{s[0], s[1]};
}

std::vector<int64_t> integers(const NamedArguments& a, const char* name) {
  if (PyLong_Check(a.get(name).ptr())) return {*a.integer(name)};
  std::vector<int64_t> out;
  const std::vector<double> numbers = a.numbers(name).value();
  for (double v : numbers) {
    SF_CHECK_AS(TypeError, v == std::floor(v), "pipeline: ", name, " must be integers, got ", v);
    out.push_back(int64_t(v));
  }
  return out;
}

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

// The fields of a call's options from Python's arguments; those that were not given keep their defaults.
void read(const NamedArguments& a, const OptionFields& fields) {
  for (auto& field : fields) {
    const char* name = field.name;
    if (!a.get(name).is_valid()) continue;
    std::visit(Overloaded{[&](bool* v) { *v = a.boolean(name, *v); }, [&](int64_t* v) { *v = a.integer(name).value(); },
                          [&](std::optional<int64_t>* v) { *v = a.integer(name); }, [&](double* v) { *v = a.number(name, *v); },
                          [&](std::optional<double>* v) { *v = a.number(name, 0); }, [&](std::vector<std::string>* v) { *v = a.texts(name); },
                          [&](std::optional<std::vector<double>>* v) { *v = a.numbers(name); }, [&](std::vector<int64_t>* v) { *v = integers(a, name); },
                          [&](Tensor* v) { *v = a.tensor(name); }, [&](Generators* v) { *v = a.generators(name); }, [&](PixelPair* v) { *v = pixels(a, name); },
                          [&](std::optional<PixelPair>* v) { *v = pixels(a, name); }, [&](const ChoiceField& v) { v.set(v.place, a.texts(name).at(0)); },
                          [](auto*) {}},  // callbacks: StepEnd
               field.place);
  }
}

// A field's default as Python shows it in the signature.
nb::object default_of(const OptionField& field) {
  return std::visit(
      Overloaded{[](bool* v) -> nb::object { return nb::bool_(*v); }, [](int64_t* v) -> nb::object { return nb::int_(*v); },
                 [](double* v) -> nb::object { return nb::float_(*v); }, [](PixelPair* v) -> nb::object { return nb::make_tuple((*v)[0], (*v)[1]); },
                 [](const ChoiceField& v) -> nb::object { return nb::str(v.get(v.place).c_str()); },
                 [](std::vector<std::string>* v) -> nb::object { return v->empty() ? nb::none() : nb::object(nb::str(v->at(0).c_str())); },
                 [](auto*) -> nb::object { return nb::none(); }},
      field.place);
}

// What Python wants to see at the end of a step: signals, the callback, the pipeline's attributes, the progress bar.
class StepEnd {
 public:
  StepEnd(nb::handle pipe, const NamedArguments& a) : pipe_(pipe), names_(a.texts("callback_on_step_end_tensor_inputs")) {
    if (nb::handle f = a.get("callback_on_step_end"); f.is_valid()) callback_ = Held(f);
    if (nb::handle f = a.get("progress"); f.is_valid()) progress_ = Held(f);
  }

  void operator()(StepState& state) const {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw_python_error();
    if (callback_) call(state);
    state.interrupt = nb::cast<bool>(nb::bool_(pipe_.get().attr("_interrupt")));
    state.guidance.scale = nb::cast<double>(pipe_.get().attr("_guidance_scale"));
    state.guidance.rescale = nb::cast<double>(pipe_.get().attr("_guidance_rescale"));
  }

  StepProgress progress() const {
    if (!progress_) return {};
    return [f = progress_](int64_t done, int64_t total) {
      nb::gil_scoped_acquire gil;
      f.get()(done, total);
    };
  }

 private:
  void call(StepState& state) const {
    nb::dict given;
    for (auto& name : names_) {
      auto at = state.tensors.find(name);
      SF_CHECK(at != state.tensors.end(), "pipeline: callback_on_step_end_tensor_inputs must be of ", list(state), ", got '", name, "'");
      given[name.c_str()] = *at->second;
    }
    nb::object changed = callback_.get()(pipe_.get(), state.step, state.timestep, given);
    if (changed.is_none()) return;
    if (!PyDict_Check(changed.ptr())) wrong_argument("callback_on_step_end", "the result", "a dict of tensors", changed.ptr());
    for (auto [key, value] : nb::cast<nb::dict>(changed)) {
      auto at = state.tensors.find(nb::cast<std::string>(key));
      if (at == state.tensors.end()) continue;
      if (!value.is_none() && !is_tensor(value.ptr())) wrong_argument("callback_on_step_end", nb::cast<std::string>(key), "a tensor", value.ptr());
      *at->second = value.is_none() ? Tensor() : tensor_of(value.ptr());
    }
  }
  static std::string list(const StepState& state) {
    std::string names;
    for (auto& [name, t] : state.tensors) names += (names.empty() ? "" : ", ") + name;
    return names;
  }

  Held pipe_, callback_, progress_;
  std::vector<std::string> names_;
};

NamedArguments arguments_of(const std::string& class_name, const OptionFields& fields, nb::dict options) {
  std::vector<std::string> names{"callback_on_step_end_tensor_inputs"};
  for (auto& f : fields) names.push_back(f.name);
  return NamedArguments(class_name, std::move(names), options);
}

std::unique_ptr<Run> start(const std::string& class_name, nb::handle pipe, nb::dict parts, nb::dict given) {
  auto pipeline = pipeline_of(class_name, parts);
  const AnyOptions options = pipeline->make_options();
  NamedArguments a = arguments_of(class_name, options.fields(), given);
  read(a, options.fields());
  StepEnd end(pipe, a);
  options.at<StepCallback>("callback_on_step_end") = end;
  options.at<StepProgress>("progress") = end.progress();
  nb::gil_scoped_release release;
  return pipeline->start(options);
}

nb::tuple finished(Run& run) {
  PipelineOutput out;
  {
    nb::gil_scoped_release release;
    out = run.finish();
  }
  return nb::make_tuple(out.images, out.truncated);
}

// (images, truncated texts)
nb::tuple generate(const std::string& class_name, nb::handle pipe, nb::dict parts, nb::dict given) {
  auto run = start(class_name, pipe, parts, given);
  {
    nb::gil_scoped_release release;
    while (!run->done()) run->step();
  }
  return finished(*run);
}

// The tensors in diffusers' order; None for those that are not made.
nb::tuple encode_prompt(const std::string& class_name, nb::dict parts, nb::dict given) {
  auto pipeline = pipeline_of(class_name, parts);
  const AnyOptions options = pipeline->make_options();
  read(arguments_of(class_name, options.fields(), given), options.fields());
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    nb::gil_scoped_release release;
    tensors = pipeline->encoded_prompt(options);
  }
  nb::list out;
  for (auto& [name, t] : tensors) out.append(t);
  return nb::tuple(out);
}

const char* kind_of_slot(const ComponentSlot& slot) {
  if (slot.as<Ref<Denoiser>>()) return "denoiser";
  if (slot.as<Ref<Autoencoder>>()) return "autoencoder";
  if (slot.as<Ref<TextEncoder>>()) return "text_encoder";
  if (slot.as<Ref<Scheduler>>()) return "scheduler";
  return slot.as<Ref<const tokenizers::Tokenizer>>() ? "tokenizer" : "unused";
}

// What Python makes the class of a pipeline from.
nb::dict entry_of(const PipelineEntry& entry) {
  auto made = entry.make();
  const AnyOptions options = made->make_options();
  nb::dict out, components, fields, all, roles;
  for (auto& slot : made->components()) components[slot.name.c_str()] = kind_of_slot(slot);
  const io::Object defaults = io::write_fields(made->fields());
  for (auto& f : options.fields()) {
    if (std::find(entry.arguments.begin(), entry.arguments.end(), f.name) != entry.arguments.end()) all[f.name] = default_of(f);
    if (f.role != OptionRole::Plain) roles[f.name] = f.role == OptionRole::Picture ? "picture" : "mask";
  }
  nb::list call, texts, docs, required;
  for (auto& name : entry.arguments) call.append(name);
  for (auto& f : options.fields()) {
    if (std::holds_alternative<std::vector<std::string>*>(f.place)) texts.append(f.name);
    if (std::holds_alternative<std::vector<int64_t>*>(f.place)) required.append(f.name);
    docs.append(nb::make_tuple(f.name, f.doc));
  }
  out["family"] = entry.family_name;
  out["task"] = name_of(entry.its_task);
  out["components"] = components;
  out["optional"] = entry.optional_components;
  out["fields"] = to_python(defaults);
  out["call"] = call;
  out["defaults"] = all;
  out["roles"] = roles;
  out["texts"] = texts;
  out["required"] = required;
  out["docs"] = docs;
  out["callbacks"] = entry.callback_tensors;
  out["doc"] = entry.help;
  return out;
}

// ---- files

// What a plan's steps are: [(name, kind, class, folder, variant, config)]
nb::dict plan_of(const LoadPlan& plan) {
  constexpr const char* kKinds[] = {"none", "model", "scheduler", "tokenizer"};
  nb::list steps;
  for (auto& c : plan.components) {
    nb::dict step;
    step["name"] = c.name, step["kind"] = kKinds[size_t(c.kind)], step["class_name"] = c.class_name, step["folder"] = c.folder, step["variant"] = c.variant;
    step["config"] = to_python(c.config);
    steps.append(step);
  }
  nb::dict out;
  out["class_name"] = plan.entry->name;
  out["steps"] = steps;
  out["ignored"] = plan.ignored;
  out["listed"] = plan.listed;
  out["config"] = to_python(plan.config);
  return out;
}

// (library, class) as model_index.json has them
nb::tuple component_row(nb::handle o) {
  if (o.is_none()) return nb::make_tuple("", "");
  if (is_module(o.ptr()))
    if (auto* model = dynamic_cast<models::Model*>(reinterpret_cast<PyModule*>(o.ptr())->module)) return nb::make_tuple(model->library(), model->type());
  Scheduler* scheduler = nullptr;
  if (nb::try_cast(o, scheduler) && scheduler) return nb::make_tuple("diffusers", scheduler->name());
  const tokenizers::Tokenizer* tokenizer = nullptr;
  if (nb::hasattr(o, "_core") && nb::try_cast(nb::object(o.attr("_core")), tokenizer) && tokenizer)
    return nb::make_tuple("transformers", tokenizer->class_name());
  wrong_argument("pipeline", "the component", "a model, scheduler or tokenizer of this library", o.ptr());
}

void save_index(const std::string& folder, const std::string& class_name, nb::dict rows, nb::dict config) {
  PipelineIndex index{.class_name = class_name};
  for (auto [name, row] : rows) {
    auto parts = nb::cast<nb::tuple>(row);
    index.rows.push_back({nb::cast<std::string>(name), nb::cast<std::string>(parts[0]), nb::cast<std::string>(parts[1])});
  }
  index.config = from_python(config);
  write_pipeline_index(index, folder);
}

}  // namespace

void bind_pipelines(nb::module_& core) {
  nb::module_ m = core.def_submodule("_pipelines");
  nb::class_<DenoiserGraphs>(m, "DenoiserGraphs")
      .def(nb::init<>())
      .def("clear", &DenoiserGraphs::clear)
      .def("statistics",
           [](const DenoiserGraphs& g) {
             auto s = g.statistics();
             nb::dict out;
             out["captures"] = s.captures;
             out["replays"] = s.replays;
             out["kept"] = s.kept;
             return out;
           })
      .def_static("why_not",
                  [](const std::string& class_name, nb::dict parts) { return DenoiserGraphs::why_not(*pipeline_of(class_name, parts)->the_denoiser()); });
  bind_image_processor(m);
  m.def("entries", [] {
    nb::dict out;
    for (auto* entry : all_pipelines()) out[entry->name.c_str()] = entry_of(*entry);
    return out;
  });
  m.def("pipeline_for", [](const std::string& who, const std::string& class_name, const std::string& task) {
    for (Task t : {Task::TextToImage, Task::ImageToImage, Task::Inpainting, Task::ClassToImage})
      if (task == name_of(t)) return pipeline_for(who, class_name, t).name;
    fail("pipeline: there is no task '", task, "'");
  });
  m.def("generate", &generate);
  auto released = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Run>(m, "Run")
      .def_prop_ro("done", &Run::done)
      .def_prop_ro("at", &Run::at)
      .def_prop_ro("steps", [](const Run& run) { return run.schedule.size(); })
      .def_prop_rw(
          "latents", [](const Run& run) { return run.latents; }, [](Run& run, const Tensor& latents) { run.latents = latents; })
      .def("step", &Run::step, released)
      .def("interrupt", &Run::interrupt)
      .def("keep_samples", &Run::keep_samples, released)
      .def("preview", &Run::preview, nb::arg("n") = 0, released)
      .def("finish", &finished);
  m.def(
      "start", [](const std::string& class_name, nb::handle pipe, nb::dict parts, nb::dict given) { return start(class_name, pipe, parts, given).release(); },
      nb::rv_policy::take_ownership);
  m.def("encode_prompt", &encode_prompt);
  m.def("parse_weights", [](const std::string& prompt) {
    nb::list out;
    for (auto& part : parse_weights(prompt)) out.append(nb::make_tuple(part.new_chunk ? std::string("BREAK") : part.text, part.new_chunk ? -1.0 : part.weight));
    return out;
  });
  m.def("check_components", [](const std::string& class_name, nb::dict parts) { pipeline_of(class_name, parts); });
  m.def("vae_scale_factor", [](const std::string& class_name, nb::dict parts) { return pipeline_of(class_name, parts)->vae_scale_factor(); });
  m.def("default_size", [](const std::string& class_name, nb::dict parts) {  // (height, width) in pixels
    auto size = pipeline_of(class_name, parts)->size();
    return nb::make_tuple(size.height, size.width);
  });
  m.def("labels", [](const std::string& class_name, nb::dict parts) { return pipeline_of(class_name, parts)->labels(); });
  m.def("get_label_ids", [](const std::string& class_name, nb::dict parts, const std::vector<std::string>& names) {
    return pipeline_of(class_name, parts)->get_label_ids(names);
  });
  m.def("component_row", &component_row, nb::arg("component").none());
  m.def("read_class_name", [](const std::string& folder) { return read_pipeline_index(folder).class_name; });
  m.def("plan", [](const std::string& folder, const std::string& class_name, const std::vector<std::string>& passed, const std::string& variant) {
    return plan_of(plan_pipeline(folder, {.class_name = class_name, .passed = passed, .variant = variant}));
  });
  nb::class_<LoadPlan>(m, "SingleFilePlan")
      .def(nb::new_([](const std::string& path, const std::string& class_name, const std::vector<std::string>& passed, const std::string& config,
                       const std::string& prediction_type, bool extract_ema) {
        nb::gil_scoped_release released;
        return plan_single_file(
            path, {.class_name = class_name, .passed = passed, .config = config, .file = {.prediction_type = prediction_type, .extract_ema = extract_ema}});
      }))
      .def("steps", &plan_of)
      .def_prop_ro(
          "file", [](const LoadPlan& plan) { return plan.file.get(); }, nb::rv_policy::reference_internal);
  m.def("tokenizer_class_of", &tokenizers::tokenizer_class_of);
  m.def("save_index", &save_index);
}

}  // namespace sf::py
