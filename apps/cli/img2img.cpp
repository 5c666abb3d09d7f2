// `scaffolding img2img`: a picture changed by a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "scaffolding/core/error.h"

namespace sf::cli {

void add_img2img(CLI::App& program) {
  auto* command = program.add_subcommand("img2img", "Change a picture by a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_generation_options(*command, *s);
  command->add_option("-i,--image", s->image, "The picture: PNG, JPEG or WebP; --width and --height resize it");
  command->add_option("--strength", s->strength, "How much of it may change: above 0, to 1")->capture_default_str();
  command->footer(R"(Examples:
  scaffolding img2img "red apple, noto" --image apple.png --strength 0.6
  scaffolding img2img "a lighthouse in oil" --image photo.jpg --model ~/models/stable-diffusion-2-1 --width 512 --height 512)");
  command->callback([command, s] {
    read_like(*command, *s);
    Tensor picture = input_picture("--image", s->image, io::ImageMode::RGB);
    if (s->model.empty()) s->model = shipped_model();
    auto model = load_model(*s);
    SF_CHECK_AS(NotSupported, !is_xl(model), "img2img: '", s->model,
                "' is a model of SDXL, which this command does not take yet; in Python StableDiffusionXLImg2ImgPipeline does");
    diffusion::StableDiffusionImg2ImgPipeline pipeline(model.components);
    diffusion::VaeImageProcessor processor({.vae_scale_factor = pipeline.vae_scale_factor()});
    Tensor image = processor.preprocess(Tensors{picture}, {.height = s->height, .width = s->width});
    generate("img2img", *s, pipeline, [&](diffusion::GenerationOptions o) {
      diffusion::Img2ImgOptions options{std::move(o)};
      options.image = image;
      options.strength = s->strength;
      options.height = options.width = std::nullopt;
      return pipeline(options);
    });
  });
}

}  // namespace sf::cli
