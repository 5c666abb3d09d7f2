#include "scaffolding/train/text_to_video/stage.h"

#include "scaffolding/core/error.h"
#include "scaffolding/tokenizers/t5_tokenizer.h"

namespace sf::train {

TextToVideoRun::TextToVideoRun(VideoRecipe r, std::string folder)
    : RecipeRun(std::move(folder)), recipe(std::move(r)), clips(std::make_shared<TrainingClips>(recipe.data)) {
  SF_CHECK(
      !recipe.steered() || clips->has_trajectories(), "train: ", recipe.data.path,
      ": has no trajectories, which the transformer is to follow; write a 'trajectory' (\"10,54 32,20\", in pixels "
      "of the clip) into each row of metadata.jsonl, or take CogVideoXTransformer3DModel");
  make_folder();
}

bool train_tokenizer(const TextToVideoRun& run) {
  if (run.done("pipeline/tokenizer/tokenizer_config.json")) return true;
  auto tokenizer = tokenizers::train_words(
      run.clips->texts(), {.vocab_size = run.recipe.vocab_size, .model_max_length = run.recipe.max_tokens});
  tokenizer.save_pretrained(run.place("pipeline/tokenizer"));
  run.tell("tokenizer: " + std::to_string(tokenizer.size()) + " tokens");
  return true;
}

}  // namespace sf::train
