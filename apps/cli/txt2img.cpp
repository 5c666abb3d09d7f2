// `scaffolding txt2img`: pictures from a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "scaffolding/core/error.h"

namespace sf::cli {

void add_txt2img(CLI::App& program) {
  auto* command = program.add_subcommand("txt2img", "Make pictures from a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_generation_options(*command, *s);
  command->footer(R"(Examples:
  scaffolding txt2img "red apple, fluent 3d, on a blue background"
  scaffolding txt2img "cat face" --count 8 --batch 4 --seed 1 --output cats/{number}.png
  scaffolding txt2img "a lighthouse" --model ~/models/stable-diffusion-2-1 --sampler dpm++2m-karras --steps 25
  scaffolding txt2img --like picture.png --seed 7)");
  command->callback([command, s] {
    read_like(*command, *s);
    SF_CHECK(!s->prompt.empty() || command->count("--prompt") > 0 || !s->like.empty(), "txt2img: needs a prompt");
    if (s->model.empty()) s->model = shipped_model();
    auto model = load_model(*s);
    if (is_xl(model)) {
      diffusion::StableDiffusionXLPipeline pipeline(model.components);
      generate("txt2img", *s, pipeline, [&](diffusion::GenerationOptions o) {
        diffusion::StableDiffusionXLOptions options;
        static_cast<diffusion::GenerationOptions&>(options) = std::move(o);
        return pipeline(options);
      });
    } else {
      diffusion::StableDiffusionPipeline pipeline(model.components);
      generate("txt2img", *s, pipeline, [&](diffusion::GenerationOptions o) { return pipeline(o); });
    }
  });
}

}  // namespace sf::cli
