#include "scaffolding/diffusion/memory/activations.h"

#include <algorithm>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/backend/meta_memory.h"
#include "scaffolding/core/default_device.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/clip_frames.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/diffusion/pipelines/stacked_states.h"
#include "scaffolding/models/parts/lora.h"
#include "scaffolding/nn/half_weights.h"
#include "scaffolding/nn/quantized.h"
#include "scaffolding/nn/quantized_conv.h"
#include "scaffolding/nn/quantized_gguf.h"
#include "scaffolding/nn/quantized_rows.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {

const Device kMeta(Device::Meta);

void leave_memory(std::initializer_list<Tensor*> tensors) {
  for (Tensor* t : tensors)
    if (*t) *t = t->detach().to(kMeta);
}
void leave_memory(nn::LinearNF4& l) { leave_memory({&l.weight, &l.absmax, &l.nested_absmax, &l.offset, &l.bias}); }
void leave_memory(nn::LinearFP8& l) { leave_memory({&l.weight, &l.scale, &l.bias}); }
void leave_memory(nn::LinearFP4& l) { leave_memory({&l.weight, &l.absmax, &l.nested_absmax, &l.offset, &l.bias}); }
void leave_memory(nn::LinearInt8& l) { leave_memory({&l.weight, &l.SCB, &l.bias}); }
void leave_memory(nn::LinearGGUF& l) { leave_memory({&l.weight, &l.bias}); }
void leave_memory(nn::Conv2dGGUF& l) { leave_memory({&l.blocks, &l.bias}); }
void leave_memory(nn::Conv2dInt8& l) { leave_memory({&l.codes, &l.SCB, &l.bias}); }
void leave_memory(nn::LinearHalf& l) { leave_memory({&l.weight, &l.bias}); }
void leave_memory(nn::Conv2dHalf& l) { leave_memory({&l.narrow, &l.bias}); }
void leave_memory(nn::EmbeddingHalf& l) { leave_memory({&l.weight, &l.like}); }
void leave_memory(nn::EmbeddingGGUF& l) { leave_memory({&l.weight, &l.like}); }

// A quantised layer as it is in `real`, without memory, in the place of its namesake.
template <class Layer> void quantise(nn::Module& layer, nn::Module& real) {
  auto* quantised = dynamic_cast<Layer*>(&real);
  if (!quantised) return;
  auto same = std::make_shared<Layer>(*quantised);
  leave_memory(*same);
  same->eval();
  layer.replace_by([same] { return same.get(); });
}

// What quantised layers and LoRAs take besides is counted with the layers that they stand for.
void take_layers_over(models::Model& made, models::Model& real) {
  std::map<std::string, nn::Module*> layers;
  for (auto& m : nn::named_modules(made)) layers.emplace(m.name, m.module);
  for (auto& m : nn::named_modules(real)) {
    auto at = layers.find(m.name);
    if (at == layers.end()) continue;
    quantise<nn::LinearNF4>(*at->second, *m.module);
    quantise<nn::LinearFP8>(*at->second, *m.module);
    quantise<nn::LinearFP4>(*at->second, *m.module);
    quantise<nn::LinearInt8>(*at->second, *m.module);
    quantise<nn::LinearGGUF>(*at->second, *m.module);
    quantise<nn::Conv2dGGUF>(*at->second, *m.module);
    quantise<nn::Conv2dInt8>(*at->second, *m.module);
    quantise<nn::EmbeddingGGUF>(*at->second, *m.module);
    quantise<nn::LinearHalf>(*at->second, *m.module);
    quantise<nn::Conv2dHalf>(*at->second, *m.module);
    quantise<nn::EmbeddingHalf>(*at->second, *m.module);
    auto lora = std::dynamic_pointer_cast<const models::LoraPath>(m.module->adapter());
    if (!lora) continue;
    nn::Module& present = *at->second->present();
    const models::LoraTerm term{.down = lora->down.to(kMeta), .up = lora->up.to(kMeta), .scale = lora->scale};
    present.adapt(std::make_shared<models::LoraPath>(present, std::vector{term}, lora->down.dtype(), kMeta));
  }
}

