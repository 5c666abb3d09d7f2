#include "scaffolding/diffusion/pipelines/pipeline.h"

#include "scaffolding/backend/cpu/lean_memory.h"
#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/diffusion/pipelines/weight_pages.h"
#include "scaffolding/nn/closest.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

namespace {
ComponentSlots slots_of(const DiffusionPipeline& pipeline) {
  return const_cast<DiffusionPipeline&>(pipeline).components();
}
}  // namespace

Tensor fill_batch(const char* who, const char* what, const Tensor& samples, int64_t batch) {
  int64_t n = samples.size(0);
  if (n >= batch) return samples;
  SF_CHECK(batch % n == 0, who, ": ", n, " of ", what, " cannot be spread over a batch of ", batch);
  return cat(Tensors(size_t(batch / n), samples), 0);
}

void DiffusionPipeline::set_scheduler(Ref<Scheduler> scheduler) {
  for (auto& slot : components())
    if (auto* place = slot.as<Ref<Scheduler>>()) *place = std::move(scheduler);
}

std::vector<int64_t> DiffusionPipeline::get_label_ids(const std::vector<std::string>& names) const {
  const auto all = labels();
  std::vector<std::string> known;
  for (auto& [label, id] : all) known.push_back(label);
  std::vector<int64_t> ids;
  for (auto& wanted : names) {
    auto at = all.find(wanted);
    if (at == all.end()) fail(name(), ": there is no label '", wanted, "'", nn::closest_hint(wanted, known));
    ids.push_back(at->second);
  }
  return ids;
}

std::vector<models::Model*> DiffusionPipeline::native_models() const {
  std::vector<models::Model*> out;
  for (auto& slot : slots_of(*this))
    if (Component* c = slot.network(); c && c->model()) out.push_back(c->model());
  return out;
}

void DiffusionPipeline::to(const nn::ToOptions& options) {
  graphs->clear();
  for (models::Model* model : native_models()) nn::to(*model, options);
}

int64_t DiffusionPipeline::vae_scale_factor() const {
  auto vae = the_autoencoder();
  return vae ? vae->scale_factor() : 8;
}

DiffusionPipeline::Size DiffusionPipeline::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  int64_t h = 64, w = 64;
  io::Object config = the_denoiser()->config();
  if (auto* s = config.find("sample_size")) {
    if (s->is_sequence() && s->items().size() == 2) h = s->items()[0].as_int(), w = s->items()[1].as_int();
    else if (!s->is(io::Object::None)) h = w = s->as_int();
  }
  const int64_t scale = vae_scale_factor();
  return {height.value_or(h * scale), width.value_or(w * scale)};
}

void DiffusionPipeline::check_components() const {
  for (auto& slot : slots_of(*this)) {
    const bool needed = slot.as<Ref<Denoiser>>() || slot.as<Ref<Scheduler>>();
    SF_CHECK(!needed || slot.is_set(), name(), ": has no ", slot.name);
  }
}

void DiffusionPipeline::check_image(const Tensor& image) const {
  auto vae = the_autoencoder();
  check_defined(name(), "image", image);
  SF_CHECK(image.ndim() == 4 && image.numel() > 0 && is_floating(image.dtype()), name(),
           ": image must be [n, channels, height, width], got ", image.shape());
  int64_t latent = vae ? vae->config_int("latent_channels", 4) : 4, seen = vae ? vae->config_int("in_channels", 3) : 3;
  SF_CHECK(image.size(1) == latent || (vae && image.size(1) == seen), name(), ": image must have ", seen,
           " channels, or be latents of ", latent, ", got ", image.shape());
}

void DiffusionPipeline::check_generators(const Generators& generators, int64_t batch) const {
  SF_CHECK(generators.size() < 2 || int64_t(generators.size()) == batch, name(),
           ": a list of generators must have one for each picture, got ", generators.size(), " for ", batch);
}

Tensor DiffusionPipeline::initial_latents(const Scheduler& scheduler, const Tensor& given, const Generators& generator,
                                          const Shape& shape, DType dtype) const {
  const Device device = the_denoiser()->device();
  Tensor noise = given ? given.to(device) : randn_tensor(shape, generator, device, dtype);
  auto fits = [&] {
    return noise.ndim() == int64_t(shape.size()) && noise.size(0) == shape[0] && noise.size(1) == shape[1];
  };
  SF_CHECK(!given || fits(), name(), ": latents must be [", shape[0], ", ", shape[1], ", ",
           shape.size() == 4 ? "h, w" : "frames, h, w", "], got ", noise.shape());
  return noise * scheduler.init_noise_sigma();
}

