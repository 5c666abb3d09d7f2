// The first stage: an AutoencoderKLCogVideoX that makes latents of clips, and of the colours of their flow.
#include <algorithm>
#include <cmath>

#include "scaffolding/autograd/mode.h"
#include "scaffolding/models/autoencoders/autoencoder_kl_cogvideox.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/reconstruction_loss.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_video/stage.h"

namespace sf::train {

namespace {

struct Quality {
  double latent_rms = 0, psnr = 0, flow_psnr = 0;
};

double psnr_of(double mean_square) { return -10 * std::log10(mean_square / 4); }

// Of clips from all over the data.
Quality measure(const models::AutoencoderKLCogVideoX& vae, const TextToVideoRun& run, int64_t count) {
  autograd::NoGrad no_grad;
  double squares = 0, error = 0, flow_error = 0;
  const TrainingClips& clips = *run.clips;
  count = std::min(count, clips.size());
  const auto there_and_back = [&](const Tensor& clip, double* latent_squares) {
    const Tensor x = clip.unsqueeze(0).to(run.device);
    const Tensor z = vae.encode(x).mode();
    if (latent_squares) *latent_squares += mean(square(z)).item();
    return mean(square(clamp(vae.decode(z), -1, 1) - x)).item();
  };
  for (int64_t i = 0; i < count; ++i) {
    data::SampleRandom random(uint64_t(run.recipe.seed), uint64_t(i), 0);
    const TrainingClip clip = clips.get(i * clips.size() / count, random);
    error += there_and_back(clip.frames, &squares);
    if (run.recipe.steered()) flow_error += there_and_back(clips.flow(clip), nullptr);
  }
  return {std::sqrt(squares / double(count)), psnr_of(error / double(count)), psnr_of(flow_error / double(count))};
}

std::map<std::string, double> by_name(const Quality& q, bool steered) {
  std::map<std::string, double> out{{"psnr", q.psnr}};
  if (steered) out["flow_psnr"] = q.flow_psnr;
  return out;
}

}  // namespace

bool train_autoencoder(const TextToVideoRun& run) {
  if (run.done("pipeline/vae/config.json")) return true;
  const VideoRecipe& r = run.recipe;
  const ClipAutoencoderRecipe& o = r.autoencoder;
  manual_seed(uint64_t(r.seed));
  models::AutoencoderKLCogVideoXConfig config;
  io::read_fields("vae", config.fields(), r.vae);
  config.sample_height = r.data.height;
  config.sample_width = r.data.width;
  models::AutoencoderKLCogVideoX vae(config);
  load_pretrained(run, "vae", vae);
  run.move(vae);
  StageTraining stage(run, o, "autoencoder", uint64_t(r.seed), vae,
                      std::make_shared<AutoencoderClips>(run.clips, o, r.steered()));
  stage.options.run.eval_steps = o.checkpointing_steps;
  stage.options.evaluate = [&] { return by_name(measure(vae, run, 8), r.steered()); };
  const auto loss_of = [&](const Tensors& in) {
    const Tensor& x = in[0];
    auto posterior = vae.encode(x);
    const Tensor y = vae.decode(posterior.sample());
    const Tensor loss =
        stage.step() < o.square_steps ? square_reconstruction_loss(y, x) : reconstruction_loss(y, x, o.edge_weight);
    return o.kl_weight == 0 ? loss : loss + o.kl_weight * mean(posterior.kl());
  };
  if (!stage.train([](data::Batch& batch) { return Tensors{batch.image}; }, loss_of)) return false;
  vae.eval();
  const Quality quality = measure(vae, run, 32);
  vae.options.scaling_factor = 1 / quality.latent_rms;  // the noise schedule is made for unit variance
  nn::to(vae, {.device = Device::CPU});
  models::save_model(vae, run.place("pipeline/vae"));
  char text[120];
  std::snprintf(text, sizeof text, "autoencoder: %.1f dB, scaling factor %.3f", quality.psnr,
                vae.options.scaling_factor);
  run.tell(text);
  return true;
}

}  // namespace sf::train
