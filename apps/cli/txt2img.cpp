// `scaffolding txt2img`: pictures from a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "scaffolding/core/error.h"

namespace sf::cli {

using diffusion::Task;
static const auto kTasks = {Task::TextToImage, Task::ClassToImage};

void add_txt2img(CLI::App& program) {
  auto* command = program.add_subcommand("txt2img", "Make pictures from a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_generation_options(*command, *s, kTasks);
  command->footer(R"(Examples:
  scaffolding txt2img "red apple, fluent 3d, on a blue background"
  scaffolding txt2img "cat face" --count 8 --batch 4 --seed 1 --output cats/{number}.png
  scaffolding txt2img "a lighthouse" --model ~/models/stable-diffusion-2-1 --sampler dpm++2m-karras --steps 25
  scaffolding txt2img "a lighthouse <lora:ink:0.8>" --model ~/models/sd15.safetensors --lora-dir ~/models/lora
  scaffolding txt2img --like picture.png --seed 7)");
  command->callback([command, s] {
    read_like(*command, *s);
    const bool says_something =
        !s->prompt.empty() || command->count("--prompt") > 0 || !s->like.empty() || s->options.count("class_labels");
    SF_CHECK(says_something, "txt2img: needs a prompt");
    if (s->model.empty()) s->model = shipped_model();
    generate("txt2img", *s, *load_model("txt2img", *s, kTasks));
  });
}

}  // namespace sf::cli