// The same network without memory: its config, and the dtypes of its weights where it has them as they are; before
// they are quantised, those are of the network's dtype.
std::shared_ptr<models::Model> meta_model_of(const std::string& name, Component& component, nn::Module* module) {
  models::Model* model = component.model() ? component.model() : dynamic_cast<models::Model*>(module);
  SF_CHECK_AS(NotSupported, model && models::find_model(model->type()), "memory_plan: ", name,
              " is no C++ model, so that its activations cannot be counted");
  DefaultDevice nowhere(kMeta);
  std::shared_ptr<models::Model> made = models::make_model(model->type(), model->config());
  std::map<std::string, DType> dtypes;
  for (auto& [key, t] : nn::state_dict(*model)) dtypes.emplace(key, t.dtype());
  std::map<std::string, Tensor> state;
  for (auto& [key, t] : nn::state_dict(*made)) {
    auto of = dtypes.find(key);
    const DType dtype = !is_floating(t.dtype())                         ? t.dtype()
                        : of != dtypes.end() && is_floating(of->second) ? of->second
                                                                        : component.dtype();
    state.emplace(key, empty(t.shape(), dtype, kMeta));
  }
  nn::load_state_dict(*made, state, {.strict = true, .assign = true});
  take_layers_over(*made, *model);
  made->eval();
  return made;
}

Tensor there(const Tensor& t) { return t ? t.to(kMeta) : t; }
DenoiserCall there(const DenoiserCall& call) {
  DenoiserCall on_meta;
  for (auto& a : call)
    on_meta.push_back({a.name, a.role == ArgumentRole::Setting ? a.tensor : there(a.tensor), a.role});
  return on_meta;
}
// What a meta tensor would be, for the pipeline to go on with on the host.
Tensor back(const Tensor& t) { return t ? zeros(t.shape(), t.dtype(), Device()) : t; }

// A network on Device::Meta whose calls are counted, and which says of itself that it is on the host.
template <class Interface> class Counted : public Interface {
 public:
  Counted(const std::string& name, Component& real, nn::Module* module, Device stands_for) : memory_(stands_for) {
    MetaMemory::Counting counting(memory_);
    network_ = component<Interface>(name, meta_model_of(name, real, module));
    reset();
  }
  io::Object config() override { return network_->config(); }
  DType dtype() override { return network_->dtype(); }
  Device device() override { return Device(); }

  // beside what there was at the last reset: weights, and what an earlier run kept and dropped uncounted
  int64_t peak() const { return memory_.peak() - before_; }
  void reset() { memory_.reset_peak(), before_ = memory_.live(); }

 protected:
  Ref<Interface> network_;
  MetaMemory memory_;
  int64_t before_ = 0;
};

class CountedDenoiser final : public Counted<Denoiser> {
 public:
  using Counted::Counted;
  Tensor predict(const DenoiserCall& call) override { return outputs(call).at(0); }
  Tensors outputs(const DenoiserCall& call) override {
    MetaMemory::Counting counting(memory_);
    Tensors out = network_->outputs(there(call));
    for (auto& t : out) t = back(t);
    return out;
  }
};

class CountedNetwork final : public Counted<Network> {
 public:
  using Counted::Counted;
  Tensors call(const DenoiserCall& call) override {
    MetaMemory::Counting counting(memory_);
    Tensors out = network_->call(there(call));
    for (auto& t : out) t = back(t);
    return out;
  }
};

class CountedTextEncoder final : public Counted<TextEncoder>, public StacksStates {
 public:
  using Counted::Counted;
  Output encode(const Tensor& ids, const Tensor& mask) override {
    MetaMemory::Counting counting(memory_);
    Output out = network_->encode(there(ids), there(mask));
    Output result{back(out.last_hidden_state), back(out.text_embeds), back(out.pooler_output), {}};
    for (auto& h : out.hidden_states) result.hidden_states.push_back(back(h));
    return result;
  }
  Tensor stacked_hidden_states(const Tensor& ids, const Tensor& mask) override {
    MetaMemory::Counting counting(memory_);
    return back(diffusion::stacked_hidden_states(*network_, there(ids), there(mask)));
  }
  Tensor final_layer_norm(const Tensor& x) override {
    MetaMemory::Counting counting(memory_);
    return back(network_->final_layer_norm(there(x)));
  }
};

