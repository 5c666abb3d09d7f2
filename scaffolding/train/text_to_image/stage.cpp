#include "scaffolding/train/text_to_image/stage.h"

#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::train {

namespace fs = std::filesystem;

TextToImageRun::TextToImageRun(Recipe r, std::string folder)
    : recipe(std::move(r)),
      output_dir(std::move(folder)),
      icons(std::make_shared<data::IconDataset>(recipe.data, recipe.icons)) {
  SF_CHECK(!output_dir.empty(), "TextToImageRun: needs an output folder");
  std::error_code error;
  fs::create_directories(fs::path(output_dir) / "pipeline", error);
  SF_CHECK_AS(RuntimeError, !error, "TextToImageRun: cannot make the folder ", output_dir, ": ", error.message());
}

std::string TextToImageRun::place(const std::string& name) const { return (fs::path(output_dir) / name).string(); }
bool TextToImageRun::done(const std::string& name) const {
  std::error_code error;
  return fs::exists(place(name), error);
}
void TextToImageRun::move(nn::Module& model) const {
  nn::to(model,
         {.device = device, .memory_format = device.is_cuda() ? MemoryFormat::ChannelsLast : MemoryFormat::Preserve});
}
void TextToImageRun::tell(const std::string& text) const {
  if (say) say(text);
}

}  // namespace sf::train
