// What txt2img, img2img, inpaint and txt2vid do once their arguments are read: the pictures of the prompt, of the lines
// of --prompts or of the cells of --grid, by a model that is loaded once.
#pragma once
#include "apps/cli/asked_options.h"

namespace sf::cli {

struct Drawing {
  const char* command;
  std::initializer_list<diffusion::Task> tasks;
  OptionReader::AddOptions add_options;  // of the command, all
  bool needs_prompt = false;
  // Pictures that the settings name, as they are in their files; ValueError for what cannot be begun with. Null: none.
  Tensors (*read_inputs)(const GenerationSettings& settings) = nullptr;
  // The call's tensors of them, by the names of its options, and the settings' sizes.
  std::map<std::string, Tensor> (*prepare_inputs)(GenerationSettings& settings,
                                                  const diffusion::DiffusionPipeline& pipeline,
                                                  const Tensors& inputs) = nullptr;
};
// What is wrong with a line or a cell is found before the first picture is drawn, and told with its place.
void draw(const Drawing& drawing, GenerationSettings settings);

}  // namespace sf::cli
