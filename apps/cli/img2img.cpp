// `scaffolding img2img`: a picture changed by a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/generation.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::cli {

void add_img2img(CLI::App& program) {
  auto* command = program.add_subcommand("img2img", "Change a picture by a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_generation_options(*command, *s, {diffusion::Task::ImageToImage});
  command->add_option("-i,--image", s->image, "The picture: PNG, JPEG or WebP; --width and --height resize it");
  command->add_option("--strength", s->strength, "How much of it may change: above 0, to 1")->capture_default_str();
  command->footer(R"(Examples:
  scaffolding img2img "red apple, noto" --image apple.png --strength 0.6
  scaffolding img2img "a lighthouse in oil" --image photo.jpg --model ~/models/sd21 --width 512 --height 512)");
  command->callback([command, s] {
    read_like(*command, *s);
    Tensor picture = input_picture("--image", s->image, io::ImageMode::RGB);
    if (s->model.empty()) s->model = shipped_model();
    auto pipeline = load_model("img2img", *s, {diffusion::Task::ImageToImage});
    diffusion::VaeImageProcessor processor({.vae_scale_factor = pipeline->vae_scale_factor()});
    Tensor image = processor.preprocess(Tensors{picture}, {.height = s->height, .width = s->width});
    s->height = s->width = std::nullopt;  // the picture's are the result's
    generate("img2img", *s, *pipeline, {{"image", image}});
  });
}

}  // namespace sf::cli
