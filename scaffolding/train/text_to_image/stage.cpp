#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

TextToImageRun::TextToImageRun(Recipe r, std::string folder)
    : RecipeRun(std::move(folder)),
      recipe(std::move(r)),
      icons(std::make_shared<data::IconDataset>(recipe.data, recipe.icons)) {
  make_folder();
}

}  // namespace sf::train
