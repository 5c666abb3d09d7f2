#include "scaffolding/diffusion/pipelines/dit/pipeline_dit.h"

#include <charconv>
#include <cmath>

#include "scaffolding/core/error.h"
#include "scaffolding/diffusion/pipelines/registry.h"
#include "scaffolding/ops/ops.h"

namespace sf::diffusion {

OptionFields DiTOptions::fields() {
  const OptionFields own{
      {"class_labels", &class_labels, "numbers of the classes, one for each picture"},
      {"guidance_scale", &guidance_scale, "how closely to follow the class; on above 1"},
  };
  return own + fields_of_every_call(*this);
}

std::map<std::string, int64_t> DiTPipeline::labels() const {
  std::map<std::string, int64_t> out;
  if (!id2label.is_dict()) return out;
  auto& items = id2label.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string &key = items[i].text(), &names = items[i + 1].text();
    int64_t id = -1;
    auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    SF_CHECK(error == std::errc() && end == key.data() + key.size() && id >= 0, kName,
             ": id2label must have numbers of classes for keys, got '", key, "'");
    for (size_t at = 0; at <= names.size();) {
      const size_t comma = std::min(names.find(',', at), names.size());
      const size_t first = names.find_first_not_of(' ', at), last = names.find_last_not_of(' ', comma ? comma - 1 : 0);
      if (first < comma && last >= first && last != std::string::npos) out[names.substr(first, last + 1 - first)] = id;
      at = comma + 1;
    }
  }
  return out;
}

std::unique_ptr<Run> DiTPipeline::prepare(const DiTOptions& o) const {
  check_components();
  SF_CHECK(vae || o.output_latents, kName, ": has no vae to decode latents with; ask for output_type='latent'");
  const int64_t batch = int64_t(o.class_labels.size()), classes = transformer->config_int("num_embeds_ada_norm", 1000);
  SF_CHECK(batch > 0, kName, ": needs class_labels, one for each picture");
  for (int64_t label : o.class_labels)
    SF_CHECK(label >= 0 && label <= classes, kName, ": class_labels must be between 0 and ", classes,
             ", which is no class, got ", label);
  SF_CHECK(std::isfinite(o.guidance_scale), kName, ": guidance_scale must be finite, got ", o.guidance_scale);
  check_generators(o.generator, batch);

  auto run = std::make_unique<Run>();
  run->guidance = {.scale = o.guidance_scale, .mode = o.guidance_mode};
  run->scheduler = o.scheduler ? o.scheduler : scheduler;
  run->schedule = make_schedule(kName, *run->scheduler,
                                {.num_inference_steps = o.num_inference_steps, .device = transformer->device()});
  run->step_options = step_options(*run->scheduler, 0, o.generator);
  const int64_t channels = transformer->config_int("in_channels", 4), side = transformer->config_int("sample_size", 32);
  run->latents =
      initial_latents(*run->scheduler, o.latents, o.generator, {batch, channels, side, side}, transformer->dtype());
  // The number after the last class stands for none.
  std::vector<int64_t> told(run->guidance.on() ? size_t(batch) : 0, classes);
  told.insert(told.end(), o.class_labels.begin(), o.class_labels.end());
  run->told = {
      {"", {}, ArgumentRole::Sample},
      {"timestep", {}, ArgumentRole::Timestep},
      {"class_labels", tensor(told, {int64_t(told.size())}).to(transformer->device()), ArgumentRole::PerSample}};
  // the rest is a learned variance
  if (transformer->config_int("out_channels", channels) / 2 == channels) run->output_channels = channels;
  run->tensors = {{"latents", &run->latents}};
  return run;
}

SF_PIPELINE(DiTPipeline)
    .family("dit")
    .task(Task::ClassToImage)
    .takes("transformer", "DiTTransformer2DModel")
    .call(
        "class_labels, guidance_scale, generator, num_inference_steps, output_type, return_dict, latents, "
        "guidance_mode, callback_on_step_end, "
        "callback_on_step_end_tensor_inputs")
    .callbacks("latents")
    .doc("Pictures of classes with DiT.");

}  // namespace sf::diffusion
