// The last stages: cached latents, and a transformer that is trained on them together with the text encoder.
#include <cmath>

#include "scaffolding/diffusion/pipelines/cogvideox/training.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/tokenizers/pretrained.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_video/cached_clips.h"
#include "scaffolding/train/text_to_video/sample_clips.h"

namespace sf::train {

namespace {

std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const TextToVideoRun& run) {
  const std::string folder = run.place("pipeline/tokenizer");
  return tokenizers::load_tokenizer(tokenizers::tokenizer_class_of(folder), folder);
}

TextToVideoModel make_model(const TextToVideoRun& run, const tokenizers::Tokenizer& tokenizer) {
  TextToVideoModel model(std::make_shared<models::T5EncoderModel>(text_encoder_config(run.recipe, tokenizer)),
                         make_transformer(run.recipe));
  auto before = models::load_model(run.place("pipeline/text_encoder"));
  auto weights = nn::state_dict(*before);
  nn::load_state_dict(*model.text_encoder, {weights.begin(), weights.end()});
  // Tora's training begins with CogVideoX's weights.
  load_pretrained(run, "transformer", *model.transformer, {"traj_extractor.", "fuser."});
  if (run.recipe.denoiser.text_learning_rate == 0)
    for (Tensor p : nn::parameters(*model.text_encoder)) p.requires_grad_(false);
  return model;
}

Tensors trained(nn::Module& m) {
  Tensors out;
  for (const Tensor& p : nn::parameters(m))
    if (p.requires_grad()) out.push_back(p);
  return out;
}

// The part of clips that a step sees: so many latents in succession, from anywhere.
struct SeenPart {
  int64_t first, frames, of;
  SeenPart(int64_t all, std::optional<int64_t> wanted) : frames(wanted.value_or(all)), of(all) {
    first = frames == of ? 0 : int64_t(randint(0, of - frames + 1, {1}, Generator(), kInt64, Device::CPU).item());
  }
  Tensor clips(const Tensor& all) const { return all.narrow(1, first, frames); }  // [B, T, C, h, w]
  Tensor positions(const Tensor& all) const {                                     // [2, T * tokens of a frame, D]
    const int64_t each = all.size(1) / of;
    return all.narrow(1, first * each, frames * each);
  }
};

}  // namespace

bool cache_latents(const TextToVideoRun& run) {
  if (run.done("latents/rows.json")) return true;
  auto model = models::load_model(run.place("pipeline/vae"));
  auto& vae = dynamic_cast<models::AutoencoderKLCogVideoX&>(*model);
  models::AutoencoderKLCogVideoXConfig wanted;
  io::read_fields("vae", wanted.fields(), run.recipe.vae);
  const auto check = [](const char* field, int64_t got, int64_t expected) {
    SF_CHECK(got == expected, "train: the run's autoencoder has ", field, " ", got, " and the recipe's vae ", expected,
             "; write the configs of the pretrained pipeline into the recipe");
  };
  check("latent_channels", vae.options.latent_channels, wanted.latent_channels);
  check("temporal_compression_ratio", vae.options.temporal_compression_ratio, wanted.temporal_compression_ratio);
  check("levels in block_out_channels", int64_t(vae.options.block_out_channels.size()),
        int64_t(wanted.block_out_channels.size()));
  run.move(vae);
  run.tell("latents of " + std::to_string(run.recipe.denoiser.clips) + " clips of each of " +
           std::to_string(run.clips->size()));
  return CachedClips::write(run, vae, *tokenizer_of(run));
}

bool train_denoiser(const TextToVideoRun& run) {
  if (run.done("pipeline/model_index.json")) return true;
  const ClipDenoiserRecipe& o = run.recipe.denoiser;
  const uint64_t seed = uint64_t(run.recipe.seed) + 1;
  auto tokenizer = tokenizer_of(run);
  manual_seed(seed);
  TextToVideoModel model = make_model(run, *tokenizer);
  run.move(model);
  auto scheduler = recipe_scheduler(run.recipe.scheduler);
  auto clips = std::make_shared<CachedClips>(run);
  std::vector<StageTraining::Group> groups{{trained(*model.transformer), o.learning_rate}};
  if (o.text_learning_rate > 0) groups.push_back({trained(*model.text_encoder), o.text_learning_rate});
  StageTraining stage(run, o, "denoiser", seed, model, clips, std::move(groups));
  const diffusion::TrainingOptions objective = o.objective();
  const auto unsteered = int64_t(std::lround(o.trajectory_dropout * double(o.batch_size)));
  const Tensor clip = clips->clip(0).unsqueeze(0).to(run.device);
  const Tensor positions = diffusion::rotary_positions_of(*model.transformer, clip);
  SampleClips samples(run, tokenizer);
  stage.options.on_step_end = [&](Trainer& trainer) {
    if (trainer.step() % o.sample_steps == 0) stage.with_averages([&] { samples.write(model, trainer.step()); });
  };
  const bool done = stage.train(
      [&](data::Batch& batch) {
        const bool whole = stage.step() >= o.max_steps - o.whole_steps;
        const SeenPart part(clip.size(1), whole ? std::nullopt : o.latent_frames);
        auto todo = diffusion::training_batch(*scheduler, part.clips(batch.image), objective);
        Tensors inputs{clips->ids(batch.index, todo.dropped), todo.noisy_latents, todo.timesteps, todo.target};
        if (positions) inputs.push_back(part.positions(positions));
        if (batch.target) inputs.push_back(part.clips(batch.target));
        if (todo.weights) inputs.push_back(todo.weights);
        return inputs;
      },
      [&, steered = clips->has_flow()](const Tensors& in) {
        size_t next = 4;
        const auto further = [&](bool there) { return there && next < in.size() ? in[next++] : Tensor(); };
        const Tensor text = (*model.text_encoder)(in[0])[0], places = further(bool(positions)), flow = further(steered);
        return diffusion::training_loss(model.predict(in[1], in[2], text, flow, unsteered, places),
                                        {.target = in[3], .weights = further(true)});
      });
  if (!done) return false;
  samples.write(model, stage.step());
  samples.save_pipeline(model);
  return true;
}

}  // namespace sf::train
