#include "scaffolding/train/recipe_run.h"

#include <filesystem>

#include "scaffolding/core/error.h"

namespace sf::train {

namespace fs = std::filesystem;

RecipeRun::RecipeRun(std::string folder) : output_dir(std::move(folder)) {
  SF_CHECK(!output_dir.empty(), "train: needs an output folder");
}

void RecipeRun::make_folder() const {
  std::error_code error;
  fs::create_directories(fs::path(output_dir) / "pipeline", error);
  SF_CHECK_AS(RuntimeError, !error, "train: cannot make the folder ", output_dir, ": ", error.message());
}

std::string RecipeRun::place(const std::string& name) const { return (fs::path(output_dir) / name).string(); }

bool RecipeRun::done(const std::string& name) const {
  std::error_code error;
  return fs::exists(place(name), error);
}

void RecipeRun::tell(const std::string& text) const {
  if (say) say(text);
}

void RecipeRun::move(nn::Module& model) const {
  nn::to(model,
         {.device = device, .memory_format = device.is_cuda() ? MemoryFormat::ChannelsLast : MemoryFormat::Preserve});
}

}  // namespace sf::train
