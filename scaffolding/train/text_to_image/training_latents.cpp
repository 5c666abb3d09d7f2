#include "scaffolding/train/text_to_image/training_latents.h"

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/copy/pinned.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/text_to_image/cached_latents.h"

namespace sf::train {

TrainingLatents::TrainingLatents(const TextToImageRun& run) : device_(run.device) {
  if (!run.composed) {
    auto cached = std::make_shared<CachedLatents>(run.icons, run.place("latents.safetensors"));
    channels_ = cached->channels();
    side_ = cached->side();
    dataset_ = std::move(cached);
    return;
  }
  dataset_ = run.composed;
  model_ = models::load_model(run.place("pipeline/vae"));
  auto& vae = dynamic_cast<models::AutoencoderKL&>(*model_);
  run.move(vae);
  vae.eval();
  vae_ = &vae;
  data::Batch one;
  one.image = zeros({1, 3, run.recipe.icons.size, run.recipe.icons.size});
  const Tensor latent = of(one);
  channels_ = latent.size(1);
  side_ = latent.size(3);
}

Tensor TrainingLatents::of(const data::Batch& batch) const {
  autograd::NoGrad no_grad;
  // From pinned memory: the host does not wait for the step before, and prepares this one meanwhile.
  const Tensor given = device_.is_cuda() ? to_device(pin_memory(batch.image), device_, true) : batch.image;
  if (!vae_) return given;
  const Tensor pictures = given.contiguous(MemoryFormat::ChannelsLast);
  return (vae_->encode(pictures).mode() * vae_->options.scaling_factor).to(kFloat32).contiguous();
}

}  // namespace sf::train
