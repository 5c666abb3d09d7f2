// `scaffolding img2img`: a picture changed by a prompt.
#include <memory>

#include "apps/cli/commands.h"
#include "apps/cli/drawing.h"
#include "apps/cli/load_model.h"
#include "scaffolding/diffusion/pipelines/image_processor.h"

namespace sf::cli {

static const auto kImg2ImgTasks = {diffusion::Task::ImageToImage};

static void add_img2img_options(CLI::App& c, GenerationSettings& s) {
  add_generation_options(c, s, kImg2ImgTasks);
  c.add_option("-i,--image", s.image, "The picture: PNG, JPEG or WebP; --width and --height resize it");
  c.add_option("--strength", s.strength, "How much of it may change: above 0, to 1")->capture_default_str();
}

static Tensors read_img2img_inputs(const GenerationSettings& s) {
  return {input_picture("--image", s.image, io::ImageMode::RGB)};
}

static std::map<std::string, Tensor> prepare_img2img_inputs(GenerationSettings& s,
                                                            const diffusion::DiffusionPipeline& pipeline,
                                                            const Tensors& inputs) {
  diffusion::VaeImageProcessor processor({.vae_scale_factor = pipeline.side_multiple()});
  if (const auto own = pipeline.picture_size(inputs[0].size(1), inputs[0].size(2)))
    return {{"image", processor.preprocess(inputs, {.height = own->height, .width = own->width})}};
  Tensor image = processor.preprocess(inputs, {.height = s.height, .width = s.width});
  s.height = s.width = std::nullopt;  // the picture's are the result's
  return {{"image", image}};
}

void add_img2img(CLI::App& program) {
  auto* command = program.add_subcommand("img2img", "Change a picture by a prompt");
  auto s = std::make_shared<GenerationSettings>();
  add_img2img_options(*command, *s);
  command->footer(R"(Examples:
  scaffolding img2img "red apple, noto" --image apple.png --strength 0.6
  scaffolding img2img "a lighthouse in oil" --image photo.jpg --model ~/models/sd21 --width 512 --height 512
  scaffolding img2img "red apple" --image apple.png --grid "strength=0.4,0.6,0.8" --seed 1 --output sheet.png)");
  command->callback([command, s] {
    read_like(*command, *s);
    if (s->model.empty()) s->model = shipped_model();
    draw({.command = "img2img",
          .tasks = kImg2ImgTasks,
          .add_options = add_img2img_options,
          .read_inputs = read_img2img_inputs,
          .prepare_inputs = prepare_img2img_inputs},
         *s);
  });
}

}  // namespace sf::cli