class CountedAutoencoder final : public Counted<Autoencoder> {
 public:
  using Counted::Counted;
  Tensor encode(const Tensor& images, const Generator&) override {
    MetaMemory::Counting counting(memory_);
    return back(network_->encode(there(images), Generator()));
  }
  Tensor decode(const Tensor& latents) override {
    MetaMemory::Counting counting(memory_);
    return back(network_->decode(there(latents)));
  }
  void tell_timestep(const Tensor& timestep) override { network_->tell_timestep(there(timestep)); }
  int64_t scale_factor() override { return network_->scale_factor(); }
  int64_t frames_per_latent() override { return network_->frames_per_latent(); }
  LatentRange latent_range() override {
    const LatentRange range = network_->latent_range();
    return {back(range.mean), back(range.std)};
  }
  // What is made of the parts, which stay on Device::Meta, is counted too.
  void decode_in_parts(const Tensor& latents, const models::TakeVideoPart& take) override {
    MetaMemory::Counting counting(memory_);
    network_->decode_in_parts(there(latents), take);
  }
  std::shared_ptr<void> widened(DType dtype) override { return network_->widened(dtype); }
  void save(Savings s) override { network_->save(s); }
};

// Options of the same values, but for what calls others and what draws.
AnyOptions copied(const DiffusionPipeline& pipeline, const AnyOptions& from) {
  AnyOptions to = pipeline.make_options();
  for (auto& field : to.fields()) {
    const OptionField* given = from.find(field.name);
    if (!given) continue;
    std::visit(
        [&](auto& place) {
          using P = std::decay_t<decltype(place)>;
          auto* source = std::get_if<P>(&given->place);
          if (!source) return;
          if constexpr (std::is_same_v<P, ChoiceField>) place.set(place.place, source->get(source->place));
          else if constexpr (!std::is_same_v<P, StepCallback*> && !std::is_same_v<P, StepProgress*> &&
                             !std::is_same_v<P, std::stop_token*>)
            *place = **source;
        },
        const_cast<OptionPlace&>(field.place));
  }
  Generator own = make_generator();
  own->manual_seed(0);
  to.at<Generators>("generator") = {own};
  return to;
}

void set_choice(const AnyOptions& options, const char* name, std::string_view value) {
  auto* field = options.find(name);
  auto* choice = field ? std::get_if<ChoiceField>(&field->place) : nullptr;
  if (choice) choice->set(choice->place, value);
}

// Its own class keeps the run's place; one that is not C++'s is counted as any other.
std::shared_ptr<Scheduler> scheduler_like(Scheduler& scheduler) {
  const auto names = scheduler_names();
  const bool known = std::find(names.begin(), names.end(), scheduler.name()) != names.end();
  return known ? fresh_scheduler(scheduler) : make_scheduler("DDIMScheduler", io::Object::container(io::Object::Dict));
}

struct CountedParts {
  std::shared_ptr<DiffusionPipeline> pipeline;
  std::map<std::string, std::shared_ptr<CountedTextEncoder>> text;
  std::map<std::string, std::shared_ptr<CountedNetwork>> others;
  std::map<std::string, std::shared_ptr<CountedAutoencoder>> of_sound;
  std::shared_ptr<CountedDenoiser> denoiser;
  std::vector<std::shared_ptr<CountedDenoiser>> beside;  // networks that are asked before it in each step
  std::shared_ptr<CountedAutoencoder> vae;
};

CountedParts counted(const DiffusionPipeline& pipeline, Device device, const NetworkModules& modules) {
  CountedParts out{.pipeline = pipeline.clone()};
  out.pipeline->graphs = std::make_shared<DenoiserGraphs>();
  for (auto& slot : out.pipeline->components()) {
    if (!slot.is_set()) continue;
    auto at = modules.find(slot.name);
    nn::Module* module = at == modules.end() ? nullptr : at->second;
    if (auto* d = slot.as<Ref<Denoiser>>()) {
      auto counted = std::make_shared<CountedDenoiser>(slot.name, **d, module, device);
      if (!out.denoiser) out.denoiser = counted;
      else out.beside.push_back(counted);
      *d = counted;
    } else if (auto* a = slot.as<Ref<Autoencoder>>()) {
      auto counted = std::make_shared<CountedAutoencoder>(slot.name, **a, module, device);
      if (!out.vae) out.vae = counted;
      else out.of_sound[slot.name] = counted;
      *a = counted;
    } else if (auto* n = slot.as<Ref<Network>>())
      *n = out.others[slot.name] = std::make_shared<CountedNetwork>(slot.name, **n, module, device);
    else if (auto* t = slot.as<Ref<TextEncoder>>())
      *t = out.text[slot.name] = std::make_shared<CountedTextEncoder>(slot.name, **t, module, device);
    else if (auto* s = slot.as<Ref<Scheduler>>()) *s = scheduler_like(**s);
  }
  return out;
}

}  // namespace

