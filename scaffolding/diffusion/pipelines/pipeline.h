// DiffusionPipeline: networks, tokenizers and a scheduler that together turn prompts, labels or pictures into pictures;
// diffusers' classes and arguments. A call draws from the CPU generator as diffusers does, so that the same seed gives
// the same picture. Calls run without recording gradients.
//
//   struct DiTOptions { std::vector<int64_t> class_labels; ...; OptionFields fields(); };
//   struct DiTPipeline : PipelineOf<DiTPipeline, DiTOptions> {
//     static constexpr const char* kName = "DiTPipeline";
//     Ref<Denoiser> transformer;
//     Ref<Autoencoder> vae;
//     Ref<Scheduler> scheduler;
//     SF_COMPONENTS(transformer, vae, scheduler)
//     std::unique_ptr<Run> prepare(const DiTOptions& options) const;  // from the checks to the noise
//   };
//   SF_PIPELINE(DiTPipeline).family("dit").task(Task::ClassToImage).call("class_labels, ...");  // .cpp: registry.h
//
// Copies share their components; one call at a time for those.
#pragma once
#include "scaffolding/autograd/mode.h"
#include "scaffolding/core/release_threads.h"
#include "scaffolding/diffusion/pipelines/component_slots.h"
#include "scaffolding/diffusion/pipelines/denoiser_graphs.h"
#include "scaffolding/diffusion/pipelines/option_fields.h"
#include "scaffolding/diffusion/pipelines/run.h"

namespace sf::diffusion {

struct LoadPipelineOptions;

class DiffusionPipeline {
 public:
  virtual ~DiffusionPipeline() = default;
  virtual const char* name() const = 0;  // diffusers' class name
  virtual ComponentSlots components() = 0;
  // Of a pipeline one of whose components may be several networks, place for one more: "controlnet_1". False where it
  // has no such component, or another one comes next.
  virtual bool add_slot(const std::string& /*name*/) { return false; }
  // the other entries of model_index.json, as diffusers' constructor has them
  virtual io::Fields fields() { return {}; }
  // Its components are there, from files or another pipeline's: what diffusers' constructor makes of them.
  virtual void take_components() {}
  virtual std::shared_ptr<DiffusionPipeline> clone() const = 0;
  virtual AnyOptions make_options() const = 0;
  // A run of it, before its first step. ValueError for options that contradict each other or do not fit the components.
  virtual std::unique_ptr<Run> start(const AnyOptions& options) const = 0;
  // What prompts are encoded to, under the names of the options that take it; empty where there are no prompts.
  virtual std::vector<std::pair<std::string, Tensor>> encoded_prompt(const AnyOptions&) const { return {}; }

  // Of a pipeline whose calls take numbers of classes: the classes' numbers by their names.
  virtual std::map<std::string, int64_t> labels() const { return {}; }
  // ValueError naming the closest one for a name that is not there.
  std::vector<int64_t> get_label_ids(const std::vector<std::string>& names) const;

  // Its parts by what they are; null where it has none of the kind, or that one is absent.
  Ref<Denoiser> the_denoiser() const { return first<Ref<Denoiser>>(); }
  Ref<Autoencoder> the_autoencoder() const { return first<Ref<Autoencoder>>(); }
  Ref<Scheduler> the_scheduler() const { return first<Ref<Scheduler>>(); }
  void set_scheduler(Ref<Scheduler> scheduler);

  int64_t vae_scale_factor() const;  // pixels for each latent
  // Pixels by which sides of pictures must be divisible: more where the denoiser takes patches of latents.
  virtual int64_t side_multiple() const { return vae_scale_factor(); }
  struct Size {
    int64_t height, width;  // pixels
  };
  // What a picture of this size is resized to before a call, where the result has a size of its own; absent: the
  // result is as large as the picture.
  virtual std::optional<Size> picture_size(int64_t /*height*/, int64_t /*width*/) const { return {}; }
  // A picture uint8 [3, H, W] as calls want it, before it is resized: with what was done to those of the training.
  virtual Tensor told_picture(const Tensor& picture, const AnyOptions&) const { return picture; }
  virtual const char* picture_resample() const { return "lanczos"; }  // how it is resized then: data::filter's names
  // What was asked for, or what the denoiser was trained on.
  virtual Size size(std::optional<int64_t> height = {}, std::optional<int64_t> width = {}) const;
  virtual Tensor decoded(const Tensor& latents) const;  // to what the autoencoder makes of them: values about -1 to 1
  void to(const nn::ToOptions& options);                // every C++ model that it has
  // The C++ models that it has, in the order of its components.
  std::vector<models::Model*> native_models() const;

