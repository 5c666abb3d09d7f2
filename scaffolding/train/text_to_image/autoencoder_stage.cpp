#include "scaffolding/train/text_to_image/autoencoder_stage.h"

#include <algorithm>
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/autoencoders/autoencoder_kl.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/reconstruction_loss.h"
#include "scaffolding/train/stage_training.h"

namespace sf::train {

namespace {

struct Quality {
  double latent_rms = 0, psnr = 0;
};

// Of icons from all over the data, on white.
Quality measure(const models::AutoencoderKL& vae, Device device, const data::IconDataset& icons, int64_t count) {
  autograd::NoGrad no_grad;
  double squares = 0, error = 0;
  count = std::min(count, icons.size());
  for (int64_t i = 0; i < count; ++i) {
    Tensor x = icons.picture(i * icons.size() / count, data::background_colours()[0].rgb).unsqueeze(0).to(device);
    Tensor z = vae.encode(x).mode();
    squares += mean(square(z)).item();
    error += mean(square(clamp(vae.decode(z), -1, 1) - x)).item();
  }
  return {std::sqrt(squares / double(count)), -10 * std::log10(error / double(count) / 4)};
}

}  // namespace

bool train_autoencoder(const TextToImageRun& run) {
  if (run.done("pipeline/vae/config.json")) return true;
  const AutoencoderRecipe& o = run.recipe.autoencoder;
  manual_seed(uint64_t(run.recipe.seed));
  models::AutoencoderKLConfig config;
  io::read_fields("vae", config.fields(), run.recipe.vae);
  models::AutoencoderKL vae(config);
  load_pretrained(run, "vae", vae);
  run.move(vae);
  StageTraining stage(run, o, "autoencoder", uint64_t(run.recipe.seed), vae, run.pictures());
  stage.options.run.eval_steps = o.checkpointing_steps;
  stage.options.evaluate = [&] {
    return std::map<std::string, double>{{"psnr", measure(vae, run.device, *run.icons, 64).psnr}};
  };
  const bool done =
      stage.train([](data::Batch& batch) { return Tensors{batch.image.contiguous(MemoryFormat::ChannelsLast)}; },
                  [&](const Tensors& in) {
                    const Tensor& x = in[0];
                    auto posterior = vae.encode(x);
                    Tensor loss = reconstruction_loss(vae.decode(posterior.sample()), x, o.edge_weight);
                    return o.kl_weight == 0 ? loss : loss + o.kl_weight * mean(posterior.kl());
                  });
  if (!done) return false;
  vae.eval();
  Quality quality = measure(vae, run.device, *run.icons, 256);
  vae.options.scaling_factor = 1 / quality.latent_rms;  // the noise schedule is made for unit variance
  nn::to(vae, {.device = Device::CPU});
  models::save_model(vae, run.place("pipeline/vae"));
  char text[100];
  std::snprintf(text, sizeof text, "autoencoder: %.1f dB, scaling factor %.3f", quality.psnr,
                vae.options.scaling_factor);
  run.tell(text);
  return true;
}

}  // namespace sf::train
