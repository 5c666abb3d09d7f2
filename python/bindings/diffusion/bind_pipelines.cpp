// Pipelines: the C++ loops around components that Python objects own. Called by python/scaffolding/diffusion/pipelines.
#include <cmath>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/core/named_arguments.h"
#include "python/bindings/core/py_callable.h"
#include "python/bindings/diffusion/bind_image_processor.h"
#include "python/bindings/diffusion/bind_memory_plan.h"
#include "python/bindings/diffusion/bind_textual_inversion.h"
#include "python/bindings/diffusion/python_components.h"
#include "python/bindings/io/bind_object.h"
#include "python/bindings/nn/bind_nn.h"
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/release_threads.h"
#include "scaffolding/diffusion/pipelines/ltx2/latent_filters.h"
#include "scaffolding/diffusion/pipelines/pipelines.h"

namespace sf::py {

namespace {

using namespace diffusion;
using diffusion::Ref;

// ---- options

PixelPair pixels(const NamedArguments& a, const char* name) {
  Shape s;
  SF_CHECK_AS(TypeError, to_shape(a.get(name).ptr(), s) && s.size() == 2, "pipeline: ", name,
              " must be two integers, (height, width) or (top, left)");
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

std::vector<double> one_or_several(const NamedArguments& a, const char* name) {
  if (Scalar s; to_scalar(a.get(name).ptr(), s)) return {s.to_double()};
  return a.numbers(name).value();
}

template <class... F> struct Overloaded : F... { using F::operator()...; };
template <class... F> Overloaded(F...) -> Overloaded<F...>;

// The fields of a call's options from Python's arguments; those that were not given keep their defaults.
void read(const NamedArguments& a, const OptionFields& fields) {
  for (auto& field : fields) {
    const char* name = field.name;
    if (!a.get(name).is_valid()) continue;
    std::visit(
        Overloaded{
            [&](bool* v) { *v = a.boolean(name, *v); }, [&](int64_t* v) { *v = a.integer(name).value(); },
            [&](std::optional<int64_t>* v) { *v = a.integer(name); }, [&](double* v) { *v = a.number(name, *v); },
            [&](std::optional<double>* v) { *v = a.number(name, 0); },
            [&](std::vector<std::string>* v) { *v = a.texts(name); },
            [&](std::optional<std::vector<double>>* v) { *v = a.numbers(name); },
            [&](std::vector<double>* v) { *v = one_or_several(a, name); },
            [&](std::vector<int64_t>* v) { *v = integers(a, name); },
            [&](Tensors* v) { *v = nb::cast<Tensors>(a.get(name)); }, [&](Tensor* v) { *v = a.tensor(name); },
            [&](Generators* v) { *v = a.generators(name); }, [&](PixelPair* v) { *v = pixels(a, name); },
            [&](std::optional<PixelPair>* v) { *v = pixels(a, name); },
            [&](const ChoiceField& v) { v.set(v.place, a.texts(name).at(0)); }, [](auto*) {}},  // callbacks: StepEnd
        field.place);
  }
}

// A field's default as Python shows it in the signature.
nb::object default_of(const OptionField& field) {
  return std::visit(
      Overloaded{[](bool* v) -> nb::object { return nb::bool_(*v); },
                 [](int64_t* v) -> nb::object { return nb::int_(*v); },
                 [](double* v) -> nb::object { return nb::float_(*v); },
                 [](std::vector<double>* v) -> nb::object { return nb::float_(v->at(0)); },
                 [](PixelPair* v) -> nb::object { return nb::make_tuple((*v)[0], (*v)[1]); },
                 [](const ChoiceField& v) -> nb::object { return nb::str(v.get(v.place).c_str()); },
                 [](std::vector<std::string>* v) -> nb::object {
                   return v->empty() ? nb::none() : nb::object(nb::str(v->at(0).c_str()));
                 },
                 [](std::optional<int64_t>* v) -> nb::object { return *v ? nb::object(nb::int_(**v)) : nb::none(); },
                 [](std::optional<double>* v) -> nb::object { return *v ? nb::object(nb::float_(**v)) : nb::none(); },
                 [](std::optional<std::vector<double>>* v) -> nb::object { return *v ? nb::cast(**v) : nb::none(); },
                 [](auto*) -> nb::object { return nb::none(); }},
      field.place);
}

// What Python wants to see at the end of a step: signals, the callback, the pipeline's attributes, the progress bar.
class StepEnd {
 public:
  StepEnd(nb::handle pipe, const NamedArguments& a)
      : pipe_(pipe), names_(a.texts("callback_on_step_end_tensor_inputs")) {
    if (nb::handle f = a.get("callback_on_step_end"); f.is_valid()) callback_ = Held(f);
    if (nb::handle f = a.get("progress"); f.is_valid()) progress_ = Held(f);
  }

  void operator()(StepState& state) const {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw_python_error();
    if (callback_) call(state);
    state.interrupt = nb::cast<bool>(nb::bool_(pipe_.get().attr("_interrupt")));
    if (!state.guidance.fixed) state.guidance.scale = nb::cast<double>(pipe_.get().attr("_guidance_scale"));
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
      SF_CHECK(at != state.tensors.end(), "pipeline: callback_on_step_end_tensor_inputs must be of ", list(state),
               ", got '", name, "'");
      given[name.c_str()] = *at->second;
    }
    nb::object changed = callback_.get()(pipe_.get(), state.step, state.timestep, given);
    if (changed.is_none()) return;
    if (!PyDict_Check(changed.ptr()))
      wrong_argument("callback_on_step_end", "the result", "a dict of tensors", changed.ptr());
    for (auto [key, value] : nb::cast<nb::dict>(changed)) {
      auto at = state.tensors.find(nb::cast<std::string>(key));
      if (at == state.tensors.end()) continue;
      if (!value.is_none() && !is_tensor(value.ptr()))
        wrong_argument("callback_on_step_end", nb::cast<std::string>(key), "a tensor", value.ptr());
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

// For each clip a list, of which frames may be taken out.
nb::list lists_of(const std::vector<Tensors>& clips) {
  nb::list out;
  for (auto& clip : clips) {
    nb::list frames;
    for (auto& frame : clip) frames.append(frame);
    out.append(frames);
  }
  return out;
}

nb::object sound_of(const Sound& sound) { return sound.values ? nb::cast(sound.values) : nb::none(); }

// (images, or for each clip a list of its frames; sound or None; truncated texts; makeshifts)
nb::tuple finished(Run& run, bool as_frames) {
  const auto made = [&](auto finish) {
    nb::gil_scoped_release release;
    return finish();
  };
  if (as_frames) {
    const PipelineFrames out = made([&] { return run.finish_frames(); });
    return nb::make_tuple(lists_of(out.clips), sound_of(out.sound), out.truncated, out.makeshifts);
  }
  const PipelineOutput out = made([&] { return run.finish(); });
  return nb::make_tuple(out.images, sound_of(out.sound), out.truncated, out.makeshifts);
}

nb::tuple generate(const std::string& class_name, nb::handle pipe, nb::dict parts, nb::dict given, bool as_frames) {
  auto run = start(class_name, pipe, parts, given);
  {
    nb::gil_scoped_release release;
    while (!run->done()) run->step();
  }
  return finished(*run, as_frames);
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

const char* kind_of_slot(const ComponentSlot& slot, bool first_denoiser) {
  if (slot.as<Ref<Denoiser>>()) return first_denoiser ? "denoiser" : "controlnet";
  if (slot.as<Ref<Autoencoder>>()) return "autoencoder";
  if (slot.as<Ref<TextEncoder>>()) return "text_encoder";
  if (slot.as<Ref<Network>>()) return "network";
  if (slot.as<Ref<Scheduler>>()) return "scheduler";
  return slot.as<Ref<const tokenizers::Tokenizer>>() ? "tokenizer" : "unused";
}

// What Python makes the class of a pipeline from.
nb::dict entry_of(const PipelineEntry& entry) {
  auto made = entry.make();
  const AnyOptions options = made->make_options();
  nb::dict out, components, fields, all, roles;
  bool first_denoiser = true;
  for (auto& slot : made->components()) {
    components[slot.name.c_str()] = kind_of_slot(slot, first_denoiser);
    first_denoiser = first_denoiser && !slot.as<Ref<Denoiser>>();
  }
  const io::Object defaults = io::write_fields(made->fields());
  for (auto& f : options.fields()) {
    if (std::find(entry.arguments.begin(), entry.arguments.end(), f.name) != entry.arguments.end())
      all[f.name] = default_of(f);
    constexpr const char* kRoles[] = {"", "picture", "mask", "control"};
    if (f.role != OptionRole::Plain) roles[f.name] = kRoles[size_t(f.role)];
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
  out["makes_clips"] = makes_clips(entry.its_task);
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
    step["name"] = c.name, step["kind"] = kKinds[size_t(c.kind)], step["class_name"] = c.class_name,
    step["folder"] = c.folder, step["variant"] = c.variant, step["library"] = c.library;
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
    if (auto* model = dynamic_cast<models::Model*>(reinterpret_cast<PyModule*>(o.ptr())->module))
      return nb::make_tuple(model->library(), model->type());
  if (Scheduler* scheduler = native_scheduler(o)) return nb::make_tuple("diffusers", scheduler->name());
  const tokenizers::Tokenizer* tokenizer = nullptr;
  if (nb::hasattr(o, "_core") && nb::try_cast(nb::object(o.attr("_core")), tokenizer) && tokenizer)
    return nb::make_tuple("transformers", tokenizer->class_name());
  wrong_argument("pipeline", "the component", "a model, scheduler or tokenizer of this library", o.ptr());
}

void save_index(const std::string& folder, const std::string& class_name, nb::dict rows, nb::dict config) {
  PipelineIndex index{.class_name = class_name};
  for (auto [name, row] : rows) {
    auto parts = nb::cast<nb::tuple>(row);
    index.rows.push_back(
        {nb::cast<std::string>(name), nb::cast<std::string>(parts[0]), nb::cast<std::string>(parts[1])});
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
      .def_static("why_not", [](const std::string& class_name, nb::dict parts) {
        return DenoiserGraphs::why_not(*pipeline_of(class_name, parts)->the_denoiser());
      });
  bind_image_processor(m);
  bind_textual_inversion(m);
  bind_memory_plan(m);
  m.def("entries", [] {
    nb::dict out;
    for (auto* entry : all_pipelines()) out[entry->name.c_str()] = entry_of(*entry);
    return out;
  });
  m.def("pipeline_for", [](const std::string& who, const std::string& class_name, const std::string& task) {
    return pipeline_for(who, class_name, task_of(task)).name;
  });
  m.def("generate", &generate);
  m.def("release_threads", &release_threads, nb::call_guard<nb::gil_scoped_release>());
  auto released = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<Run>(m, "Run")
      .def_prop_ro("done", &Run::done)
      .def_prop_ro("at", &Run::at)
      .def_prop_ro("makeshifts", &Run::makeshifts)
      .def_prop_ro("steps", [](const Run& run) { return run.schedule.size(); })
      .def_prop_rw(
          "latents", [](const Run& run) { return run.latents; },
          [](Run& run, const Tensor& latents) { run.latents = latents; })
      .def("step", &Run::step, released)
      .def("interrupt", &Run::interrupt)
      .def("keep_samples", &Run::keep_samples, released)
      .def("preview", &Run::preview, nb::arg("n") = 0, released)
      .def(
          "preview_frames",
          [](const Run& run, int64_t n) {
            const auto clips = [&] {
              nb::gil_scoped_release release;
              return run.preview_frames(n);
            }();
            return lists_of(clips);
          },
          nb::arg("n") = 0)
      .def("finish", &finished, nb::arg("as_frames"));
  m.def(
      "start",
      [](const std::string& class_name, nb::handle pipe, nb::dict parts, nb::dict given) {
        return start(class_name, pipe, parts, given).release();
      },
      nb::rv_policy::take_ownership);
  m.def("encode_prompt", &encode_prompt);
  m.def("told_picture", [](const std::string& class_name, nb::dict parts, nb::dict given, const Tensor& picture) {
    auto pipeline = pipeline_of(class_name, parts);
    const AnyOptions options = pipeline->make_options();
    read(arguments_of(class_name, options.fields(), given), options.fields());
    return pipeline->told_picture(picture, options);
  });
  m.def("adain_filter_latent", &adain_filter_latent);
  m.def("tone_map_latents", &tone_map_latents);
  m.def("parse_weights", [](const std::string& prompt) {
    nb::list out;
    for (auto& part : parse_weights(prompt))
      out.append(
          nb::make_tuple(part.new_chunk ? std::string("BREAK") : part.text, part.new_chunk ? -1.0 : part.weight));
    return out;
  });
  m.def("check_components", [](const std::string& class_name, nb::dict parts) { pipeline_of(class_name, parts); });
  m.def("vae_scale_factor", [](const std::string& class_name, nb::dict parts) {
    return pipeline_of(class_name, parts)->vae_scale_factor();
  });
  m.def("side_multiple",
        [](const std::string& class_name, nb::dict parts) { return pipeline_of(class_name, parts)->side_multiple(); });
  // What a picture of these pixels is resized to before a call, or None
  m.def("picture_size", [](const std::string& class_name, nb::dict parts, int64_t height, int64_t width) -> nb::object {
    const auto size = pipeline_of(class_name, parts)->picture_size(height, width);
    if (!size) return nb::none();
    return nb::make_tuple(size->height, size->width);
  });
  m.def("default_size", [](const std::string& class_name, nb::dict parts) {  // (height, width) in pixels
    auto size = pipeline_of(class_name, parts)->size();
    return nb::make_tuple(size.height, size.width);
  });
  m.def("labels",
        [](const std::string& class_name, nb::dict parts) { return pipeline_of(class_name, parts)->labels(); });
  m.def("get_label_ids", [](const std::string& class_name, nb::dict parts, const std::vector<std::string>& names) {
    return pipeline_of(class_name, parts)->get_label_ids(names);
  });
  m.def("component_row", &component_row, nb::arg("component").none());
  m.def("read_class_name", [](const std::string& folder) { return read_pipeline_index(folder).class_name; });
  m.def("plan", [](const std::string& folder, const std::string& class_name, const std::vector<std::string>& passed,
                   const std::string& variant) {
    return plan_of(plan_pipeline(folder, {.class_name = class_name, .passed = passed, .variant = variant}));
  });
  nb::class_<LoadPlan>(m, "SingleFilePlan")
      .def(nb::new_([](const std::string& path, const std::string& class_name, const std::vector<std::string>& passed,
                       const std::string& config, const std::string& prediction_type, bool extract_ema) {
        nb::gil_scoped_release released;
        return plan_single_file(path, {.class_name = class_name,
                                       .passed = passed,
                                       .config = config,
                                       .file = {.prediction_type = prediction_type, .extract_ema = extract_ema}});
      }))
      .def("steps", &plan_of)
      .def("tokenizer",  // what goes with the file; None for one of a folder
           [](const LoadPlan& plan, const std::string& name) -> std::shared_ptr<tokenizers::Tokenizer> {
             for (auto& c : plan.components)
               if (c.name == name) return std::const_pointer_cast<tokenizers::Tokenizer>(c.tokenizer);
             return nullptr;
           })
      .def_prop_ro(
          "file", [](const LoadPlan& plan) { return plan.file.get(); }, nb::rv_policy::reference_internal);
  m.def("save_index", &save_index);
  m.def(
      "save_single_file",
      [](const std::string& class_name, nb::dict parts, const std::string& path, nb::handle dtype) {
        std::optional<DType> wanted;
        if (!dtype.is_none() && !to_dtype(dtype.ptr(), wanted.emplace()))
          wrong_argument("save_single_file", "torch_dtype", "a dtype", dtype.ptr());
        save_single_file(*pipeline_of(class_name, parts), path, wanted);
      },
      nb::arg("class_name"), nb::arg("parts"), nb::arg("path"), nb::arg("dtype").none());
}

}  // namespace sf::py