  // what the model's makers advise, for programs to begin with; calls take their own argument
  std::optional<double> advised_guidance_scale;
  RunSavings savings;                    // of all runs from now on
  std::shared_ptr<Placement> placement;  // a memory plan's, where one put the networks
  // Shared by pipelines of the same denoiser.
  Ref<DenoiserGraphs> graphs = no_graphs_yet();

 protected:
  // ValueError naming a component that is needed and absent.
  void check_components() const;
  void check_image(const Tensor& image) const;
  void check_generators(const Generators& generators, int64_t batch) const;
  // Noise [batch, channels, ...] or the caller's latents of that batch and channels, as strong as the scheduler begins.
  Tensor initial_latents(const Scheduler& scheduler, const Tensor& given, const Generators& generator,
                         const Shape& shape, DType dtype) const;
  // images[n, 3, H, W] in [-1, 1] to latents, each drawn by its own generator where there is a list of them. Latents
  // come back as they are.
  Tensor encode_images(const Tensor& images, const Generators& generator, DType dtype) const;

  // made(), and again where memory ran out and room could be made. What it drew, from these generators or the default
  // one, it draws again.
  std::unique_ptr<Run> with_room(const Generators& generators, const std::function<std::unique_ptr<Run>()>& made) const;

  template <class O> void begin(Run& run, const O& options) const {
    run.callback_ = options.callback_on_step_end, run.progress_ = options.progress, run.stop_ = options.stop;
    run.output_latents = options.output_latents;
    begin(run, options.capture, options.cache_prompt);
  }

 private:
  void begin(Run& run, bool capture, bool cache_prompt) const;
  template <class T> T first() const {
    for (auto& slot : const_cast<DiffusionPipeline*>(this)->components())
      if (auto* place = slot.as<T>()) return *place;
    return {};
  }
};

// The part of a pipeline class that follows from its options. Base: DiffusionPipeline, or what the classes of a family
// share.
template <class Self, class O, class Base = DiffusionPipeline> class PipelineOf : public Base {
 public:
  using Options = O;
  using Base::Base;
  const char* name() const override { return Self::kName; }
  std::shared_ptr<DiffusionPipeline> clone() const override { return std::make_shared<Self>(self()); }
  AnyOptions make_options() const override { return AnyOptions::of<O>(); }

  std::unique_ptr<Run> start(const O& options) const {
    autograd::NoGrad no_grad;
    return this->with_room(options.generator, [&] {
      std::unique_ptr<Run> run = self().prepare(options);
      this->begin(*run, options);
      return run;
    });
  }
  std::unique_ptr<Run> start(const AnyOptions& options) const override { return start(options.as<O>()); }
  std::vector<std::pair<std::string, Tensor>> encoded_prompt(const AnyOptions& options) const override {
    if constexpr (requires { self().prompt_tensors(options.as<O>()); }) {
      autograd::NoGrad no_grad;
      return self().prompt_tensors(options.as<O>());
    } else {
      return Base::encoded_prompt(options);
    }
  }

  // ValueError for options that contradict each other or do not fit the components; Stopped.
  PipelineOutput operator()(const O& options) const {
    std::unique_ptr<Run> run = start(options);
    while (!run->done()) run->step();
    PipelineOutput out = run->finish();
    release_threads();  // the next call may come from another thread
    return out;
  }

  // A folder, or a repository of the hub: see load_pipeline (pipeline_files.h).
  static Self from_pretrained(const std::string& folder, const LoadPipelineOptions& options);
  static Self from_pretrained(const std::string& folder);

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

// `made` around another pipeline's components of the same names, which are shared, and its other entries of
// model_index.json. ValueError naming a component that it needs and the other has not.
void share_components(const DiffusionPipeline& from, DiffusionPipeline& made);
template <class P> P from_pipe(const DiffusionPipeline& pipeline) {
  P made;
  share_components(pipeline, made);
  return made;
}

// samples[n, ...] as often as they fit into a batch, all of them in turn. ValueError where they do not.
Tensor fill_batch(const char* who, const char* what, const Tensor& samples, int64_t batch);

}  // namespace sf::diffusion
