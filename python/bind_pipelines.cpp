// Pipelines: the C++ loops around components that Python objects own. Called by python/scaffolding/diffusion/pipelines.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind_nn.h"
#include "bind_object.h"
#include "bind_schedulers.h"
#include "named_arguments.h"
#include "py_callable.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"

namespace sf::py {

namespace {

using namespace diffusion;

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
  Tensor predict(const DenoiserInput& in) override {
    nb::gil_scoped_acquire gil;
    nb::dict keywords;
    keywords["encoder_hidden_states"] = in.encoder_hidden_states;
    if (in.timestep_cond) keywords["timestep_cond"] = in.timestep_cond;
    if (in.text_embeds) {
      nb::dict added;
      added["text_embeds"] = in.text_embeds;
      added["time_ids"] = in.time_ids;
      keywords["added_cond_kwargs"] = added;
    }
    return tensor_in(get()(in.sample, in.timestep, **keywords), {"sample"}, "unet");
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

std::shared_ptr<Scheduler> scheduler_of(nb::dict parts) {
  if (!parts.contains("scheduler") || parts["scheduler"].is_none()) return nullptr;
  nb::object o = parts["scheduler"];
  Scheduler* native = nullptr;
  if (!nb::try_cast(o, native) || !native) wrong_argument("pipeline", "scheduler", "a scheduler of scaffolding.diffusion", o.ptr());
  if (PythonScheduler::overrides(o)) return std::make_shared<PythonScheduler>(o, *native);
  return {native, [held = Held(o)](Scheduler*) {}};
}

std::shared_ptr<const tokenizers::CLIPTokenizer> tokenizer_of(nb::dict parts, const char* name) {
  if (!parts.contains(name) || parts[name].is_none()) return nullptr;
  nb::object o = parts[name];
  const tokenizers::CLIPTokenizer* tokenizer = nullptr;
  if (!nb::hasattr(o, "_core") || !nb::try_cast(nb::object(o.attr("_core")), tokenizer) || !tokenizer)
    wrong_argument("pipeline", name, "a scaffolding.tokenizers.CLIPTokenizer", o.ptr());
  return {tokenizer, [held = Held(o)](const tokenizers::CLIPTokenizer*) {}};
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

template <class Part, class Python, class Make>
std::shared_ptr<Part> component(nb::dict parts, const char* name, std::initializer_list<const char*> methods, const Make& make) {
  if (!parts.contains(name) || parts[name].is_none()) return nullptr;
  nb::object o = parts[name];
  if (auto model = native_model(o, methods)) return make(std::move(model));
  return std::make_shared<Python>(o);
}

PipelineComponents components_of(nb::dict parts) {
  PipelineComponents c;
  c.vae = component<Autoencoder, PythonAutoencoder>(parts, "vae", {"encode", "decode"}, &autoencoder);
  c.unet = component<Denoiser, PythonDenoiser>(parts, "unet", {}, &denoiser);
  c.text_encoder = component<TextEncoder, PythonTextEncoder>(parts, "text_encoder", {}, &text_encoder);
  c.text_encoder_2 = component<TextEncoder, PythonTextEncoder>(parts, "text_encoder_2", {}, &text_encoder);
  c.tokenizer = tokenizer_of(parts, "tokenizer");
  c.tokenizer_2 = tokenizer_of(parts, "tokenizer_2");
  c.scheduler = scheduler_of(parts);
  auto flag = [&](const char* name, bool otherwise) { return parts.contains(name) ? nb::cast<bool>(parts[name]) : otherwise; };
  c.force_zeros_for_empty_prompt = flag("force_zeros_for_empty_prompt", true);
  c.requires_aesthetics_score = flag("requires_aesthetics_score", false);
  if (parts.contains("graphs")) c.graphs = nb::cast<std::shared_ptr<DenoiserGraphs>>(parts["graphs"]);
  return c;
}

// ---- options

std::optional<PixelPair> pixels(const NamedArguments& a, const char* name) {
  nb::handle o = a.get(name);
  if (!o.is_valid()) return {};
  Shape s;
  SF_CHECK_AS(TypeError, to_shape(o.ptr(), s) && s.size() == 2, "pipeline: ", name, " must be two integers, (height, width) or (top, left)");
  return PixelPair{s[0], s[1]};
}

std::optional<double> optional_number(const NamedArguments& a, const char* name) {
  if (!a.get(name).is_valid()) return {};
  return a.number(name, 0);
}

std::string word(const NamedArguments& a, const char* name, const char* otherwise) {
  auto texts = a.texts(name);
  return texts.empty() ? otherwise : texts.at(0);
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

void read(const NamedArguments& a, GenerationOptions& o) {
  o.prompt = a.texts("prompt");
  o.negative_prompt = a.texts("negative_prompt");
  o.height = a.integer("height");
  o.width = a.integer("width");
  o.num_inference_steps = a.integer("num_inference_steps").value_or(o.num_inference_steps);
  o.timesteps = a.numbers("timesteps");
  o.sigmas = a.numbers("sigmas");
  o.guidance_scale = a.number("guidance_scale", o.guidance_scale);
  o.guidance_rescale = a.number("guidance_rescale", 0);
  o.guidance_mode = guidance_mode(word(a, "guidance_mode", "batched"));
  o.clip_skip = a.integer("clip_skip");
  o.prompt_syntax = prompt_syntax(word(a, "prompt_syntax", "plain"));
  o.num_images_per_prompt = a.integer("num_images_per_prompt").value_or(1);
  o.eta = a.number("eta", 0);
  o.generator = a.generators("generator");
  o.latents = a.tensor("latents");
  o.prompt_embeds = a.tensor("prompt_embeds");
  o.negative_prompt_embeds = a.tensor("negative_prompt_embeds");
  o.output_latents = a.boolean("output_latents", false);
  o.capture = a.boolean("capture", true);
  o.cache_prompt = a.boolean("cache_prompt", true);
}

void read(const NamedArguments& a, StableDiffusionXLOptions& o) {
  read(a, static_cast<GenerationOptions&>(o));
  o.prompt_2 = a.texts("prompt_2");
  o.negative_prompt_2 = a.texts("negative_prompt_2");
  o.pooled_prompt_embeds = a.tensor("pooled_prompt_embeds");
  o.negative_pooled_prompt_embeds = a.tensor("negative_pooled_prompt_embeds");
  o.denoising_end = optional_number(a, "denoising_end");
  o.original_size = pixels(a, "original_size");
  o.target_size = pixels(a, "target_size");
  o.crops_coords_top_left = pixels(a, "crops_coords_top_left").value_or(PixelPair{0, 0});
  o.negative_original_size = pixels(a, "negative_original_size");
  o.negative_target_size = pixels(a, "negative_target_size");
  o.negative_crops_coords_top_left = pixels(a, "negative_crops_coords_top_left").value_or(PixelPair{0, 0});
}

void read(const NamedArguments& a, Img2ImgOptions& o) {
  read(a, static_cast<GenerationOptions&>(o));
  o.image = a.tensor("image");
  o.strength = a.number("strength", o.strength);
}

void read(const NamedArguments& a, InpaintOptions& o) {
  read(a, static_cast<GenerationOptions&>(o));
  o.image = a.tensor("image");
  o.mask = a.tensor("mask_image");
  o.masked_image_latents = a.tensor("masked_image_latents");
  o.strength = a.number("strength", o.strength);
}

void read(const NamedArguments& a, StableDiffusionXLImg2ImgOptions& o) {
  read(a, static_cast<StableDiffusionXLOptions&>(o));
  o.image = a.tensor("image");
  o.strength = a.number("strength", o.strength);
  o.denoising_start = optional_number(a, "denoising_start");
  o.aesthetic_score = a.number("aesthetic_score", o.aesthetic_score);
  o.negative_aesthetic_score = a.number("negative_aesthetic_score", o.negative_aesthetic_score);
}

constexpr const char* kParameters =
    "prompt, negative_prompt, height, width, num_inference_steps, timesteps, sigmas, guidance_scale, guidance_rescale, guidance_mode, clip_skip, "
    "prompt_syntax, num_images_per_prompt, eta, generator, latents, prompt_embeds, negative_prompt_embeds, output_latents, capture, cache_prompt, "
    "callback_on_step_end, callback_on_step_end_tensor_inputs, progress, prompt_2, negative_prompt_2, pooled_prompt_embeds, "
    "negative_pooled_prompt_embeds, denoising_end, original_size, target_size, crops_coords_top_left, negative_original_size, negative_target_size, "
    "negative_crops_coords_top_left, image, strength, "
    "mask_image, masked_image_latents, denoising_start, aesthetic_score, negative_aesthetic_score";

// (images, truncated texts)
template <class P, class O> nb::tuple generate(nb::handle pipe, nb::dict parts, nb::dict options) {
  NamedArguments a(P::kName, split(kParameters), options);
  P pipeline(components_of(parts));
  O o;
  read(a, o);
  StepEnd end(pipe, a);
  o.callback_on_step_end = end;
  o.progress = end.progress();
  PipelineOutput out;
  {
    nb::gil_scoped_release release;
    out = pipeline(o);
  }
  return nb::make_tuple(out.images, out.truncated);
}

// (prompt_embeds, negative_prompt_embeds), and the pooled ones of SDXL
template <class P, class O> nb::tuple encode_prompt(nb::dict parts, nb::dict options) {
  NamedArguments a(P::kName, split(kParameters), options);
  P pipeline(components_of(parts));
  O o;
  read(a, o);
  autograd::NoGrad no_grad;
  nb::gil_scoped_release release;
  auto e = pipeline.encode_prompt(o);
  nb::gil_scoped_acquire acquire;
  if constexpr (requires { e.pooled_prompt_embeds; })
    return nb::make_tuple(e.prompt_embeds, e.negative_prompt_embeds, e.pooled_prompt_embeds, e.negative_pooled_prompt_embeds);
  else return nb::make_tuple(e.prompt_embeds, e.negative_prompt_embeds);
}

// ---- pictures

std::optional<CropBox> crop_box(const std::optional<Shape>& box) {
  if (!box) return {};
  SF_CHECK(box->size() == 4, "VaeImageProcessor: a crop is (left, top, right, bottom), got ", *box);
  return CropBox{(*box)[0], (*box)[1], (*box)[2], (*box)[3]};
}

PreprocessOptions preprocess_options(std::optional<int64_t> height, std::optional<int64_t> width, const std::string& mode, const std::optional<Shape>& crop) {
  return {height, width, resize_mode(mode), crop_box(crop)};
}

void bind_image_processor(nb::module_& m) {
  nb::class_<VaeImageProcessor>(m, "VaeImageProcessor")
      .def("__init__",
           [](VaeImageProcessor* self, bool do_resize, int64_t scale, int64_t channels, const std::string& resample, bool normalize, bool binarize, bool grey) {
             SF_CHECK(scale >= 1, "VaeImageProcessor: vae_scale_factor must be at least 1, got ", scale);
             new (self) VaeImageProcessor({do_resize, scale, channels, data::filter(resample), normalize, binarize, grey});
           })
      .def("preprocess_pictures",
           [](const VaeImageProcessor& p, const Tensors& pictures, std::optional<int64_t> height, std::optional<int64_t> width, const std::string& mode,
              std::optional<Shape> crop) { return p.preprocess(pictures, preprocess_options(height, width, mode, crop)); })
      .def("preprocess_values",
           [](const VaeImageProcessor& p, const Tensor& images, std::optional<int64_t> height, std::optional<int64_t> width, const std::string& mode,
              std::optional<Shape> crop) { return p.preprocess(images, preprocess_options(height, width, mode, crop)); })
      .def("denormalize", &VaeImageProcessor::denormalize)
      .def("resize", [](const VaeImageProcessor& p, const Tensor& picture, int64_t height, int64_t width,
                        const std::string& mode) { return p.resize(picture, height, width, resize_mode(mode)); })
      .def("apply_overlay", [](const VaeImageProcessor& p, const Tensor& mask, const Tensor& init, const Tensor& picture,
                               std::optional<Shape> crop) { return p.apply_overlay(mask, init, picture, crop_box(crop)); })
      .def_static("frames", &VaeImageProcessor::frames)
      .def_static("pictures", &VaeImageProcessor::pictures)
      .def_static("crop_region", [](const Tensor& mask, int64_t width, int64_t height, int64_t pad) {
        CropBox b = VaeImageProcessor::crop_region(mask, width, height, pad);
        return nb::make_tuple(b.left, b.top, b.right, b.bottom);
      });
}

// ---- files

nb::dict index_of(const std::string& folder) {
  PipelineIndex index = read_pipeline_index(folder);
  nb::dict rows, out;
  for (auto& row : index.rows) rows[row.name.c_str()] = nb::make_tuple(row.library, row.class_name, component_kind(row));
  out["class_name"] = index.class_name;
  out["rows"] = rows;
  out["config"] = to_python(index.config);
  return out;
}

// (library, class) as model_index.json has them
nb::tuple component_row(nb::handle o) {
  if (o.is_none()) return nb::make_tuple("", "");
  if (is_module(o.ptr()))
    if (auto* model = dynamic_cast<models::Model*>(reinterpret_cast<PyModule*>(o.ptr())->module)) return nb::make_tuple(model->library(), model->type());
  Scheduler* scheduler = nullptr;
  if (nb::try_cast(o, scheduler) && scheduler) return nb::make_tuple("diffusers", scheduler->name());
  const tokenizers::CLIPTokenizer* tokenizer = nullptr;
  if (nb::hasattr(o, "_core") && nb::try_cast(nb::object(o.attr("_core")), tokenizer) && tokenizer) return nb::make_tuple("transformers", "CLIPTokenizer");
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
      .def_static("why_not", [](nb::dict parts) { return DenoiserGraphs::why_not(*components_of(parts).unet); });
  bind_image_processor(m);
  auto bind = [&]<class P, class O>() {
    m.def((std::string("generate_") + P::kName).c_str(), &generate<P, O>);
    m.def((std::string("encode_prompt_") + P::kName).c_str(), &encode_prompt<P, O>);
  };
  bind.operator()<StableDiffusionPipeline, GenerationOptions>();
  bind.operator()<StableDiffusionImg2ImgPipeline, Img2ImgOptions>();
  bind.operator()<StableDiffusionInpaintPipeline, InpaintOptions>();
  bind.operator()<StableDiffusionXLPipeline, StableDiffusionXLOptions>();
  bind.operator()<StableDiffusionXLImg2ImgPipeline, StableDiffusionXLImg2ImgOptions>();
  m.def("parse_weights", [](const std::string& prompt) {
    nb::list out;
    for (auto& part : parse_weights(prompt)) out.append(nb::make_tuple(part.new_chunk ? std::string("BREAK") : part.text, part.new_chunk ? -1.0 : part.weight));
    return out;
  });
  m.def("check_components", [](nb::dict parts) { components_of(parts); });
  m.def("vae_scale_factor", [](nb::dict parts) { return StableDiffusionPipeline(components_of(parts)).vae_scale_factor(); });
  m.def("default_size", [](nb::dict parts) {  // (height, width) in pixels
    auto size = StableDiffusionPipeline(components_of(parts)).size({});
    return nb::make_tuple(size.height, size.width);
  });
  m.def("component_row", &component_row, nb::arg("component").none());
  m.def("read_index", &index_of);
  m.def("save_index", &save_index);
  m.def("weights_with_variant",
        [](const std::string& folder, const std::string& library, const std::string& variant) { return has_weights(folder, library, variant); });
}

}  // namespace sf::py
