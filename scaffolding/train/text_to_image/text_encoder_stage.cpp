#include "scaffolding/train/text_to_image/text_encoder_stage.h"

#include <unordered_map>

#include "scaffolding/core/error.h"
#include "scaffolding/models/model_files.h"
#include "scaffolding/ops/ops.h"
#include "scaffolding/train/pretrained.h"
#include "scaffolding/train/stage_training.h"
#include "scaffolding/train/text_to_image/training_latents.h"

namespace sf::train {

models::CLIPTextConfig text_encoder_config(const Recipe& recipe, const tokenizers::CLIPTokenizer& tokenizer) {
  models::CLIPTextConfig text;
  io::read_fields("text_encoder", text.fields(), recipe.text_encoder);
  text.vocab_size = int64_t(tokenizer.size());
  text.max_position_embeddings = recipe.max_tokens;
  text.bos_token_id = tokenizer.bos_token_id();
  text.eos_token_id = tokenizer.eos_token_id();
  text.pad_token_id = tokenizer.pad_token_id();
  text.projection_dim = text.hidden_size;
  return text;
}

Tensor token_ids(const tokenizers::CLIPTokenizer& tokenizer, const std::vector<std::string>& prompts) {
  auto options = tokenizer.fixed_length();
  std::vector<int64_t> ids;
  std::unordered_map<std::string_view, std::vector<int64_t>> known;  // a picture with several noises has one prompt
  for (auto& prompt : prompts) {
    auto [it, is_new] = known.try_emplace(prompt);
    if (is_new) it->second = tokenizer.encode(prompt, options).ids;
    ids.insert(ids.end(), it->second.begin(), it->second.end());
  }
  return tensor(ids, {int64_t(prompts.size()), int64_t(ids.size() / prompts.size())});
}

TextToLatents::TextToLatents(models::CLIPTextConfig text, int64_t latent_channels, int64_t latent_size)
    : text_encoder(text),
      whole_hidden(text.hidden_size, 4 * text.hidden_size),
      whole(4 * text.hidden_size, latent_channels * latent_size * latent_size),
      patches(text.hidden_size, latent_channels * latent_size * latent_size / kPatches),
      channels(latent_channels),
      size(latent_size) {
  SF_CHECK(text.max_position_embeddings >= kPatches, "text_encoder_training: needs prompts of ", kPatches,
           " tokens or more (tokenizer.max_tokens), got ", text.max_position_embeddings);
  SF_CHECK(size % kSide == 0, "text_encoder_training: needs latents whose side is a multiple of ", kSide, ", got ",
           size);
}

std::array<Tensor, 2> TextToLatents::forward(const Tensor& input_ids) const {
  const int64_t n = input_ids.size(1), batch = input_ids.size(0), p = size / kSide;
  Tensors text = text_encoder(input_ids);
  Tensor each = reshape(patches(text[0].narrow(1, n - kPatches, kPatches)), {batch, kSide, kSide, channels, p, p});
  return {reshape(whole(gelu(whole_hidden(text[1]))), {batch, channels, size, size}),
          reshape(permute(each, {0, 3, 1, 4, 2, 5}), {batch, channels, size, size})};
}

bool train_text_encoder(const TextToImageRun& run) {
  if (run.done("pipeline/text_encoder/config.json")) return true;
  const StageRecipe& o = run.recipe.text_encoder_training;
  auto tokenizer = tokenizers::CLIPTokenizer::from_pretrained(run.place("pipeline/tokenizer"));
  const TrainingLatents latents(run);
  manual_seed(uint64_t(run.recipe.seed) + 2);
  TextToLatents model(text_encoder_config(run.recipe, tokenizer), latents.channels(), latents.side());
  load_pretrained(run, "text_encoder", model.text_encoder);
  if (o.max_steps == 0) {
    models::save_model(model.text_encoder, run.place("pipeline/text_encoder"));
    return true;
  }
  run.move(model);
  StageTraining stage(run, o, "text_encoder", uint64_t(run.recipe.seed) + 2, model, latents.dataset());
  const bool done = stage.train(
      [&](data::Batch& batch) {
        return Tensors{token_ids(tokenizer, batch.caption), latents.of(batch)};
      },
      [&](const Tensors& in) {
        auto [whole, patches] = model(in[0]);
        return mean(square(whole - in[1])) + mean(square(patches - in[1]));
      });
  if (!done) return false;
  nn::to(model, {.device = Device::CPU});
  models::save_model(model.text_encoder, run.place("pipeline/text_encoder"));
  return true;
}

}  // namespace sf::train