Tensor DiffusionPipeline::encode_images(const Tensor& images, const Generators& generator, DType dtype) const {
  auto vae = the_autoencoder();
  const Device device = the_denoiser()->device();
  auto latents = [&](const Tensor& t) { return t.to(device).to(dtype); };
  if (images.size(1) == (vae ? vae->config_int("latent_channels", 4) : images.size(1))) return latents(images);
  Tensor x = images.to(vae->device()).to(vae->dtype());
  if (generator.size() < 2) return vae->scaled(latents(vae->encode(x, generator.empty() ? Generator() : generator[0])));
  SF_CHECK(int64_t(generator.size()) >= x.size(0), name(),
           ": a list of generators must have one for each picture, got ", generator.size(), " for ", x.size(0));
  Tensors parts;
  for (int64_t i = 0; i < x.size(0); ++i) parts.push_back(vae->encode(x.narrow(0, i, 1), generator[size_t(i)]));
  return vae->scaled(latents(cat(parts, 0)));
}

Tensor DiffusionPipeline::decoded(const Tensor& latents) const {
  auto vae = the_autoencoder();
  SF_CHECK(vae, name(), ": has no vae to decode latents with; ask for output_type='latent'");
  // Scaled in the latents' dtype, as diffusers does; components may have dtypes and devices of their own.
  Tensor z = vae->unscaled(latents.to(vae->device()));
  cpu::LeanMemory::give_back_much();  // what the denoiser's kernels kept is of no use to the autoencoder's
  return vae->decode(z.to(vae->dtype()));
}

std::unique_ptr<Run> DiffusionPipeline::with_room(const Generators& generators,
                                                  const std::function<std::unique_ptr<Run>()>& made) const {
  if (!placement) return made();
  const Generators drawn = generators.empty() ? Generators{default_generator()} : generators;
  std::vector<std::vector<uint8_t>> states;
  for (auto& g : drawn) states.push_back(g->get_state());
  for (bool again = false;; again = true) {
    try {
      auto run = made();
      if (again) run->say_room_was_made();
      return run;
    } catch (const OutOfMemory&) {
      if (!placement->make_room()) throw;
    }
    for (size_t i = 0; i < drawn.size(); ++i) drawn[i]->set_state(states[i]);
  }
}

void DiffusionPipeline::begin(Run& run, bool capture, bool cache_prompt) const {
  const auto mine = clone();
  run.pipeline_ = mine;
  for (auto& slot : mine->components())  // what was called before the first step is not, until the last one
    if (Component* network = slot.network(); network && !slot.as<Ref<Denoiser>>())
      release_weight_pages(*network, savings.between_phases);
  run.savings_ = savings;
  if (savings.sequential_guidance) run.guidance.mode = GuidanceMode::Sequential;
  if (!run.denoiser) run.denoiser = the_denoiser();
  run.denoiser_ = std::make_shared<DenoiserRun>(run.denoiser, graphs, capture, cache_prompt);
  run.warmup_ =
      std::max<int64_t>(int64_t(run.schedule.size()) - run.schedule.num_inference_steps * run.scheduler->order(), 0);
  if (run.progress_) run.progress_(0, run.schedule.num_inference_steps);
}

void share_components(const DiffusionPipeline& from, DiffusionPipeline& made) {
  const PipelineEntry* entry = find_pipeline(made.name());
  auto have = slots_of(from);
  auto is_there = [](const ComponentSlots& slots, const std::string& name) {
    return std::any_of(slots.begin(), slots.end(), [&](auto& s) { return s.name == name; });
  };
  for (auto& slot : have)
    if (!is_there(made.components(), slot.name)) made.add_slot(slot.name);
  for (auto& slot : made.components()) {
    auto same = std::find_if(have.begin(), have.end(),
                             [&](auto& s) { return s.name == slot.name && s.place.index() == slot.place.index(); });
    if (same != have.end()) {
      std::visit(
          [&](auto* to) {
            if constexpr (!std::is_same_v<decltype(to), Unused*>) *to = *std::get<decltype(to)>(same->place);
          },
          slot.place);
    } else {
      SF_CHECK(slot.is_set() || !entry || entry->is_optional(slot.name), "from_pipe: a ", from.name(), " has no ",
               slot.name, ", which a ", made.name(), " needs");
    }
  }
  made.take_components();
  io::read_fields(made.name(), made.fields(), io::write_fields(const_cast<DiffusionPipeline&>(from).fields()));
  made.advised_guidance_scale = from.advised_guidance_scale;
  made.savings = from.savings, made.placement = from.placement;
  if (made.the_denoiser() == from.the_denoiser()) made.graphs = from.graphs;
}

}  // namespace sf::diffusion