AnyOptions options_for_shape(const DiffusionPipeline& pipeline, const CallShape& shape) {
  SF_CHECK(shape.batch >= 1, "memory_plan: batch must be at least 1, got ", shape.batch);
  AnyOptions options = pipeline.make_options();
  const auto [height, width] = pipeline.size(shape.height, shape.width);
  for (auto& field : options.fields()) {
    const std::string_view name = field.name;
    if (auto* size = std::get_if<std::optional<int64_t>*>(&field.place)) {
      if (name == "height") **size = height;
      if (name == "width") **size = width;
      if (name == "num_frames") **size = shape.frames;
    } else if (auto* texts = std::get_if<std::vector<std::string>*>(&field.place)) {
      if (name == "prompt") (*texts)->assign(size_t(shape.batch), "");
      if (name == "trajectory") (*texts)->assign(1, "0,0 1,1");  // steering takes memory too, wherever things go
    } else if (auto* count = std::get_if<int64_t*>(&field.place)) {
      if (name == "batch_size") **count = shape.batch;
    } else if (auto* classes = std::get_if<std::vector<int64_t>*>(&field.place)) {
      (*classes)->assign(size_t(shape.batch), 0);
    } else if (auto* seen = std::get_if<Tensors*>(&field.place); seen && field.role == OptionRole::Control) {
      for (auto& slot : const_cast<DiffusionPipeline&>(pipeline).components()) {
        auto* d = slot.as<Ref<Denoiser>>();
        if (d && *d && *d != pipeline.the_denoiser())
          (*seen)->push_back(zeros({1, (*d)->config_int("conditioning_channels", 3), height, width}));
      }
    } else if (auto* picture = std::get_if<Tensor*>(&field.place); picture && field.role != OptionRole::Plain) {
      const bool mask = field.role == OptionRole::Mask;
      **picture = zeros({1, mask ? 1 : 3, height, width}).expand({shape.batch, mask ? 1 : 3, height, width});
    }
  }
  return options;
}

Activations count_activations(const DiffusionPipeline& pipeline, const AnyOptions& options, Device device,
                              const NetworkModules& modules) {
  autograd::NoGrad no_grad;
  CountedParts parts = counted(pipeline, device, modules);
  Activations out;
  SF_CHECK(parts.denoiser, pipeline.name(), ": has no denoiser");
  AnyOptions call = copied(pipeline, options);
  Tensor latents;
  auto step = [&](GuidanceMode mode) {
    set_choice(call, "guidance_mode", name_of(mode));
    parts.denoiser->reset();
    for (auto& network : parts.beside) network->reset();
    auto run = parts.pipeline->start(call);
    run->step();
    latents = run->decodable(run->latents);
    run->sound();
    // they come one after the other; what one gives is counted with the one that takes it
    int64_t peak = parts.denoiser->peak();
    for (auto& network : parts.beside) peak = std::max(peak, network->peak());
    return peak;
  };
  out.batched = step(GuidanceMode::Batched);
  for (auto& [name, encoder] : parts.text) out.text[name] = encoder->peak();
  for (auto& [name, network] : parts.others) out.text[name] = network->peak();
  for (auto& [name, vae] : parts.of_sound) out.text[name] = vae->peak();
  if (parts.vae) {
    out.encode = parts.vae->peak();
    const PipelineEntry* entry = find_pipeline(pipeline.name());
    const bool clips = entry && makes_clips(entry->its_task);
    auto decoding = [&](Autoencoder::Savings savings) {
      parts.vae->save(savings);
      parts.vae->reset();
      if (clips) {
        ClipFrames frames;
        decode_in_parts(*parts.pipeline, latents, [&](const models::VideoPart& part) { frames.take(part); });
        return parts.vae->peak();
      }
      const Tensor values = parts.pipeline->decoded(latents);
      out.pixels = 5 * values.numel() * int64_t(size_of(kFloat32));  // of Run::finish, whose steps live at once
      return parts.vae->peak();
    };
    out.decode = decoding({});
    out.decode_sliced = decoding({.slicing = true});
    out.decode_tiled = decoding({.slicing = true, .tiling = true, .tile = kPlannedTile});
    parts.vae->reset();
  }
  out.sequential = step(GuidanceMode::Sequential);
  if (parts.vae) out.encode_tiled = parts.vae->peak();  // the autoencoder is still in slices and tiles
  return out;
}

}  // namespace sf::diffusion
