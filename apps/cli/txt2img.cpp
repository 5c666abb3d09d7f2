// `scaffolding txt2img`: pictures from a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/drawing.h"
#include "apps/cli/hires.h"
#include "apps/cli/load_model.h"
#include "scaffolding/core/error.h"

namespace sf::cli {

using diffusion::Task;
static const auto kTxt2ImgTasks = {Task::TextToImage, Task::ClassToImage};

static void add_txt2img_options(CLI::App& c, GenerationSettings& s) {
  add_generation_options(c, s, kTxt2ImgTasks);
  add_hires_options(c, s);
}

void add_txt2img(CLI::App& program) {
  auto* command = program.add_subcommand("txt2img", "Make pictures from a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_txt2img_options(*command, *s);
  command->footer(R"(Examples:
  scaffolding txt2img "red apple, fluent 3d, on a blue background"
  scaffolding txt2img "cat face" --count 8 --batch 4 --seed 1 --output cats/{number}.png
  scaffolding txt2img "a lighthouse" --model ~/models/stable-diffusion-2-1 --sampler dpm++2m-karras --steps 25
  scaffolding txt2img "a lighthouse <lora:ink:0.8>" --model ~/models/sd15.safetensors --lora-dir ~/models/lora
  scaffolding txt2img --like picture.png --seed 7
  scaffolding txt2img --prompts prompts.jsonl --output "cats/{number}.png"
  scaffolding txt2img "cat face" --grid "steps=5,10,20" --grid "guidance=2,4,8" --seed 1 --output sheet.png
  scaffolding txt2img "a lighthouse" --model ~/models/sd15.safetensors --hires 2 --hires-strength 0.6
  scaffolding txt2img "mossy stones" --model ~/models/sd15.safetensors --tiling)");
  command->callback([command, s] {
    read_like(*command, *s);
    const bool says_something =
        !s->prompt.empty() || command->count("--prompt") > 0 || !s->like.empty() || s->options.count("class_labels");
    const bool several = !s->prompts.empty() || !s->grid.empty();
    SF_CHECK(says_something || several, "txt2img: needs a prompt");
    if (s->model.empty()) s->model = shipped_model();
    draw({.command = "txt2img",
          .tasks = kTxt2ImgTasks,
          .add_options = add_txt2img_options,
          .needs_prompt = !says_something},
         *s);
  });
}

}  // namespace sf::cli
