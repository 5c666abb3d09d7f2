#include "scaffolding/diffusion/pipelines/unconditional/unconditional.h"

#include "scaffolding/core/error.h"

namespace sf::diffusion {

OptionFields UnconditionalOptions::fields() {
  const OptionFields own{
      {"batch_size", &batch_size, "pictures"},
      {"num_inference_steps", &num_inference_steps, "steps of the scheduler: more take longer"},
  };
  return own + fields_of_every_run(*this);
}

DiffusionPipeline::Size UnconditionalPipeline::size(std::optional<int64_t> height, std::optional<int64_t> width) const {
  const io::Object config = unet->config();
  const io::Object* sample = config.find("sample_size");
  SF_CHECK(sample && !sample->is(io::Object::None), name(), ": the unet's config needs a sample_size");
  const auto sides = io::ints_for_blocks(name(), "sample_size", *sample, 2);
  return {height.value_or(sides[0]), width.value_or(sides[1])};
}

std::unique_ptr<Run> UnconditionalPipeline::from_noise(const UnconditionalOptions& o, double eta) const {
  check_components();
  SF_CHECK(o.batch_size > 0, name(), ": batch_size must be positive, got ", o.batch_size);
  check_generators(o.generator, o.batch_size);
  auto run = std::make_unique<Run>();
  run->guidance = {.scale = 1};
  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  run->schedule =
      make_schedule(name(), *run->scheduler, {.num_inference_steps = o.num_inference_steps, .device = unet->device()});
  const auto [height, width] = size();
  run->latents = initial_latents(*run->scheduler, o.latents, o.generator,
                                 {o.batch_size, unet->config_int("in_channels", 3), height, width}, unet->dtype());
  run->step_options = step_options(*run->scheduler, eta, o.generator);
  run->told = {{"", {}, ArgumentRole::Sample}, {"timestep", {}, ArgumentRole::Timestep}};
  run->tensors = {{"latents", &run->latents}};
  return run;
}

}  // namespace sf::diffusion
