#include "scaffolding/train/text_to_image/stage.h"

namespace sf::train {

TextToImageRun::TextToImageRun(Recipe r, std::string folder)
    : RecipeRun(std::move(folder)),
      recipe(std::move(r)),
      icons(std::make_shared<data::IconDataset>(recipe.data, recipe.icons)) {
  if (recipe.composition) composed = std::make_shared<data::ComposedIcons>(icons, *recipe.composition);
  make_folder();
}

std::shared_ptr<const data::Dataset> TextToImageRun::pictures() const {
  if (composed) return composed;
  return icons;
}

}  // namespace sf::train
