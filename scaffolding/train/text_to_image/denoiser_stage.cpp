#include "scaffolding/train/text_to_image/denoiser_stage.h"

#include "scaffolding/diffusion/training.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/nn/state_dict.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/interrupt.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_image/cached_latents.h"
#include "scaffolding/train/text_to_image/sample_grid.h"
#include "scaffolding/train/text_to_image/text_encoder_stage.h"
#include "scaffolding/train/text_to_image/training_latents.h"

namespace sf::train {

TextToImageModel::TextToImageModel(models::CLIPTextConfig text, models::UNet2DConditionConfig denoiser)
    : text_encoder(std::move(text)), unet(std::move(denoiser)) {}

bool train_tokenizer(const TextToImageRun& run) {
  if (run.done("pipeline/tokenizer/vocab.json")) return true;
  auto tokenizer =
      tokenizers::train_bpe(run.composed ? run.composed->texts() : run.icons->texts(),
                            {.vocab_size = run.recipe.vocab_size, .model_max_length = run.recipe.max_tokens});
  tokenizer.save_pretrained(run.place("pipeline/tokenizer"));
  run.tell("tokenizer: " + std::to_string(tokenizer.size()) + " tokens");
  return true;
}

bool cache_latents(const TextToImageRun& run) {
  const char* file = "latents.safetensors";
  if (run.composed || run.done(file)) return true;
  auto model = models::load_model(run.place("pipeline/vae"));
  auto& vae = dynamic_cast<models::AutoencoderKL&>(*model);
  run.move(vae);
  run.tell("latents of " + std::to_string(run.icons->size()) + " icons on " +
           std::to_string(1 + run.recipe.denoiser.backgrounds) + " backgrounds each");
  StopOnInterrupt interrupt;
  return CachedLatents::write(*run.icons, vae, run.device, run.recipe.denoiser.backgrounds, uint64_t(run.recipe.seed),
                              run.place(file), [&](int64_t, int64_t) { return !interrupt.asked(); });
}

static TextToImageModel make_model(const TextToImageRun& run, const tokenizers::CLIPTokenizer& tokenizer) {
  models::UNet2DConditionConfig unet;
  io::read_fields("unet", unet.fields(), run.recipe.unet);
  models::AutoencoderKLConfig vae;
  io::read_fields("vae", vae.fields(), run.recipe.vae);
  unet.in_channels = unet.out_channels = vae.latent_channels;
  TextToImageModel model(text_encoder_config(run.recipe, tokenizer), std::move(unet));
  auto trained = models::load_model(run.place("pipeline/text_encoder"));
  auto weights = nn::state_dict(*trained);
  nn::load_state_dict(model.text_encoder, {weights.begin(), weights.end()});
  load_pretrained(run, "unet", model.unet);
  return model;
}

bool train_denoiser(const TextToImageRun& run) {
  if (run.done("pipeline/model_index.json")) return true;
  const IconDenoiserRecipe& o = run.recipe.denoiser;
  auto tokenizer = std::make_shared<tokenizers::CLIPTokenizer>(
      tokenizers::CLIPTokenizer::from_pretrained(run.place("pipeline/tokenizer")));
  manual_seed(uint64_t(run.recipe.seed) + 1);
  TextToImageModel model = make_model(run, *tokenizer);
  run.move(model);
  auto scheduler = run.recipe.make_scheduler();
  const TrainingLatents latents(run);
  StageTraining stage(
      run, o, "denoiser", uint64_t(run.recipe.seed) + 1, model, latents.dataset(),
      {{nn::parameters(model.unet), o.learning_rate}, {nn::parameters(model.text_encoder), o.text_learning_rate}});
  diffusion::TrainingOptions objective = o.objective();
  objective.condition_dropout = 0;  // drawn below, on the host, where prompts are
  SampleGrid samples(run, tokenizer);
  stage.options.on_step_end = [&](Trainer& trainer) {
    if (trainer.step() % o.sample_steps == 0) stage.with_averages([&] { samples.write(model, trainer.step()); });
  };
  const bool done = stage.train(
      [&](data::Batch& batch) {
        const Tensor clean = cat(Tensors(size_t(o.noises), latents.of(batch)));
        auto todo = diffusion::training_batch(*scheduler, clean, objective);
        std::vector<std::string> prompts;
        for (int64_t i = 0; i < o.noises; ++i)
          prompts.insert(prompts.end(), batch.caption.begin(), batch.caption.end());
        if (o.caption_dropout > 0) {
          const std::vector<double> drawn = rand({clean.size(0)}).to_vector();
          for (size_t i = 0; i < prompts.size(); ++i)
            if (drawn[i] < o.caption_dropout) prompts[i].clear();
        }
        Tensors inputs{token_ids(*tokenizer, prompts), todo.noisy_latents, todo.timesteps, todo.target};
        if (todo.weights) inputs.push_back(todo.weights);
        return inputs;
      },
      [&](const Tensors& in) {
        Tensor text = model.text_encoder(in[0])[0];
        return diffusion::training_loss(model.unet(in[1], in[2], text),
                                        {.target = in[3], .weights = in.size() > 4 ? in[4] : Tensor()});
      });
  if (!done) return false;
  samples.write(model, stage.step());
  samples.save_pipeline(model);
  return true;
}

}  // namespace sf::train
